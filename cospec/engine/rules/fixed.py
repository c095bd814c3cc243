"""Rules with one row pi in place of p, which does not depend on the proposed token: ensemble, contrastive.

Their one-step law is pi and their acceptance 1 - TV(q, pi). The law of the whole text is the product of pi's rows only
where the bonus token is drawn from pi too (`bonus: rule`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from cospec.engine.parameters import Parameter
from cospec.engine.rules.base import Greedy, RoundView, Verdict
from cospec.engine.rules.ratio import at_drafts, at_place, ratio_verdict
from cospec.engine.rules.rows import Rows
from cospec.engine.rules.spec import ParametricRule, RuleInfo
from cospec.engine.sampling import normalised


class FixedRule(ParametricRule):
    """Speculative sampling of a row pi."""

    has_own_bonus = True
    trusts_draft = True

    @abstractmethod
    def law(self, rows: Rows, num: int) -> Tensor:
        """pi (B, num, V) at the first ``num`` positions."""

    def excess(self, law: Tensor, rows: Rows, num: int) -> Tensor:
        """[pi - q]+ (B, num, V), up to a factor."""
        return (law - rows.q[:, :num]).clamp_min(0.0)

    def decide(self, view: RoundView) -> Verdict:
        num = view.regions.draft_ids.shape[1]
        if num == 0:
            # No row of the batch may be drafted for, and the drafter has no rows of its own to show.
            return Verdict(view.valid, view.valid.float())
        law = self.law(view.rows, num + view.own_bonus)

        def row_at(place: Tensor) -> Tensor:
            here = at_place(law, place)
            residual = normalised(self.excess(here[:, None], view.rows.at(place), 1)[:, 0], here)
            return torch.where((place < view.regions.num_positions)[:, None], residual, here)

        return ratio_verdict(view, at_drafts(law, view), row_at)


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

    def excess(self, law: Tensor, rows: Rows, num: int) -> Tensor:
        # [pi - q]+ is weight [p - q]+: without the rounding of the mixture.
        return (rows.p[:, :num] - rows.q[:, :num]).clamp_min(0.0)


@dataclass(frozen=True, slots=True)
class Contrastive(FixedRule):
    """The target's logits pushed away from the drafter's."""

    beta: float
    alpha: float
    name = "contrastive"
    default_bonus = "rule"

    @property
    def greedy(self) -> Greedy:
        return "gate" if self.alpha > 0 else "refused"

    def greedy_remedy(self) -> str:
        return "set alpha above 0 (the paper's gate), or "

    @property
    def needs_distribution(self) -> bool:
        return True

    @property
    def needs_draft_logits(self) -> bool:
        return True

    def law(self, rows: Rows, num: int) -> Tensor:
        target, draft = rows.logits[:, :num], rows.draft_logits[:, :num]
        # An id that a drafter never proposes, such as an EAGLE-3 head outside its vocabulary, is as one it likes least.
        draft = torch.maximum(draft, draft.masked_fill(draft == -torch.inf, torch.inf).amin(-1, keepdim=True))
        scores = (1.0 + self.beta) * target - self.beta * draft
        # A greedy row leaves one token: its gate is alpha's alone, at temperature 1, as there is none to divide by.
        allowed = (rows.p[:, :num] > 0) | rows.greedy
        if self.alpha > 0:
            tempered = rows.sampling.tempered(target)
            allowed &= tempered >= tempered.amax(-1, keepdim=True) + math.log(self.alpha)
        scores = rows.sampling.tempered(scores).masked_fill(~allowed, -torch.inf)
        best = torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).float()
        return torch.where(rows.greedy, best, scores.softmax(-1))


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
    RuleInfo(
        name="contrastive",
        summary="Speculative contrastive decoding: pushes the target away from the drafter, a knob for better text, "
        "not for speed.",
        formula="pi ~ exp(((1 + beta) z_p - beta z_q) / T) on the target's support; alpha > 0: there where "
        "p >= alpha max p",
        source="Yuan et al., ACL 2024 (2311.08981)",
        greedy="refused with alpha = 0, whose gate holds the argmax alone; alpha > 0: argmax of the contrastive score "
        "where p >= alpha max p at temperature 1",
        drafters="drafters with logits; the bonus costs one more draft step a round",
        make=Contrastive,
        parameters=(
            Parameter(
                "beta",
                0.5,
                "how far the target is pushed; acceptance usually falls with it",
                "survey's grid (2607.08690)",
                low=0.0,
                # Beyond it float32 has more rounding than logits.
                high=100.0,
                grid=(0.1, 0.5, 1.0),
            ),
            Parameter(
                "alpha",
                0.0,
                "0: all tokens the target's sampling leaves; else those of them with at least this share of its best",
                "survey's gate",
                low=0.0,
                high=1.0,
            ),
        ),
        strict_point="contrastive:beta=0",
    ),
)
