"""One round as a rule sees it, made of given rows, and the law of what the rule then writes, without sampling noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cospec.engine.batch_sampling import BatchSampling
from cospec.engine.drafters import Draft
from cospec.engine.record import Sampling
from cospec.engine.rules import Regions, RoundView, Rows, Rule, rule_named
from cospec.engine.sampling import Stream


@dataclass
class Recorder:
    """Draws that accept all but position ``rejects`` and note the probabilities they were asked with, by position."""

    rejects: int | None = None
    accepts: dict[int, Tensor] = field(default_factory=dict)
    rows: dict[int, Tensor] = field(default_factory=dict)

    def bernoulli(self, probs: Tensor, keys: Tensor, stream: Stream, position: int) -> Tensor:
        self.accepts[position] = probs.double()
        return torch.full_like(probs, position != self.rejects, dtype=torch.bool)

    def categorical(self, probs: Tensor, keys: Tensor, stream: Stream, position: int | Tensor) -> Tensor:
        places = torch.as_tensor(position).expand(len(probs))
        for place in places.unique().tolist():
            here = (places == place)[:, None]
            self.rows[place] = torch.where(here, probs.double(), self.rows.get(place, torch.zeros_like(probs).double()))
        return probs.argmax(-1)


def logits_of(rows: Tensor) -> Tensor:
    """Finite logits whose softmax in float32 is ``rows``, zeros included."""
    return rows.log().clamp_min(-1e4).float()


def view_of(
    p: Tensor,
    q: Tensor,
    ids: Tensor,
    *,
    sampling: Sampling | None = None,
    one_hot: bool = False,
    target_ids: Tensor | None = None,
    num_positions: Sequence[int] | None = None,
    draws: Recorder | None = None,
    context: Tensor | None = None,
    own_bonus: bool = False,
    excluded: bool = False,
    max_drafts: int | None = None,
) -> RoundView:
    """The round with target rows ``p`` (B, T, V), draft rows ``q`` (B, N or N + 1, V) and drafts ``ids`` (B, N).

    The rows are at temperature 1; ``sampling`` processes them, by default not at all. ``one_hot``: the drafter has no
    distribution, and its rows count for nothing. ``excluded``: its zeros are -inf among its logits.
    ``max_drafts`` is N unless told otherwise.
    """
    num_rows, width = ids.shape
    batch = BatchSampling([sampling or Sampling(1.0)] * num_rows, None, ids.device)
    logits = q.log().float() if excluded else logits_of(q)
    greedy = batch.greedy or one_hot
    draft_q = None if greedy else batch.probabilities(logits)
    num = torch.tensor(list(num_positions) if num_positions else [width] * num_rows)
    draft = Draft(ids, num, draft_q, None if one_hot else logits)
    target_ids = ids if target_ids is None else target_ids
    context = torch.zeros(num_rows, 1, dtype=torch.long) if context is None else context
    valid = torch.arange(width) < num[:, None]
    match = valid & (ids == target_ids)
    lengths = torch.full((num_rows,), context.shape[1])
    regions = Regions(context, lengths, ids, target_ids, num)
    keys = torch.zeros(num_rows, dtype=torch.long)
    rows = Rows(logits_of(p), draft, batch)
    return RoundView(regions, valid, match, rows, keys, draws or Recorder(), max_drafts or width, own_bonus)


@dataclass(frozen=True)
class OneStep:
    """What a rule does at one position of pairs of rows (P, V): ``accept`` (P, V) and ``residual`` (P, V, V) by draft.

    ``p`` and ``q`` (P, V) are the rows in use, in float64.
    """

    p: Tensor
    q: Tensor
    accept: Tensor
    residual: Tensor

    @property
    def law(self) -> Tensor:
        """(P, V): what is written."""
        rejected = (self.q * (1 - self.accept))[..., None] * self.residual
        return self.q * self.accept + rejected.sum(1)

    @property
    def acceptance(self) -> Tensor:
        return (self.q * self.accept).sum(-1)


def one_step(rule: Rule | str, p: Tensor, q: Tensor, **settings: object) -> OneStep:
    """Every draft of every pair of ``p`` and ``q`` (P, V), decided by the rule; see `view_of` for the settings."""
    rule = rule_named(rule) if isinstance(rule, str) else rule
    num, size = p.shape
    ids = torch.arange(size).repeat(num)[:, None]
    rows = [row.repeat_interleave(size, 0)[:, None] for row in (p, q)]
    draws = Recorder(rejects=0)
    view = view_of(*rows, ids, draws=draws, **settings)  # type: ignore[arg-type]
    verdict = rule.decide(view)
    accept = draws.accepts[0] if draws.accepts else verdict.accept[:, 0].double()
    if draws.rows:
        residual = draws.rows[0]
    else:
        assert verdict.written_ids is not None
        residual = torch.nn.functional.one_hot(verdict.written_ids, size).double()
    torch.testing.assert_close(verdict.keep_probs[:, 0].double(), accept, equal_nan=True)
    # A draft that q excludes never comes, and its share is 0/0.
    accept = accept.nan_to_num(0.0)
    shape = (num, size)
    found_p, found_q = (row[:, 0].double().reshape(num, size, size)[:, 0] for row in (view.rows.p, view.rows.q))
    return OneStep(found_p, found_q, accept.reshape(shape), residual.reshape(num, size, size))


def pairs(size: int, num: int = 40, seed: int = 0, zeros: bool = True) -> tuple[Tensor, Tensor]:
    """Random rows p and q (num, size) in float64; with ``zeros`` about a quarter of the entries are 0."""
    generator = torch.Generator().manual_seed(seed * 100 + size)
    found = []
    for _ in range(2):
        rows = (2 * torch.randn(num, size, generator=generator, dtype=torch.float64)).softmax(-1)
        if zeros:
            out = torch.rand(num, size, generator=generator) < 0.25
            out[torch.arange(num), torch.randint(size, (num,), generator=generator)] = False
            rows = rows.masked_fill(out, 0.0)
        found.append(rows / rows.sum(-1, keepdim=True))
    return found[0], found[1]


def variation(p: Tensor, q: Tensor) -> Tensor:
    return (p - q).clamp_min(0).sum(-1)


def divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q)."""
    return (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1)
