"""Fuzzy decoding: take the drafter's token wherever both models' rows are close (fuzzy, r_fuzzy)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cospec.engine.parameters import Parameter
from cospec.engine.rules.base import RoundView, Verdict
from cospec.engine.rules.fixed import FixedRule
from cospec.engine.rules.gated import GateRows, js_divergence, kl_divergence, rows_parameter, total_variation
from cospec.engine.rules.ratio import drawn
from cospec.engine.rules.rows import Rows
from cospec.engine.rules.spec import ParametricRule, RuleInfo

_DISTANCES = {"js": js_divergence, "kl": kl_divergence, "tv": total_variation}


@dataclass(frozen=True, slots=True)
class Fuzzy(GateRows, ParametricRule):
    """Accept where the rows are close, whatever the token; else draw from p."""

    threshold: float
    divergence: str
    rows: str
    name = "fuzzy"
    has_own_bonus = True
    trusts_draft = True

    def decide(self, view: RoundView) -> Verdict:
        num = view.valid.shape[1]
        own_bonus = view.own_bonus and num > 0
        wide = num + own_bonus
        passes = _DISTANCES[self.divergence](self.gate_p(view.rows, wide), self.gate_q(view.rows, wide))
        passes = passes < self.threshold
        p = view.rows.p[:, :wide]
        bonus = torch.where(passes, view.rows.q[:, :wide], p) if own_bonus else None
        replacement_ids, bonus_ids = drawn(view, p[:, :num], bonus)
        accept = passes[:, :num, 0] & view.valid
        return Verdict(accept, accept.float(), replacement_ids, bonus_ids)


@dataclass(frozen=True, slots=True)
class RFuzzy(GateRows, FixedRule):
    """The drafter's row where both are close, else the target's."""

    threshold: float
    rows: str
    name = "r_fuzzy"

    def law(self, rows: Rows, num: int) -> Tensor:
        close = js_divergence(self.gate_p(rows, num), self.gate_q(rows, num)) <= self.threshold
        return torch.where(close, rows.q[:, :num], rows.p[:, :num])


INFOS = (
    RuleInfo(
        name="fuzzy",
        summary="Accepts wherever both rows are close; a rejection draws from p: threshold 0 is plain decoding.",
        formula="accept iff D(p, q) < threshold, else y ~ p",
        source="Holsman et al., Findings of ACL 2025 (2502.20704)",
        greedy="gate: the rows are both models' at temperature 1; a rejection writes argmax p",
        drafters="drafters with a distribution; with one-hot q the divergence is a threshold on p(x)",
        make=Fuzzy,
        parameters=(
            Parameter(
                "threshold", 0.4, "rows closer than this are accepted", "authors' code", low=0.0, grid=(0.1, 0.2, 0.4)
            ),
            Parameter(
                "divergence",
                "js",
                "Jensen-Shannon (at most ln 2), KL(p || q), or total variation",
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
        greedy="refused with rows=processed; rows=raw: the gate is at temperature 1",
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
