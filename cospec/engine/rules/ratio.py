"""The speculative test with replaced rows, which all rules with a residual share ("Algorithm 2").

Accept and residual draws are those of strict at the same positions, and so is the arithmetic: a rule whose rows are p
decides and writes bit for bit what strict does.
"""

from __future__ import annotations

import torch
from torch import Tensor

from cospec.engine.rules.base import RoundView, Verdict
from cospec.engine.sampling import Stream


def at_drafts(rows: Tensor, view: RoundView) -> Tensor:
    """``rows`` (B, N or more, V) at the proposed tokens: (B, N)."""
    ids = view.regions.draft_ids
    return rows[:, : ids.shape[1]].gather(2, ids[..., None]).squeeze(2)


def ratio_verdict(view: RoundView, at_draft: Tensor, residual: Tensor, bonus: Tensor | None = None) -> Verdict:
    """Accept with probability min(1, pi(x)/q(x)), else draw from the residual.

    ``at_draft`` (B, N) is the accepting row pi_rej at the proposed token, ``residual`` (B, N, V) has mass one,
    ``bonus`` (B, N + 1, V) are the rows pi_bonus, of which the one behind the block counts; None: the target's token.
    """
    shares = (at_draft / at_drafts(view.rows.q, view)).clamp_max(1.0)
    columns = [view.draws.bernoulli(shares[:, i], view.keys, Stream.ACCEPT, i) for i in range(shares.shape[1])]
    accept = torch.stack(columns, 1) if columns else view.valid
    replacement_ids, bonus_ids = drawn(view, residual, bonus)
    return Verdict(accept, shares, replacement_ids, bonus_ids)


def drawn(view: RoundView, residual: Tensor, bonus: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """One token of every residual (B, N), and one behind each block (B,)."""
    num, width = view.regions.num_positions, residual.shape[1]
    columns = []
    for i in range(width if bonus is None else width + 1):
        if bonus is None:
            row = residual[:, i]
        elif i == width:
            row = bonus[:, i]
        else:
            row = torch.where((i < num)[:, None], residual[:, i], bonus[:, i])
        columns.append(view.draws.categorical(row, view.keys, Stream.RESIDUAL, i))
    if not columns:
        return view.regions.draft_ids, None
    drawn = torch.stack(columns, 1)
    return drawn[:, :width], None if bonus is None else drawn.gather(1, num[:, None]).squeeze(1)
