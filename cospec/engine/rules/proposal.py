"""Rules whose accepted share of a token depends on the token that was proposed: cactus, lenience, tok_lt.

Their output has no law in closed form as a row of the two models; tests enumerate it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cospec.engine.parameters import Parameter
from cospec.engine.rules.base import Greedy, RoundView, Verdict
from cospec.engine.rules.gated import GateRows, rows_parameter
from cospec.engine.rules.ratio import at_drafts, at_place, ratio_verdict, residual_at
from cospec.engine.rules.spec import ParametricRule, RuleInfo
from cospec.engine.sampling import residual_rows


@dataclass(frozen=True, slots=True)
class Cactus(ParametricRule):
    """The proposed token's probability raised as far as a budget of KL(h || p) allows, to second order."""

    delta: float
    name = "cactus"

    @property
    def greedy(self) -> Greedy:
        return "strict"

    def decide(self, view: RoundView) -> Verdict:
        raised = raised_share(at_drafts(view.rows.p, view), self.delta)

        def row_at(place: Tensor) -> Tensor:
            ids, share = (values.gather(1, place[:, None]) for values in (view.regions.draft_ids, raised))
            return residual_rows(raised_row(at_place(view.rows.p, place), ids, share), at_place(view.rows.q, place))

        return ratio_verdict(view, raised, row_at)


@dataclass(frozen=True, slots=True)
class Lenience(ParametricRule):
    """The target's probability counts for more than it is."""

    alpha: float
    name = "lenience"

    @property
    def greedy(self) -> Greedy:
        return "strict"

    def decide(self, view: RoundView) -> Verdict:
        raised = (at_drafts(view.rows.p, view) / (1.0 - self.alpha)).clamp_max(1.0)
        return ratio_verdict(view, raised, residual_at(view, view.rows.p))


@dataclass(frozen=True, slots=True)
class TokLt(GateRows, ParametricRule):
    """Tokens close to the target's best are accepted for sure, others by the strict test."""

    alpha: float
    rows: str
    name = "tok_lt"
    gate_reads_draft = False

    @property
    def strict_on_one_hot(self) -> bool:
        return self.alpha < 1.0

    def decide(self, view: RoundView) -> Verdict:
        gate_p = self.gate_p(view.rows, view.valid.shape[1])
        close = at_drafts(gate_p, view) >= (1.0 - self.alpha) * gate_p.amax(-1)
        share = at_drafts(view.rows.p, view).masked_fill(close, torch.inf)
        return ratio_verdict(view, share, residual_at(view, view.rows.p))


def raised_row(p: Tensor, ids: Tensor, share: Tensor) -> Tensor:
    """CACTUS' H_x (B, V): ``ids`` (B, 1) of rows ``p`` (B, V) at ``share`` (B, 1), the others scaled down alike."""
    p_x = p.gather(1, ids)
    # Where p(x) is 1 there is nothing else to scale.
    scale = ((1.0 - share) / (1.0 - p_x)).where(p_x < 1.0, 1.0)
    return (p * scale).scatter(1, ids, share)


def raised_share(p: Tensor, delta: float) -> Tensor:
    """CACTUS' gamma: ``min(p + sqrt(2 delta p (1 - p)), 1)``."""
    return (p + (2.0 * delta * p * (1.0 - p)).clamp_min(0.0).sqrt()).clamp_max(1.0)


INFOS = (
    RuleInfo(
        name="cactus",
        summary="Raises the proposed token's probability within a KL budget; q's confidence plays no part.",
        formula="accept with min(1, g/q), g = min(p + sqrt(2 delta p (1 - p)), 1), else y ~ norm([H_x - q]+), "
        "H_x(x) = g, H_x(y) = p(y) (1 - g) / (1 - p(x))",
        source="Hao & Mou, ICLR 2026 (2604.04987)",
        greedy="strict: p is 0 or 1, and so is g",
        drafters="any; also one-hot",
        make=Cactus,
        parameters=(
            Parameter(
                "delta",
                0.75,
                "budget of KL(H_x || p), to second order",
                "paper",
                low=0.0,
                # There every token of more than 5e-7 is accepted; float32 would overflow far beyond.
                high=1e6,
                grid=(0.1, 0.25, 1.0),
            ),
        ),
        strict_point="cactus:delta=0",
        relaxed_point="delta >= (1 - p(x)) / (2 p(x)), on the support of p",
    ),
    RuleInfo(
        name="lenience",
        summary="The target's probability counts 1 / (1 - alpha) times (mentored decoding with beta = 1, lossy SPEED).",
        formula="accept with min(1, p / ((1 - alpha) q)), else y ~ norm([p - q]+)",
        source="Leviathan et al. 2023 (2211.17192), A.5; survey eq. 9 (2607.08690)",
        greedy="strict: p is 0 or 1",
        drafters="any; also one-hot",
        make=Lenience,
        parameters=(
            Parameter(
                "alpha",
                0.3,
                "bound of the total variation to p",
                "survey's grid",
                low=0.0,
                high=1.0,
                open_high=True,
                grid=(0.3, 0.7, 0.95),
            ),
        ),
        strict_point="lenience:alpha=0",
        relaxed_point="alpha to 1, on the support of p",
    ),
    RuleInfo(
        name="tok_lt",
        summary="Accepts what is close to the target's best, and tests the rest as strict does.",
        formula="accept if p(x) >= (1 - alpha) max p, else as strict",
        source="third-party replication of the survey",
        greedy="gate: the draft's token is accepted iff it is close to the target's best at temperature 1, or is it; "
        "rows=processed: strict with alpha < 1, otherwise refused",
        drafters="any; also one-hot",
        make=TokLt,
        parameters=(
            Parameter(
                "alpha",
                0.15,
                "relative margin below the target's best",
                "the replication's safe value",
                high=1.0,
                grid=(0.05, 0.15, 0.3),
            ),
            rows_parameter("raw", "ours, as for cascade_v3"),
        ),
        strict_point="tok_lt:alpha=-1",
        relaxed_point="alpha=1",
    ),
)
