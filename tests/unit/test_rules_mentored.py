"""Mentored decoding's row against the conditions it is defined by, and against a slow solution by nested bisection."""

from __future__ import annotations

import math

import pytest
import torch
from rule_views import divergence, one_step, pairs, variation
from torch import Tensor

from cospec.engine.record import Sampling
from cospec.engine.rules.mentored import _solve, mentored_rows

SIZES = (2, 3, 5, 9)


def bisected(p: Tensor, q: Tensor, budget: float) -> tuple[Tensor, Tensor]:
    """pi (P, V) and alpha (P, 1) for rows without zeros whose KL(p || q) exceeds the budget."""
    low, high = torch.zeros(len(p), 1, dtype=p.dtype), torch.ones(len(p), 1, dtype=p.dtype)
    for _ in range(60):
        alpha = (low + high) / 2
        law = clipped(p, q, alpha)
        too_far = divergence(p, law)[:, None] > budget
        low, high = torch.where(too_far, alpha, low), torch.where(too_far, high, alpha)
    return clipped(p, q, high), high


def clipped(p: Tensor, q: Tensor, alpha: Tensor) -> Tensor:
    mass = (q - p / alpha).clamp_min(0).sum(-1, keepdim=True)
    low, high = torch.zeros_like(mass), torch.full_like(mass, 60.0)
    for _ in range(60):
        middle = (low + high) / 2
        too_much = (p / middle.exp() - q).clamp_min(0).sum(-1, keepdim=True) > mass
        low, high = torch.where(too_much, middle, low), torch.where(too_much, high, middle)
    return torch.maximum(p / high.exp(), torch.minimum(q, p / alpha))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("budget", [0.02, 0.1, 0.5])
def test_the_row_is_the_clip_whose_divergence_is_the_budget(size: int, budget: float) -> None:
    """Groups 1 and 6."""
    p, q = pairs(size, zeros=False)
    binding = divergence(p, q) > budget + 1e-3
    assert binding.any()
    for optimal in (False, True):
        law = mentored_rows(p, q, budget, optimal=optimal)
        assert (law >= 0).all()
        torch.testing.assert_close(law.sum(-1), torch.ones_like(law[:, 0]), atol=1e-9, rtol=0)
        assert torch.equal(law[divergence(p, q) <= budget], q[divergence(p, q) <= budget])
        slow, alpha = bisected(p[binding], q[binding], budget)
        torch.testing.assert_close(law[binding], slow, atol=1e-7, rtol=0)
        torch.testing.assert_close(divergence(p, law)[binding], torch.full_like(alpha[:, 0], budget), atol=1e-9, rtol=0)
        ratio = p[binding] / law[binding]
        assert (ratio >= alpha - 1e-7).all()
        # What is raised above q is raised to one ratio, beta, which no token exceeds.
        raised = law[binding] > q[binding] + 1e-9
        assert raised.any(1).all()
        beta = ratio.masked_fill(~raised, 0.0).amax(1, keepdim=True)
        assert (beta >= 1).all()
        assert (ratio <= beta + 1e-7).all()
        torch.testing.assert_close(ratio[raised], beta.expand_as(ratio)[raised], atol=1e-6, rtol=0)
        # As much acceptance as lenience with the same alpha, and no farther from p.
        lenient = torch.minimum(q[binding], p[binding] / alpha).sum(-1)
        torch.testing.assert_close(torch.minimum(q, law).sum(-1)[binding], lenient, atol=1e-7, rtol=0)
        assert (variation(law, p)[binding] <= 1 - alpha[:, 0] + 1e-7).all()


@pytest.mark.parametrize("form", ["published", "optimal"])
def test_the_rules_one_step_law_is_its_row(form: str) -> None:
    """Group 2."""
    for size in SIZES:
        step = one_step(f"mentored:budget=0.15,form={form}", *pairs(size))
        law = mentored_rows(step.p, step.q, 0.15, optimal=form == "optimal")
        torch.testing.assert_close(step.law, law, atol=2e-5, rtol=0)
        torch.testing.assert_close(step.acceptance, 1 - variation(step.q, law), atol=2e-5, rtol=0)


