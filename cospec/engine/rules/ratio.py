"""The speculative test with replaced rows, which all rules with a residual share ("Algorithm 2").

Accept and residual draws are those of strict at the same positions, and so is the arithmetic: a rule whose rows are p
decides and writes bit for bit what strict does.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from cospec.engine.rules.base import RoundView, Verdict
from cospec.engine.sampling import Stream, residual_rows


def at_drafts(rows: Tensor, view: RoundView) -> Tensor:
    """``rows`` (B, N or more, V) at the proposed tokens: (B, N)."""
    ids = view.regions.draft_ids
    return rows[:, : ids.shape[1]].gather(2, ids[..., None]).squeeze(2)


#: The row (B, V) to draw from at one place (B,) of each block, in front of which all was accepted.
RowAt = Callable[[Tensor], Tensor]


def ratio_verdict(view: RoundView, at_draft: Tensor, row_at: RowAt) -> Verdict:
    """Accept with probability min(1, pi(x)/q(x)), else draw from the residual.

    ``at_draft`` (B, N) is the accepting row pi_rej at the proposed token, ``row_at`` the residual at the first rejected
    position, and the row pi_bonus behind a whole block where the rule is to draw it.
    """
    shares = (at_draft / at_drafts(view.rows.q, view)).clamp_max(1.0)
    columns = [view.draws.bernoulli(shares[:, i], view.keys, Stream.ACCEPT, i) for i in range(shares.shape[1])]
    accept = torch.stack(columns, 1) if columns else view.valid
    return Verdict(accept, shares, drawn(view, accept, row_at))


def residual_at(view: RoundView, rows: Tensor) -> RowAt:
    """norm([rows - q]+) at one place of ``rows`` (B, N, V)."""
    return lambda place: residual_rows(at_place(rows, place), at_place(view.rows.q, place))


def drawn(view: RoundView, accept: Tensor, row_at: RowAt) -> Tensor | None:
    """One token (B,) at the place where each block ends, the draw of strict at that position; None without drafts.

    Where the whole block is accepted and the rule draws no bonus, the token counts for nothing.
    """
    last = accept.shape[1] - 1 + view.own_bonus
    if not accept.shape[1]:
        return None
    place = view.num_accepted(accept).clamp_max(last)
    return view.draws.categorical(row_at(place), view.keys, Stream.RESIDUAL, place)


def at_place(rows: Tensor, place: Tensor) -> Tensor:
    """``rows`` (B, T, V) at one place (B,) of each block: (B, V)."""
    return rows[torch.arange(len(place), device=place.device), place]
