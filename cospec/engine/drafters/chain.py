"""A chain of drafts, one step after another, whatever makes the logits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cospec.engine.contexts import Contexts
from cospec.engine.drafters.base import Draft, RunShape
from cospec.engine.sampling import Draws, Stream

#: Feeds the drafts (B, 1) of step k, real ones where counts (B,) is 1: the logits (B, V) behind them.
Advance = Callable[[int, Tensor, Tensor], Tensor]


def draft_chain(
    run: RunShape, contexts: Contexts, limits: Tensor, num_steps: int, draws: Draws, logits: Tensor, advance: Advance
) -> Draft:
    """Draft up to ``limits`` (B,) tokens from ``logits`` (B, V) on, ``num_steps`` >= 1 at most; an EOS ends a block.

    With the run's ``row_behind`` the last token of a block is fed too, for the row of the token behind it.
    """
    sampling, proposed = contexts.sampling, contexts.ids.new_zeros(len(limits), num_steps)
    rows_q: list[Tensor] = []
    kept: list[Tensor] = []
    for step in range(num_steps + run.row_behind):
        logits = sampling.penalised(logits[:, None], proposed, step)[:, 0]
        if run.keeps_logits or run.row_behind:
            kept.append(logits.float())
        if not sampling.greedy:
            rows_q.append(sampling.probabilities(logits))
        if step == num_steps:
            break
        if sampling.greedy:
            proposed[:, step] = logits.argmax(-1)
        else:
            proposed[:, step] = draws.categorical(rows_q[-1], contexts.keys, Stream.DRAFT, step)
        if step + 1 < num_steps + run.row_behind:
            if not run.row_behind and _all_end(proposed[:, : step + 1], limits, run.eos_ids):
                proposed = proposed[:, : step + 1]
                break
            counts = (limits + run.row_behind > step + 1).long()
            logits = advance(step, proposed[:, step, None], counts)
    return Draft(
        proposed,
        up_to_eos(proposed, limits, run.eos_ids),
        torch.stack(rows_q, 1) if rows_q else None,
        torch.stack(kept, 1) if kept else None,
    )


def _all_end(proposed: Tensor, limits: Tensor, eos_ids: Tensor) -> bool:
    """Whether no row goes on behind the tokens (B, n) proposed so far; False where to ask is to wait for a device.

    There the rest of the block is drafted for nothing.
    """
    if proposed.device.type != "cpu":
        return False
    return bool((torch.isin(proposed, eos_ids).any(1) | (limits <= proposed.shape[1])).all())


def up_to_eos(proposed: Tensor, num_positions: Tensor, eos_ids: Tensor) -> Tensor:
    """``num_positions`` (B,) of ``proposed`` (B, N), cut behind the first EOS."""
    ends = torch.isin(proposed, eos_ids)
    first = torch.cat([ends, ends.new_ones(len(ends), 1)], dim=1).int().argmax(1)
    return torch.minimum(num_positions, first + 1)
