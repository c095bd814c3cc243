"""Both models' distributions over one round, each computed when it is first asked for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cospec.engine.batch_sampling import BatchSampling

if TYPE_CHECKING:
    from cospec.engine.drafters import Draft


class Rows:
    """The rows behind each position of a round's blocks; ``logits`` (B, T, V) are the target's, penalised.

    T is N + 1 where a bonus token may follow the block, whose row stands behind the last real position, else N (and at
    least 1). Processed rows are one-hot for a greedy request; raw ones are at temperature 1 and not truncated.
    """

    def __init__(self, logits: Tensor, draft: Draft, sampling: BatchSampling) -> None:
        self.logits, self.draft, self.sampling = logits, draft, sampling

    @cached_property
    def p(self) -> Tensor:
        """The target's processed rows (B, T, V)."""
        return self.sampling.probabilities(self.logits)

    @cached_property
    def q(self) -> Tensor:
        """The processed rows the drafts were drawn from (B, N, V); (B, N + 1, V) where the rule draws the bonus."""
        if self.draft.q is not None:
            return self.draft.q
        ids = self.draft.ids if self.draft.logits is None else self.draft.logits.argmax(-1)
        return torch.nn.functional.one_hot(ids, self.logits.shape[-1]).float()

    @cached_property
    def raw_p(self) -> Tensor:
        """The target's softmax (B, T, V)."""
        return self.logits.softmax(-1)

    @cached_property
    def raw_q(self) -> Tensor:
        """The drafter's softmax, shaped like ``q``; ``q`` itself where a drafter has no logits."""
        return self.q if self.draft.logits is None else self.draft.logits.softmax(-1)

    @property
    def draft_logits(self) -> Tensor:
        """The drafter's penalised logits, shaped like ``q``; there only for a rule that says it needs them."""
        assert self.draft.logits is not None, "the drafter was not asked for its logits"
        return self.draft.logits

    def at(self, place: Tensor) -> Rows:
        """The rows at one place (B,) of each block, all (B, 1, V)."""
        return _RowsAt(self, place)

    @property
    def greedy(self) -> Tensor:
        """(B, 1, 1): which requests are greedy."""
        return self.sampling.greedy_rows[:, None, None]


class _RowsAt(Rows):
    """Rows at one place of each block, taken from those of all places."""

    def __init__(self, rows: Rows, place: Tensor) -> None:
        self._rows, self._index = rows, (torch.arange(len(place), device=place.device)[:, None], place[:, None])
        super().__init__(rows.logits[self._index], rows.draft, rows.sampling)

    @cached_property
    def p(self) -> Tensor:
        return self._rows.p[self._index]

    @cached_property
    def q(self) -> Tensor:
        return self._rows.q[self._index]

    @cached_property
    def raw_p(self) -> Tensor:
        return self._rows.raw_p[self._index]

    @cached_property
    def raw_q(self) -> Tensor:
        return self._rows.raw_q[self._index]

    @property
    def draft_logits(self) -> Tensor:
        return self._rows.draft_logits[self._index]
