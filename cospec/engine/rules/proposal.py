"""Rules whose accepted share of a token depends on the token that was proposed: cactus, lenience, tok_lt.

Their output has no law in closed form as a row of the two models; tests enumerate it.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cospec.engine.rules.base import Greedy, RoundView, Verdict
from cospec.engine.rules.ratio import at_drafts, ratio_verdict
from cospec.engine.rules.spec import Parameter, ParametricRule, RuleInfo
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
        p_x = at_drafts(view.rows.p, view)
        raised = raised_share(p_x, self.delta)
        return ratio_verdict(view, raised, residual_rows(self.raised_rows(view, p_x, raised), view.drafted_q))

    def raised_rows(self, view: RoundView, p_x: Tensor, raised: Tensor) -> Tensor:
        """H_x (B, N, V): the proposed token at its raised share, the others scaled down alike."""
        # Where p(x) is 1 there is nothing else to scale.
        scale = ((1.0 - raised) / (1.0 - p_x)).where(p_x < 1.0, 1.0)
        rows = view.rows.p[:, : p_x.shape[1]] * scale[..., None]
        return rows.scatter(2, view.regions.draft_ids[..., None], raised[..., None])


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
                "paper, section 5",
                low=0.0,
                open_high=True,
                grid=(0.1, 0.25, 1.0),
            ),
        ),
        strict_point="cactus:delta=0",
        relaxed_point="delta to infinity, on the support of p",
    ),
)
