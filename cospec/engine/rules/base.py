"""The interface every verification rule implements, and what it is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from cospec.engine.record import Bonus
from cospec.engine.sampling import Draws


@dataclass(frozen=True, slots=True)
class Regions:
    """The blocks of one round as an arbiter sees them.

    ``draft_ids`` and ``target_ids`` are (B, N), of which the first ``num_positions`` (B,) are real; ``rows`` (R,) are
    the rows that have a mismatch. A row's context is its first ``lengths`` (B,) entries of ``ids`` (B, C).
    """

    ids: Tensor
    lengths: Tensor
    draft_ids: Tensor
    target_ids: Tensor
    num_positions: Tensor
    rows: Tensor


@dataclass(frozen=True, slots=True)
class RoundView:
    """One round before the decision.

    ``match`` and ``valid`` are (B, N); ``p`` and ``q`` are the processed rows (B, N, V), None when greedy, where both
    are one-hot at ``target_ids`` and ``draft_ids``.
    """

    regions: Regions
    valid: Tensor
    match: Tensor
    p: Tensor | None
    q: Tensor | None
    keys: Tensor
    draws: Draws

    @property
    def mismatch(self) -> Tensor:
        return self.valid & ~self.match


@dataclass(frozen=True, slots=True)
class Verdict:
    """``accept`` (B, N) per position, had all before it been accepted; ``keep_probs`` (B, N) what the rule gave it."""

    accept: Tensor
    keep_probs: Tensor


class Rule(Protocol):
    """Decides which draft tokens stay. ``default_bonus`` is the bonus form the rule uses unless told otherwise."""

    @property
    def name(self) -> str: ...

    @property
    def default_bonus(self) -> Bonus: ...

    @property
    def drafts(self) -> bool:
        """False only for plain target decoding, where nothing is drafted."""
        ...

    def decide(self, view: RoundView) -> Verdict: ...
