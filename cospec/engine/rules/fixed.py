"""Rules with one row pi in place of p, which does not depend on the proposed token: ensemble.

Their one-step law is pi and their acceptance 1 - TV(q, pi). The law of the whole text is the product of pi's rows only
where the bonus token is drawn from pi too (`bonus: rule`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from torch import Tensor

from cospec.engine.rules.base import Greedy, RoundView, Verdict
from cospec.engine.rules.ratio import at_drafts, ratio_verdict
from cospec.engine.rules.rows import Rows
from cospec.engine.rules.spec import Parameter, ParametricRule, RuleInfo
from cospec.engine.sampling import residual_rows


class FixedRule(ParametricRule):
    """Speculative sampling of a row pi."""

    has_own_bonus = True

    @abstractmethod
    def law(self, rows: Rows, num: int) -> Tensor:
        """pi (B, num, V) at the first ``num`` positions."""

    def residual(self, law: Tensor, p: Tensor, q: Tensor) -> Tensor:
        """``norm([pi - q]+)``, all (B, N, V)."""
        return residual_rows(law, q)

    def decide(self, view: RoundView) -> Verdict:
        num = view.regions.draft_ids.shape[1]
        own_bonus = view.own_bonus and num > 0
        law = self.law(view.rows, num + own_bonus)
        residual = self.residual(law[:, :num], view.rows.p[:, :num], view.drafted_q)
        return ratio_verdict(view, at_drafts(law, view), residual, law if own_bonus else None)


@dataclass(frozen=True, slots=True)
class Ensemble(FixedRule):
    """A mixture of target and draft."""

    weight: float
    name = "ensemble"

    @property
    def greedy(self) -> Greedy:
        return "random"

    def law(self, rows: Rows, num: int) -> Tensor:
        return self.weight * rows.p[:, :num] + (1.0 - self.weight) * rows.q[:, :num]

    def residual(self, law: Tensor, p: Tensor, q: Tensor) -> Tensor:
        # [pi - q]+ is weight [p - q]+: the same row, without the rounding of the mixture.
        return residual_rows(p, q)


INFOS = (
    RuleInfo(
        name="ensemble",
        summary="A mixture of both models. Can write what the target excludes, with 1 - weight at every mismatch.",
        formula="pi = weight p + (1 - weight) q",
        source="Fu et al., ICML 2025 (2502.01662)",
        greedy="random: a mismatch is accepted with probability 1 - weight",
        drafters="any; with one-hot q every draft is accepted with at least 1 - weight",
        make=Ensemble,
        parameters=(
            Parameter(
                "weight",
                0.9,
                "the target's share of the mixture",
                "survey's grid (2607.08690)",
                low=0.0,
                high=1.0,
                grid=(0.95, 0.9, 0.8),
            ),
        ),
        strict_point="ensemble:weight=1",
        relaxed_point="weight=0",
    ),
)
