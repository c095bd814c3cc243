"""Log-probabilities and entropies of executed decisions: by the model being trained, or as they were recorded."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from cospec.arbiter.layout import decisions_item, pack
from cospec.engine.record import Rollout


def scored(model: nn.Module, rollouts: Sequence[Rollout], actions: Tensor, sep: int) -> tuple[Tensor, Tensor]:
    """One packed forward over ``rollouts``, whose ``actions`` (B, T) are 1 keep, 0 fall back, right-padded.

    Returns log-probabilities of the actions and entropies in nats, both (B, T) with gradient.
    """
    packed = pack([decisions_item(rollout) for rollout in rollouts], sep)
    logits = model(**packed.to(actions.device).tensors()).float()
    logits = nn.functional.pad(logits, (0, actions.shape[1] - logits.shape[1]))
    logps = nn.functional.logsigmoid(torch.where(actions == 1, logits, -logits))
    keep = torch.sigmoid(logits)
    entropies = -(keep * nn.functional.logsigmoid(logits) + (1 - keep) * nn.functional.logsigmoid(-logits))
    real = nn.functional.pad(packed.read_mask, (0, actions.shape[1] - packed.read_mask.shape[1])).to(actions.device)
    return logps, entropies * real


def recorded(rollouts: Sequence[Rollout], actions: Tensor) -> tuple[Tensor, Tensor]:
    """The same two (B, T) of the policy that decoded ``rollouts``, from their keep probabilities; no gradient."""
    keep = torch.zeros(actions.shape, dtype=torch.float32)
    for row, rollout in enumerate(rollouts):
        keep[row, : len(rollout.decisions)] = torch.tensor([decision.keep_prob for decision in rollout.decisions])
    keep = keep.to(actions.device)
    tiny = torch.finfo(torch.float32).tiny
    logps = torch.where(actions == 1, keep, 1 - keep).clamp_min(tiny).log()
    return logps, torch.special.entr(keep) + torch.special.entr(1 - keep)


def scored_where_taught(
    model: nn.Module, rollouts: Sequence[Rollout], actions: Tensor, advantages: Tensor, sep: int
) -> tuple[Tensor, Tensor]:
    """`scored` for the rollouts of which a decision has an advantage, `recorded` for the others.

    A rollout whose ``advantages`` (B, T) are all zero has no gradient, so its forward and backward pass would be for
    nothing. One rollout is always scored, so that every process has a backward pass.
    """
    taught = advantages.ne(0).any(1)
    taught[0] |= ~taught.any()
    rows = taught.nonzero().flatten()
    logps, entropies = recorded(rollouts, actions)
    new_logps, new_entropies = scored(model, [rollouts[row] for row in rows.tolist()], actions[rows], sep)
    return logps.index_copy(0, rows, new_logps), entropies.index_copy(0, rows, new_entropies)
