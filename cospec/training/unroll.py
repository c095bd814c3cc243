"""A drafting head unrolled over a text as it will be used: EAGLE-3's training-time test (Li et al. 2025, 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from cospec.engine.heads import DraftHead
from cospec.engine.hidden import HiddenStates, Taps


class _Growing(Cache):
    """Keys and values of all steps so far, behind one another."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._held: list[Tensor] = []

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        new = [key_states, value_states]
        self._held = [torch.cat(pair, dim=2) for pair in zip(self._held, new, strict=True)] if self._held else new
        return self._held[0], self._held[1]


@dataclass(frozen=True, slots=True)
class Step:
    """One step over a batch: ``loss`` is summed over the ``num`` tokens that it predicts, of which ``agreed`` times the
    head's likeliest is the target's."""

    loss: Tensor
    num: Tensor
    agreed: Tensor


class Unrolled(nn.Module):
    """Drafts ``num_steps`` tokens behind every place of a text, step k from its own states of step k - 1.

    The tokens it is fed are the text's. Step k at place t attends to what drafting would have in its cache: the pairs
    up to t that are made from the target's states, and those of its own earlier steps behind t.
    """

    def __init__(self, head: DraftHead, num_steps: int) -> None:
        super().__init__()
        self.head, self.num_steps = head, num_steps
        self._taps = Taps(head.target, head.tapped)

    def forward(self, input_ids: Tensor, labels: Tensor) -> list[Step]:
        """Steps over right-padded texts ``input_ids`` (B, S); ``labels`` (B, S) is negative where nothing is learned.

        The loss is the cross-entropy to the target's distribution at temperature 1. What the target gives to ids
        outside the draft vocabulary counts for nothing. There are fewer steps where no text is long enough for more.
        """
        features, wanted = self._target(input_ids)
        hidden = self.head.fuse(features[:, :-1].to(next(self.head.parameters()).dtype))
        num_pairs, cache, steps = hidden.shape[1], _Growing(), []
        for k in range(min(self.num_steps, num_pairs - 1)):
            # Step k puts the token at t + 1 + k beside the state and predicts the one behind it.
            behind = nn.functional.pad(input_ids[:, 1 + k :], (0, k))
            hidden = self.head.read(behind, hidden, *self._places(num_pairs, k, hidden.device), cache)
            learned = labels[:, 2 + k :] >= 0
            kept = hidden[:, : learned.shape[1]][learned]
            steps.append(self._step(kept, wanted[:, 1 + k : -1][learned]))
        return steps

    @torch.no_grad()
    def _target(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """The target's features (B, S, F) and logits (B, S, V)."""
        with self._taps.open() as found:
            logits = self.head.target(input_ids=input_ids, use_cache=False).logits
        return HiddenStates(found).of(self.head.tapped), logits

    def _places(self, num: int, k: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Positions (1, T) of step k and its mask over the keys of all steps up to it."""
        line = torch.arange(num, device=device)
        own = line[:, None] == line
        allowed = torch.cat([line[:, None] >= line, *[own] * k], dim=1)
        keys = torch.cat([line + step for step in range(k + 1)])
        mask = self.head.masks(allowed[None], (line + k)[None], keys[None])
        assert not isinstance(mask, dict), "a head has one layer"
        return (line + k)[None], mask

    def _step(self, states: Tensor, wanted: Tensor) -> Step:
        """``states`` (M, H) of the places learned, and the target's logits (M, V) there."""
        logits, ids = self.head.draft_logits(states).float(), self.head.target_ids
        probs = wanted.float().softmax(-1)
        best = logits.argmax(-1)
        if ids is not None:
            probs, best = probs[:, ids], ids[best]
        loss = -(probs * logits.log_softmax(-1)).sum()
        num = torch.tensor(len(states), device=states.device)
        return Step(loss, num, (best == wanted.argmax(-1)).sum())
