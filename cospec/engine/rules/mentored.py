"""Mentored decoding (Tran-Thien 2023): the most acceptance for a budget of KL(p || pi)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cospec.engine.parameters import Parameter
from cospec.engine.rules.base import Greedy
from cospec.engine.rules.fixed import FixedRule
from cospec.engine.rules.gated import kl_divergence
from cospec.engine.rules.rows import Rows
from cospec.engine.rules.spec import RuleInfo

#: Halvings of the rejected mass, in float64: to the last bit where it is not tiny.
_STEPS = 60


@dataclass(frozen=True, slots=True)
class Mentored(FixedRule):
    """q, clipped into [p / beta, p / alpha] so that KL(p || pi) is the budget."""

    budget: float
    form: str
    name = "mentored"
    trusts_draft = False

    @property
    def greedy(self) -> Greedy:
        return "random" if self.form == "optimal" else "strict"

    def law(self, rows: Rows, num: int) -> Tensor:
        return mentored_rows(rows.p[:, :num], rows.q[:, :num], self.budget, optimal=self.form == "optimal")


def mentored_rows(p: Tensor, q: Tensor, budget: float, *, optimal: bool = False) -> Tensor:
    """pi (..., V) with the most ``sum min(q, pi)`` under KL(p || pi) <= ``budget``.

    ``optimal`` lets tokens that p excludes have a share, as the budget does not count them; otherwise they have none
    unless q as a whole is within the budget.
    """
    if budget == 0.0:
        return p
    p64, q64 = p.double().reshape(-1, p.shape[-1]), q.double().reshape(-1, q.shape[-1])
    clip = _Clip(p64, q64)
    low = torch.zeros_like(clip.excluded) if optimal else clip.excluded
    high = torch.maximum(clip.distance, low)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        too_far = clip.bounds(middle)[2] > budget
        low, high = torch.where(too_far, middle, low), torch.where(too_far, high, middle)
    rows = torch.where(kl_divergence(p64, q64) <= budget, q64, clip.rows(high))
    return rows.reshape(p.shape).to(p.dtype)


class _Clip:
    """The clipped rows of p and q (R, V) as a function of the mass (R, 1) that is rejected.

    Both bounds follow from it in closed form between two neighbouring ratios p/q, so that one sort serves all.
    """

    def __init__(self, p: Tensor, q: Tensor) -> None:
        self.p, self.q = p, q
        ratio = (p / q).where((p > 0) | (q > 0), 0.0)
        self.ratio, order = ratio.sort(-1)
        kl = (torch.xlogy(p, p) - torch.xlogy(p, q)).where((p > 0) & (q > 0), 0.0)
        # Sums over the tokens in front of each place, by ascending ratio.
        self.p_sum, self.q_sum, self.kl_sum = (_sums(row.gather(-1, order)) for row in (p, q, kl))
        self.excluded = q.where(p == 0, 0.0).sum(-1, keepdim=True)
        self.distance = (q - p).clamp_min(0.0).sum(-1, keepdim=True)
        # What is rejected if alpha is at a token's ratio, and what is gained if beta is; rounding must not break order.
        rejected = self.q_sum[:, 1:] - self.p_sum[:, 1:] / self.ratio
        self._rejected = rejected.where(self.ratio > 0, self.excluded).cummax(-1).values
        above_p, above_q = self.p_sum[:, -1:] - self.p_sum[:, :-1], self.q_sum[:, -1:] - self.q_sum[:, :-1]
        gained = (above_p / self.ratio - above_q).where(self.ratio > 0, torch.inf)
        self._gained = gained.flip(-1).cummax(-1).values

    def bounds(self, mass: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """alpha, beta and KL(p || pi), all (R, 1)."""
        num_low = torch.searchsorted(self._rejected, mass, right=True)
        num_high = torch.searchsorted(self._gained, mass, right=True)
        first_high = self.ratio.shape[-1] - num_high
        low_p, low_q = self.p_sum.gather(-1, num_low), self.q_sum.gather(-1, num_low)
        high_p = self.p_sum[:, -1:] - self.p_sum.gather(-1, first_high)
        high_q = self.q_sum[:, -1:] - self.q_sum.gather(-1, first_high)
        alpha = (low_p / (low_q - mass)).where((low_p > 0) & (mass >= self.excluded), 0.0)
        beta = high_p / (mass + high_q)
        middle = self.kl_sum.gather(-1, first_high) - self.kl_sum.gather(-1, num_low)
        return alpha, beta, torch.xlogy(low_p, alpha) + middle + torch.xlogy(high_p, beta)

    def rows(self, mass: Tensor) -> Tensor:
        """pi (R, V)."""
        alpha, beta, _ = self.bounds(mass)
        share = (1.0 - mass / self.excluded).clamp_min(0.0).where(self.excluded > 0, 0.0)
        upper = (self.p / alpha).where(self.p > 0, share * self.q)
        return torch.maximum(self.p / beta, torch.minimum(self.q, upper))


def _sums(values: Tensor) -> Tensor:
    """(R, V + 1): the sum of the values in front of each place."""
    return torch.nn.functional.pad(values.cumsum(-1), (1, 0))


INFOS = (
    RuleInfo(
        name="mentored",
        summary="The most acceptance within a KL budget; q's confidence plays no part.",
        formula="pi = q clipped into [p / beta, p / alpha], KL(p || pi) = budget; pi = q where KL(p || q) <= budget",
        source="Tran-Thien 2023 (blog and proof; 2609.30474 for other divergences)",
        greedy="strict (form=published: a token of target probability 0 has no share); form=optimal is random: a "
        "mismatch is accepted with probability 1 - exp(-budget)",
        drafters="any; also one-hot",
        make=Mentored,
        parameters=(
            Parameter(
                "budget",
                0.1,
                "KL(p || pi) in nats",
                "the author's experiments, 0.1 to 0.2",
                low=0.0,
                grid=(0.05, 0.1, 0.2),
            ),
            Parameter(
                "form",
                "published",
                "published: the formulas as printed; optimal: tokens that p excludes share what the budget leaves them",
                "blog",
                kind="choice",
                choices=("published", "optimal"),
            ),
        ),
        strict_point="mentored:budget=0",
        relaxed_point="budget >= KL(p || q)",
    ),
)
