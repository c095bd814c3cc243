"""The sampling of a batch whose rows may each have their own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cospec.engine.record import Sampling
from cospec.engine.sampling import processed_rows


class BatchSampling:
    """How the rows of a batch choose tokens; ours.

    Rows of different settings are processed apart, so that a row has the probabilities it would have alone. ``seen``
    (B, V) marks the ids of each row's prompt and text; it is needed where a row has a repetition penalty.
    """

    def __init__(self, rows: Sequence[Sampling], seen: Tensor | None, device: torch.device) -> None:
        places: dict[Sampling, list[int]] = {}
        for place, sampling in enumerate(rows):
            places.setdefault(sampling, []).append(place)
        self._groups = [(sampling, torch.tensor(found, device=device)) for sampling, found in places.items()]
        self.greedy = all(sampling.greedy for sampling in places)
        self.greedy_rows = torch.tensor([sampling.greedy for sampling in rows], device=device)
        penalties = [sampling.repetition_penalty for sampling in rows]
        self._seen = seen if set(penalties) != {1.0} else None
        self._penalties = torch.tensor(penalties, device=device)

    def penalised(self, logits: Tensor, drafts: Tensor, num_before: int = 0) -> Tensor:
        """``logits`` (B, T, V) under the rows' penalties; position t stands behind ``num_before + t`` of ``drafts``.

        As published (Keskar et al. 2019, CTRL, 4.1) and common since: the logit of an id that prompt or text hold
        already is divided by the penalty where it is positive, multiplied where it is negative.
        """
        if self._seen is None:
            return logits
        num_positions = logits.shape[1]
        seen = self._seen[:, None].repeat(1, num_positions, 1)
        for place in range(num_before + num_positions - 1):
            behind = seen[:, max(0, place + 1 - num_before) :]
            behind.scatter_(2, drafts[:, place, None, None].expand(-1, behind.shape[1], 1), True)
        factor = self._penalties[:, None, None]
        return torch.where(seen, torch.where(logits < 0, logits * factor, logits / factor), logits)

    def tempered(self, logits: Tensor) -> Tensor:
        """``logits`` (B, ..., V) by their rows' temperatures; those of greedy rows are left as they are."""
        if len(self._groups) == 1:
            return _tempered(logits, self._groups[0][0])
        found = torch.empty_like(logits)
        for sampling, rows in self._groups:
            found[rows] = _tempered(logits[rows], sampling)
        return found

    def probabilities(self, logits: Tensor) -> Tensor:
        """Processed rows (B, ..., V) of penalised ``logits`` (B, ..., V); a greedy row is one-hot at its argmax."""
        if len(self._groups) == 1:
            return processed_rows(logits, self._groups[0][0])
        found = torch.empty_like(logits, dtype=torch.float32)
        for sampling, rows in self._groups:
            found[rows] = processed_rows(logits[rows], sampling)
        return found


def _tempered(logits: Tensor, sampling: Sampling) -> Tensor:
    # By a Python number, as `processed_rows` does it: on a GPU a tensor of temperatures rounds another way.
    return logits if sampling.greedy else logits / sampling.temperature
