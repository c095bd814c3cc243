"""Mentored decoding (Tran-Thien 2023): the most acceptance for a budget of KL(p || pi)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cospec.engine.parameters import Parameter
from cospec.engine.rules.base import Greedy
from cospec.engine.rules.fixed import FixedRule
from cospec.engine.rules.rows import Rows
from cospec.engine.rules.spec import RuleInfo

#: The rejected mass is sought on a grid of its bracket, that many times: to float64's last bit where it is not tiny.
_STEPS = 10
_GRID = 64


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
    all_p, all_q = p.reshape(-1, p.shape[-1]), q.reshape(-1, q.shape[-1])
    # Sampling leaves few tokens of many. A GPU would have to wait to know how many, and sorts all of them as fast.
    places = _possible(all_p, all_q) if p.device.type == "cpu" else None
    if places is None:
        found = _solve(all_p, all_q, budget, optimal=optimal)
    else:
        few = _solve(all_p.gather(-1, places), all_q.gather(-1, places), budget, optimal=optimal)
        found = torch.zeros_like(all_p).scatter_(-1, places, few)
    return found.reshape(p.shape)


def _possible(p: Tensor, q: Tensor) -> Tensor | None:
    """(R, M): where p or q (R, V) is not 0, ascending, with other places in rows that have fewer; None for large M."""
    possible = (p > 0) | (q > 0)
    most = int(possible.sum(-1).max()) if len(p) else 0
    return possible.byte().topk(most).indices.sort(-1).values if 0 < 4 * most < p.shape[-1] else None


def _solve(p: Tensor, q: Tensor, budget: float, *, optimal: bool) -> Tensor:
    """pi (R, V) for p and q (R, V)."""
    clip = _Clip(p, q)
    low = torch.zeros_like(clip.excluded) if optimal else clip.excluded
    high = torch.maximum(clip.distance, low)
    # Few wide steps: a GPU pays for the number of kernels, not for their width.
    shares = torch.arange(1, _GRID, dtype=low.dtype, device=low.device) / _GRID
    for _ in range(_STEPS):
        inside = low + (high - low) * shares
        num_far = (clip.bounds(inside)[2] > budget).sum(-1, keepdim=True)
        masses = torch.cat([low, inside, high], dim=-1)
        low, high = masses.gather(-1, num_far), masses.gather(-1, num_far + 1)
    return torch.where(clip.divergence <= budget, clip.q, clip.rows(high)).to(p.dtype)


class _Clip:
    """The clipped rows of p and q (R, V) as a function of the mass (R, M) that is rejected.

    Both bounds follow from it in closed form between two neighbouring ratios p/q, so that one sort serves all. Tokens
    that neither has change no bit, wherever they stand.
    """

    def __init__(self, p: Tensor, q: Tensor) -> None:
        # Ratios are as exact as the rows are, sums are in float64.
        ratio, order = (p / q).where((p > 0) | (q > 0), 0.0).sort(dim=-1, stable=True)
        self.p, self.q, ratio = p.double(), q.double(), ratio.double()
        # Sums over the tokens in front of each place, by ascending ratio.
        ordered_p = self.p.gather(-1, order)
        self.p_sum, self.q_sum = _sums(ordered_p), _sums(self.q.gather(-1, order))
        self.kl_sum = _sums(torch.xlogy(ordered_p, ratio.masked_fill(ratio == torch.inf, 1.0)))
        #: KL(p || q) (R, 1).
        self.divergence = self.kl_sum[:, -1:].masked_fill(ratio[:, -1:] == torch.inf, torch.inf)
        self.excluded = _sums(self.q.where(p == 0, 0.0))[:, -1:]
        self.distance = _sums((self.q - self.p).clamp_min(0.0))[:, -1:]
        # What is rejected if alpha is at a token's ratio, and what is gained if beta is; rounding must not break order.
        rejected = self.q_sum[:, 1:] - self.p_sum[:, 1:] / ratio
        self._rejected = rejected.where(ratio > 0, self.excluded).cummax(-1).values
        above_p, above_q = self.p_sum[:, -1:] - self.p_sum[:, :-1], self.q_sum[:, -1:] - self.q_sum[:, :-1]
        gained = (above_p / ratio - above_q).where(ratio > 0, torch.inf)
        self._gained = gained.flip(-1).cummax(-1).values

    def bounds(self, mass: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """alpha, beta and KL(p || pi), all (R, M)."""
        num_low = torch.searchsorted(self._rejected, mass, right=True)
        num_high = torch.searchsorted(self._gained, mass, right=True)
        first_high = self.p.shape[-1] - num_high
        low_p, low_q = self.p_sum.gather(-1, num_low), self.q_sum.gather(-1, num_low)
        high_p = self.p_sum[:, -1:] - self.p_sum.gather(-1, first_high)
        high_q = self.q_sum[:, -1:] - self.q_sum.gather(-1, first_high)
        alpha = (low_p / (low_q - mass)).where((low_p > 0) & (mass >= self.excluded), 0.0)
        beta = high_p / (mass + high_q)
        middle = self.kl_sum.gather(-1, first_high) - self.kl_sum.gather(-1, num_low)
        return alpha, beta, torch.xlogy(low_p, alpha) + middle + torch.xlogy(high_p, beta)

    def rows(self, mass: Tensor) -> Tensor:
        """pi (R, V) for one mass (R, 1) a row."""
        alpha, beta, _ = self.bounds(mass)
        share = (1.0 - mass / self.excluded).clamp_min(0.0).where(self.excluded > 0, 0.0)
        upper = (self.p / alpha).where(self.p > 0, share * self.q)
        return torch.maximum(self.p / beta, torch.minimum(self.q, upper))


def _sums(values: Tensor) -> Tensor:
    """(R, V + 1): the sum of the values in front of each place."""
    sums = values.new_zeros(values.shape[0], values.shape[1] + 1)
    torch.cumsum(values, -1, out=sums[:, 1:])
    return sums


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