def test_tokens_that_the_target_excludes() -> None:
    """Groups 6 and 7: the published form never writes them unless q is within the budget; the optimal one may."""
    for size in SIZES[1:]:
        p, q = pairs(size)
        outside = (p == 0) & (q > 0)
        for budget in (0.05, 0.3):
            binding = divergence(p, q) > budget
            published, optimal = (mentored_rows(p, q, budget, optimal=optimal) for optimal in (False, True))
            assert (published[outside & binding[:, None]] == 0).all()
            assert (divergence(p, published) <= budget + 1e-9).all()
            assert (divergence(p, optimal)[binding] - budget).abs().max() < 1e-4
            assert (optimal[outside & binding[:, None]] > 0).any()
            for law in (published, optimal):
                torch.testing.assert_close(law.sum(-1), torch.ones_like(law[:, 0]), atol=1e-9, rtol=0)
            gained = torch.minimum(q, optimal).sum(-1) - torch.minimum(q, published).sum(-1)
            assert (gained > -1e-9).all()
            assert (gained > 1e-3).any()


def test_no_other_row_within_the_budget_is_accepted_more() -> None:
    p, q = pairs(4, num=10, zeros=False)
    best = torch.minimum(q, mentored_rows(p, q, 0.1)).sum(-1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(2000):
        share = torch.rand(10, 1, generator=generator, dtype=torch.float64)
        noise = torch.rand(10, 4, generator=generator, dtype=torch.float64) ** 3
        law = share * q + (1 - share) * noise / noise.sum(-1, keepdim=True)
        within = divergence(p, law) <= 0.1
        assert (torch.minimum(q, law).sum(-1)[within] <= best[within] + 1e-9).all()


def test_a_budget_that_holds_q_accepts_everything_and_none_is_strict() -> None:
    """Groups 4 and 5."""
    p, q = pairs(5, zeros=False)
    assert torch.equal(mentored_rows(p, q, 1e3), q)
    assert mentored_rows(p, q, 0.0) is p


def test_one_hot_drafts_are_accepted_as_far_as_the_budget_goes() -> None:
    """Group 11: p ln(p/r) + (1-p) ln((1-p)/(1-r)) = D."""
    for share, accepted in ((0.01, 0.128), (0.1, 0.282), (0.35, 0.572), (0.8, 0.935)):
        p = torch.tensor([[share, 1 - share]])
        step = one_step("mentored:budget=0.1", p, p, one_hot=True)
        r = step.accept[0, 0].item()
        assert r == pytest.approx(accepted, abs=6e-4)
        assert share * math.log(share / r) + (1 - share) * math.log((1 - share) / (1 - r)) == pytest.approx(
            0.1, abs=1e-5
        )


def test_at_temperature_0_the_optimal_form_draws_and_the_published_one_is_strict() -> None:
    """Group 14."""
    p, q = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[0.1, 0.8, 0.1]])
    step = one_step("mentored:budget=0.1,form=optimal", p, q, sampling=Sampling())
    assert step.accept[0, 1].item() == pytest.approx(1 - math.exp(-0.1), abs=1e-6)
    assert one_step("mentored:budget=0.1", p, q, sampling=Sampling()).accept[0, 1].item() == 0


def test_rows_of_a_real_vocabularys_size_are_solved_in_float32() -> None:
    generator = torch.Generator().manual_seed(0)
    p, q = ((3 * torch.randn(2, 3, 20000, generator=generator)).softmax(-1) for _ in range(2))
    law = mentored_rows(p, q, 0.1)
    assert law.dtype == torch.float32
    assert law.shape == p.shape
    torch.testing.assert_close(law.sum(-1), torch.ones(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(
        divergence(p.double(), law.double()), torch.full((2, 3), 0.1).double(), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("optimal", [False, True])
@pytest.mark.parametrize("budget", [0.02, 0.3, 50.0])
def test_tokens_that_sampling_cuts_off_change_nothing(budget: float, *, optimal: bool) -> None:
    # Rows of few tokens, some of one model alone, spread over many places that neither has.
    p, q = pairs(4, zeros=True)
    generator = torch.Generator().manual_seed(1)
    places = torch.rand(len(p), 40, generator=generator).argsort(-1)[:, :4].sort(-1).values
    wide_p, wide_q = (row.new_zeros(len(row), 40).scatter_(-1, places, row) for row in (p, q))
    few = mentored_rows(p, q, budget, optimal=optimal)
    wide = mentored_rows(wide_p, wide_q, budget, optimal=optimal)
    assert torch.equal(wide.gather(-1, places), few)
    assert torch.equal(wide.count_nonzero(-1), few.count_nonzero(-1))
    # As on a device where all tokens are sorted, and beside a row that has more tokens.
    assert torch.equal(_solve(wide_p, wide_q, budget, optimal=optimal), wide)
    for num in (5, 9, 30):
        flat = torch.zeros(1, 40, dtype=p.dtype)
        flat[:, :num] = 1 / num
        beside = mentored_rows(torch.cat([wide_p, flat]), torch.cat([wide_q, flat.flip(-1)]), budget, optimal=optimal)
        assert torch.equal(beside[:-1], wide)
