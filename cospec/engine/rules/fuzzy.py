"""Fuzzy decoding: take the drafter's token wherever both models' rows are close (fuzzy, r_fuzzy)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from cospec.engine.parameters import Parameter
from cospec.engine.record import Sampling
from cospec.engine.rules.base import RoundView, Verdict
from cospec.engine.rules.fixed import FixedRule
from cospec.engine.rules.gated import ROUNDING, GateRows, js_divergence, kl_divergence, rows_parameter, total_variation
from cospec.engine.rules.ratio import at_place, drawn
from cospec.engine.rules.rows import Rows
from cospec.engine.rules.spec import ParametricRule, RuleInfo

_DISTANCES = {"js": js_divergence, "kl": kl_divergence, "tv": total_variation}
#: How far apart two one-hot rows are that differ, less what rounding may take of it.
_FARTHEST = {"js": math.log(2.0) - ROUNDING, "kl": math.inf, "tv": 1.0}


@dataclass(frozen=True, slots=True)
class Fuzzy(GateRows, ParametricRule):
    """Accept where the rows are close, whatever the token; else draw from p."""

    threshold: float
    divergence: str
    rows: str
    name = "fuzzy"
    has_own_bonus = True
    trusts_draft = True

    @property
    def needs_distribution(self) -> bool:
        return self.divergence == "kl"

    @property
    def strict_on_one_hot(self) -> bool:
        return ROUNDING < self.threshold <= _FARTHEST[self.divergence]

    def decide(self, view: RoundView) -> Verdict:
        num = view.valid.shape[1]
        own_bonus = view.own_bonus and num > 0
        wide = num + own_bonus
        passes = _DISTANCES[self.divergence](self.gate_p(view.rows, wide), self.gate_q(view.rows, wide))
        passes = passes < self.threshold
        accept = passes[:, :num, 0] & view.valid

        def row_at(place: Tensor) -> Tensor:
            # Where the place passes it is the bonus token's.
            return torch.where(at_place(passes, place), at_place(view.rows.q, place), at_place(view.rows.p, place))

        return Verdict(accept, accept.float(), drawn(view, accept, row_at))

    def notes(self, sampling: Sampling, num_positions: int, *, one_hot: bool) -> Iterable[str]:
        yield from GateRows.notes(self, sampling, num_positions, one_hot=one_hot)
        cuts = sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0
        if self.divergence == "kl" and self.rows == "processed" and cuts and not sampling.greedy:
            yield (
                f"rule {self.spec!r} accepts nothing where top-k, top-p or min-p cut a token from the drafter's row "
                "that the target's row keeps, as KL(p || q) is infinite there: set rows=raw, or divergence=js"
            )


@dataclass(frozen=True, slots=True)
class RFuzzy(GateRows, FixedRule):
    """The drafter's row where both are close, else the target's."""

    threshold: float
    rows: str
    name = "r_fuzzy"

    @property
    def strict_on_one_hot(self) -> bool:
        return self.threshold < _FARTHEST["js"]

    def law(self, rows: Rows, num: int) -> Tensor:
        close = js_divergence(self.gate_p(rows, num), self.gate_q(rows, num)) <= self.threshold
        return torch.where(close, rows.q[:, :num], rows.p[:, :num])


INFOS = (
    RuleInfo(
        name="fuzzy",
        summary="Accepts wherever both rows are close; a rejection draws from p: threshold 0 is plain decoding.",
        formula="accept iff D(p, q) < threshold, else y ~ p",
        source="Holsman et al., Findings of ACL 2025 (2502.20704)",
        greedy="gate: the rows are both models' at temperature 1; a rejection writes argmax p; rows=processed: strict "
        "with a threshold above 0 that tells one-hot rows apart, otherwise refused",
        drafters="drafters with a distribution; with one-hot q js and tv are a threshold on p(x), and kl is refused",
        make=Fuzzy,
        parameters=(
            Parameter(
                "threshold", 0.4, "rows closer than this are accepted", "authors' code", low=0.0, grid=(0.1, 0.2, 0.4)
            ),
            Parameter(
                "divergence",
                "js",
                "Jensen-Shannon (at most ln 2), KL(p || q), or total variation. KL is infinite where q lacks a token "
                "of p, as a head of fewer ids always does",
                "paper",
                kind="choice",
                choices=("js", "kl", "tv"),
            ),
            rows_parameter("raw", "authors' code"),
        ),
        relaxed_point="threshold > ln 2 (js)",
    ),
    RuleInfo(
        name="r_fuzzy",
        summary="The drafter's row wherever both rows are close: fuzzy's law with more acceptance.",
        formula="pi = q where JS(p, q) <= threshold, else p",
        source="survey eq. 10 (2607.08690)",
        greedy="strict: one-hot rows that differ are ln 2 apart (refused from that threshold on); rows=raw: gate, the "
        "rows are both models' at temperature 1",
        drafters="drafters with a distribution; with one-hot q the divergence is a threshold on p(x)",
        make=RFuzzy,
        parameters=(
            Parameter(
                "threshold",
                0.2,
                "rows no farther apart than this in nats are taken for one another; below 0: none",
                "survey's grid",
                low=-1.0,
                grid=(0.05, 0.2, 0.3),
            ),
            rows_parameter("processed", "survey's code"),
        ),
        strict_point="r_fuzzy:threshold=-1",
        relaxed_point="threshold >= ln 2",
    ),
)
