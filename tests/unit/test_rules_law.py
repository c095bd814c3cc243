"""The law of every relaxed rule by exact enumeration of one position: rows of 2 to 9 tokens with zeros, no noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from rule_views import OneStep, divergence, logits_of, one_step, pairs, variation, view_of
from torch import Tensor

from cospec.engine import sampling as sampling_module
from cospec.engine.record import Sampling
from cospec.engine.rules import RULES, rule_named
from cospec.engine.rules import fixed as fixed_module
from cospec.engine.rules.fixed import FixedRule
from cospec.engine.rules.gated import GateRows
from cospec.engine.rules.proposal import raised_row, raised_share
from cospec.engine.sampling import normalised

SIZES = (2, 3, 5, 9)
EXACT = {"atol": 3e-6, "rtol": 0}
LN2 = math.log(2)


def js(p: Tensor, q: Tensor) -> Tensor:
    middle = (p + q) / 2
    return (divergence(p, middle) + divergence(q, middle)) / 2


def by_row(gate: Tensor, p: Tensor, q: Tensor) -> Tensor:
    """q where the gate passes, else p."""
    return torch.where(gate[:, None], q, p)


def by_token(accepted: Tensor, p: Tensor, q: Tensor) -> Tensor:
    taken = torch.where(accepted, q, 0.0)
    return taken + (1 - taken.sum(-1, keepdim=True)) * p


def top(rows: Tensor) -> Tensor:
    return rows.amax(-1)


#: pi of every rule that has one, from rules' definitions: of the rows in use, p and q, and those a gate looks at.
LAWS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "ensemble:weight=0.7": lambda p, q, gate_p, gate_q: 0.7 * p + 0.3 * q,
    "r_fuzzy:threshold=0.2": lambda p, q, gate_p, gate_q: by_row(js(gate_p, gate_q) <= 0.2, p, q),
    "r_fuzzy:threshold=0.4,rows=raw": lambda p, q, gate_p, gate_q: by_row(js(gate_p, gate_q) <= 0.4, p, q),
    "cascade_chow:alpha=0.4": lambda p, q, gate_p, gate_q: by_row(top(gate_q) >= 0.6, p, q),
    "cascade_diff:alpha=0.1": lambda p, q, gate_p, gate_q: by_row(top(gate_q) >= top(gate_p) - 0.1, p, q),
    "cascade_opt:alpha=-0.2": lambda p, q, gate_p, gate_q: by_row(
        top(gate_q) >= top(gate_p) + 0.2 * variation(p, q), p, q
    ),
    # So large that rows cut by sampling, whose distance is another, fall otherwise than raw ones.
    "cascade_opt:alpha=0.8": lambda p, q, gate_p, gate_q: by_row(
        top(gate_q) >= top(gate_p) - 0.8 * variation(p, q), p, q
    ),
    "cascade_opt:alpha=0.3,rows=processed": lambda p, q, gate_p, gate_q: by_row(
        top(gate_q) >= top(gate_p) - 0.3 * variation(p, q), p, q
    ),
    "cascade_v1:alpha=0.2": lambda p, q, gate_p, gate_q: by_token(gate_q >= top(gate_p)[:, None] - 0.2, p, q),
    "cascade_v2:alpha=0.2": lambda p, q, gate_p, gate_q: by_token(gate_p >= top(gate_p)[:, None] - 0.2, p, q),
    "cascade_v3:alpha=0.35": lambda p, q, gate_p, gate_q: by_token(gate_p >= 0.65 * top(gate_p)[:, None], p, q),
    "cascade_v3:alpha=0": lambda p, q, gate_p, gate_q: by_token(gate_p >= top(gate_p)[:, None], p, q),
}


def with_rows(spec: str) -> list[str]:
    """The spec, and where its rule has a gate and does not say of which rows, those with either kind."""
    gate = isinstance(rule_named(spec), GateRows) and "rows=" not in spec
    return [f"{spec},rows={rows}" for rows in ("raw", "processed")] if gate else [spec]


def raw(rows: Tensor) -> Tensor:
    """Given rows as models' softmax at temperature 1 has them."""
    return logits_of(rows).softmax(-1).double()


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.6, top_p=0.8)], ids=["whole", "cut"])
@pytest.mark.parametrize("spec", [spec for law in LAWS for spec in with_rows(law)])
@pytest.mark.parametrize("size", SIZES)
def test_the_one_step_law_is_pi_and_acceptance_its_overlap_with_q(spec: str, size: int, sampling: Sampling) -> None:
    """Groups 1 and 2."""
    p, q = pairs(size)
    step = one_step(spec, p, q, sampling=sampling)
    # Pi of the rows in use: a gate next to its threshold must not fall otherwise by float32's rounding.
    gates = (raw(p), raw(q)) if "rows=raw" in rule_named(spec).spec else (step.p, step.q)
    law = next(LAWS[name] for name in LAWS if spec in with_rows(name))(step.p, step.q, *gates)
    torch.testing.assert_close(step.law, law, **EXACT)
    torch.testing.assert_close(step.acceptance, 1 - variation(step.q, law), **EXACT)


@pytest.mark.parametrize("spec", [*LAWS, "contrastive", "mentored", "mentored:form=optimal"])
def test_pi_is_a_row_of_probabilities(spec: str) -> None:
    """Group 1."""
    rule = rule_named(spec)
    assert isinstance(rule, FixedRule)
    for size in SIZES:
        for sampling in (Sampling(1.0), Sampling(0.6, top_p=0.8)):
            p, q = (rows[:, None] for rows in pairs(size, seed=9))
            law = rule.law(view_of(p, q, torch.zeros(len(p), 1, dtype=torch.long), sampling=sampling).rows, 1)
            assert (law >= 0).all()
            torch.testing.assert_close(law.sum(-1), torch.ones(len(p), 1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("delta", [0.0, 0.1, 0.75, 10.0, 1e6])
def test_the_row_that_cactus_raises_is_one_of_probabilities(delta: float) -> None:
    """Group 1: H_x, for every x."""
    for size in SIZES:
        p, _ = pairs(size, seed=9)
        for x in range(size):
            ids = torch.full((len(p), 1), x)
            raised = raised_row(p, ids, raised_share(p.gather(1, ids), delta))
            assert (raised >= 0).all()
            torch.testing.assert_close(raised.sum(-1), torch.ones(len(p)).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("beta", [0.1, 0.5, 1.0])
def test_contrastive_is_a_product_of_powers_on_its_gate(size: int, beta: float) -> None:
    p, q = pairs(size, zeros=False)
    for spec, gate in (
        (f"contrastive:beta={beta}", torch.ones_like(p, dtype=torch.bool)),
        (f"contrastive:beta={beta},alpha=0.3", p >= 0.3 * top(p)[:, None]),
    ):
        weights = torch.where(gate, p ** (1 + beta) * q**-beta, 0.0)
        law = weights / weights.sum(-1, keepdim=True)
        step = one_step(spec, p, q)
        torch.testing.assert_close(step.law, law, atol=1e-5, rtol=0)
        torch.testing.assert_close(step.acceptance, 1 - variation(step.q, law), atol=1e-5, rtol=0)


@pytest.mark.parametrize("alpha", [0.0, 0.05, 0.4])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(1.0, top_k=2), Sampling(1.0, top_p=0.7), Sampling(1.0, min_p=0.2), Sampling(0.5, top_p=0.9)],
    ids=str,
)
def test_contrastive_keeps_to_what_the_targets_sampling_leaves_whatever_its_own_gate(
    sampling: Sampling, alpha: float
) -> None:
    """Group 7."""
    for size in SIZES[1:]:
        p, q = pairs(size, zeros=False)
        step = one_step(f"contrastive:beta=0.5,alpha={alpha}", p, q, sampling=sampling)
        left = step.p > 0
        assert (~left).any()
        # Its gate too is at the temperature in use.
        tempered = p ** (1 / sampling.temperature)
        gate = left & (tempered >= alpha * top(tempered)[:, None])
        weights = torch.where(gate, (p**1.5 * q**-0.5) ** (1 / sampling.temperature), 0.0)
        torch.testing.assert_close(step.law, weights / weights.sum(-1, keepdim=True), atol=1e-5, rtol=0)
        assert (step.law[~left] == 0).all()


def test_contrastive_takes_what_the_drafter_excludes_for_what_it_likes_least() -> None:
    """Zeros of q in its logits, as of an EAGLE-3 head outside its vocabulary; all others of p's support count."""
    for size in SIZES[1:]:
        p, q = pairs(size, seed=7)
        least = q.masked_fill(q == 0, 1.0).amin(-1, keepdim=True)
        weights = torch.where(p > 0, p**1.5 * torch.maximum(q, least) ** -0.5, 0.0)
        step = one_step("contrastive:beta=0.5", p, q, excluded=True)
        torch.testing.assert_close(step.law, weights / weights.sum(-1, keepdim=True), atol=1e-5, rtol=0)
        assert ((q == 0) & (step.law > 0)).any()


# ---- proposal-dependent ------------------------------------------------------------------------------------------


def raised_law(p: Tensor, q: Tensor, gamma: Tensor) -> Tensor:
    """CACTUS' law, draft by draft."""
    law = torch.minimum(q, gamma)
    for x in range(p.shape[-1]):
        rest = torch.where(p[:, x] < 1, (1 - gamma[:, x]) / (1 - p[:, x]), 1.0)
        h = p * rest[:, None]
        h[:, x] = gamma[:, x]
        excess = (h - q).clamp_min(0)
        mass = excess.sum(-1, keepdim=True)
        law += (q - gamma)[:, x].clamp_min(0)[:, None] * torch.where(mass > 0, excess / mass, p)
    return law


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("delta", [0.0, 0.1, 0.75, 10.0])
def test_cactus_has_its_closed_form(size: int, delta: float) -> None:
    """Groups 3, 6 and 7."""
    step = one_step(f"cactus:delta={delta}", *pairs(size))
    p, q = step.p, step.q
    gamma = torch.clamp(p + (2 * delta * p * (1 - p).clamp_min(0)).sqrt(), max=1.0)
    torch.testing.assert_close(raised_share(p, delta), gamma)
    assert (gamma >= p).all()
    torch.testing.assert_close(step.law, raised_law(p, q, gamma), atol=3e-5, rtol=0)
    torch.testing.assert_close(step.acceptance, torch.minimum(q, gamma).sum(-1), atol=3e-5, rtol=0)
    formula = torch.where(q > p, torch.minimum(q, gamma) - p, 0.0).sum(-1)
    torch.testing.assert_close(variation(step.law, p), formula, atol=3e-5, rtol=0)
    assert (step.law[p == 0] <= 3e-6).all()
    # KL(H_x || p) keeps within the budget where gamma is at most a half, and need not beyond.
    kl = gamma * (gamma / p).log() + torch.xlogy(1 - gamma, (1 - gamma) / (1 - p))
    assert (kl[(gamma <= 0.5) & (p > 0)] <= delta + 1e-9).all()
    beyond = raised_share(torch.tensor(0.8, dtype=torch.float64), 0.1)
    assert beyond * (beyond / 0.8).log() + (1 - beyond) * ((1 - beyond) / 0.2).log() > 0.14


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 0.95])
def test_lenience_has_its_closed_form_and_bounds(size: int, alpha: float) -> None:
    """Groups 3, 6 and 7."""
    step = one_step(f"lenience:alpha={alpha}", *pairs(size))
    p, q = step.p, step.q
    raised = p / (1 - alpha)
    accept = torch.minimum(q, raised).sum(-1)
    excess = (p - q).clamp_min(0)
    law = torch.minimum(q, raised) + ((1 - accept) / excess.sum(-1).clamp_min(1e-12))[:, None] * excess
    torch.testing.assert_close(step.acceptance, accept, **EXACT)
    torch.testing.assert_close(step.law, law, **EXACT)
    distance = variation(step.law, p)
    torch.testing.assert_close(distance, torch.where(q > p, torch.minimum(q, raised) - p, 0.0).sum(-1), **EXACT)
    assert (step.law <= raised + 3e-6).all()
    assert (distance <= torch.minimum(torch.tensor(alpha), variation(p, q)) + 3e-6).all()
    assert (step.law[p == 0] <= 3e-6).all()


@pytest.mark.parametrize("size", SIZES)
def test_tok_lt_accepts_the_head_for_sure_and_the_rest_strictly(size: int) -> None:
    step = one_step("tok_lt:alpha=0.4", *pairs(size))
    head = step.p >= 0.6 * top(step.p)[:, None]
    # Up to rounding: an entry next to the border may fall either way.
    clear = ((step.p - 0.6 * top(step.p)[:, None]).abs() > 1e-6) & (step.q > 0)
    strict = (step.p / step.q).clamp_max(1)
    expected = torch.where(head, 1.0, strict)
    torch.testing.assert_close(step.accept[clear], expected[clear], atol=1e-5, rtol=0)
    assert one_step("tok_lt:alpha=1", *pairs(size)).accept.min() == 1


# ---- bounds, limits ----------------------------------------------------------------------------------------------


def test_bounds_of_ensemble_and_token_cascades() -> None:
    """Group 6."""
    for size in SIZES:
        p, q = pairs(size, seed=1)
        for weight in (0.0, 0.4, 0.9, 1.0):
            step = one_step(f"ensemble:weight={weight}", p, q)
            torch.testing.assert_close(variation(step.law, step.p), (1 - weight) * variation(step.p, step.q), **EXACT)
            torch.testing.assert_close(step.acceptance, 1 - weight * variation(step.p, step.q), **EXACT)
        for spec in ("cascade_v1:alpha=0.3", "cascade_v2:alpha=0.3", "cascade_v3:alpha=0.3"):
            step = one_step(spec, p, q)
            accepted = {
                "cascade_v1": step.q >= top(step.p)[:, None] - 0.3,
                "cascade_v2": step.p >= top(step.p)[:, None] - 0.3,
                "cascade_v3": step.p >= 0.7 * top(step.p)[:, None],
            }[spec.partition(":")[0]]
            share = torch.where(accepted, step.q, 0.0).sum(-1)
            assert (variation(step.law, step.p) <= share + 3e-6).all()
            assert (step.acceptance >= share - 3e-6).all()


STRICT_POINTS = [info.strict_point for info in RULES.values() if info.make and info.strict_point and info.parameters]


@pytest.mark.parametrize("spec", [spec for spec in STRICT_POINTS if not spec.startswith("fly")])
def test_at_its_strict_point_a_rule_decides_with_stricts_own_numbers(spec: str) -> None:
    """Group 4, rows: accept shares and residuals are those of p to the last bit."""
    for size in SIZES:
        for sampling in (Sampling(1.0), Sampling(0.7, top_k=3), Sampling(1.3, top_p=0.8)):
            p, q = pairs(size, num=20, seed=2)
            found, strict = (one_step(each, p, q, sampling=sampling) for each in (spec, "ensemble:weight=1"))
            assert torch.equal(found.accept[found.q > 0], strict.accept[strict.q > 0])
            rejects = (strict.accept < 1) & (strict.q > 0)
            assert torch.equal(found.residual[rejects], strict.residual[rejects])
            torch.testing.assert_close(strict.law, strict.p, **EXACT)


def test_every_rule_with_a_limit_states_it() -> None:
    without = {info.name for info in RULES.values() if info.strict_point is None}
    assert without == {"always", "fuzzy", "typical", "top_k", "trt_relaxed", "aasd"}


def test_what_is_said_to_be_strict_and_is_not() -> None:
    """Group 4, negative: V3 at alpha 0 sharpens, and fuzzy at threshold 0 never accepts."""
    p, q = torch.tensor([[0.6, 0.3, 0.1]]), torch.tensor([[0.5, 0.1, 0.4]])
    sharpened = one_step("cascade_v3:alpha=0", p, q)
    assert variation(sharpened.law, sharpened.p).item() > 0.1
    fuzzy, strict = one_step("fuzzy:threshold=0", p, q), one_step("ensemble:weight=1", p, q)
    torch.testing.assert_close(fuzzy.law, fuzzy.p, **EXACT)
    assert fuzzy.acceptance.item() == 0 < strict.acceptance.item()


ALWAYS = (
    "ensemble:weight=0",
    "cascade_opt:alpha=inf",
    "cascade_chow:alpha=1",
    "cascade_diff:alpha=1",
    "cascade_v1:alpha=1",
    "cascade_v2:alpha=1",
    "cascade_v3:alpha=1",
    "r_fuzzy:threshold=0.7",
    "fuzzy:threshold=0.7",
    "tok_lt:alpha=1",
)


@pytest.mark.parametrize("spec", ALWAYS)
def test_at_its_other_end_a_rule_accepts_everything(spec: str) -> None:
    """Group 5."""
    for size in SIZES:
        p, q = pairs(size)
        found = one_step(spec, p, q)
        assert (found.accept[found.q > 0] == 1).all()


def test_lenience_and_cactus_accept_everything_on_the_targets_support_alone() -> None:
    """Groups 5 and 7."""
    for size in SIZES[1:]:
        for spec in ("lenience:alpha=0.99999999", "cactus:delta=1e6"):
            step = one_step(spec, *pairs(size))
            likely = (step.q > 0) & (step.p > 1e-6)
            assert (step.accept[likely] == 1).all()
            outside = (step.q > 0) & (step.p == 0)
            assert outside.any()
            assert (step.accept[outside] == 0).all()


def test_who_can_write_what_the_target_excludes() -> None:
    """Group 7: token 2 is likely for the drafter and cut from the target by top-k."""
    p, q = torch.tensor([[0.5, 0.3, 0.2]]), torch.tensor([[0.1, 0.2, 0.7]])
    sampling = Sampling(1.0, top_k=2)

    def outside(spec: str) -> float:
        view = one_step(spec, p, q, sampling=sampling)
        assert view.p[0, 2] == 0
        return float(view.q[0, 2] * view.accept[0, 2] + (view.q[0] * (1 - view.accept[0])) @ view.residual[0, :, 2])

    # The drafter's own top-k keeps tokens 1 and 2.
    for spec in ("cactus", "lenience", "mentored", "contrastive", "cactus:delta=10", "lenience:alpha=0.95"):
        assert outside(spec) == 0, spec
    for spec in ("ensemble", "r_fuzzy:threshold=0.69", "cascade_opt:alpha=0", "cascade_v3:alpha=0.7"):
        assert outside(spec) > 0, spec


RESIDUAL_RULES = [
    *LAWS,
    "cactus",
    "lenience",
    "tok_lt",
    "mentored",
    "mentored:form=optimal",
    "contrastive",
]


@pytest.mark.parametrize("spec", RESIDUAL_RULES)
def test_a_rejection_never_writes_the_rejected_token_and_always_has_something_to_write(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Group 8: behind a rejection there is mass to draw from, before it is normalised."""
    masses: list[Tensor] = []

    def noted(excess: Tensor, instead: Tensor) -> Tensor:
        masses.append(excess.sum(-1))
        return normalised(excess, instead)

    for module in (sampling_module, fixed_module):
        monkeypatch.setattr(module, "normalised", noted)
    for size in SIZES:
        step = one_step(spec, *pairs(size, seed=3, zeros=spec != "contrastive"))
        rejects = (step.q > 0) & (step.accept < 1 - 1e-6)
        assert rejects.any()
        itself = step.residual.diagonal(dim1=1, dim2=2)
        assert (itself[rejects] == 0).all()
        assert (masses.pop().reshape(rejects.shape)[rejects] > 0).all()
        assert not masses


def test_equal_rows_are_accepted_but_for_the_rules_that_sharpen() -> None:
    """Group 8."""
    for size in SIZES:
        p, _ = pairs(size)
        for spec in (*RESIDUAL_RULES, "fuzzy"):
            step = one_step(spec, p, p)
            low = step.accept[step.q > 0].min().item()
            if not spec.startswith("cascade_v"):
                assert low > 1 - 1e-5, spec
    third = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
    step = one_step("cascade_v3:alpha=0", third, third)
    torch.testing.assert_close(step.law[0], torch.tensor([0.84, 0.12, 0.04], dtype=torch.float64), **EXACT)
    assert step.acceptance.item() == pytest.approx(0.76, abs=1e-5)
    assert one_step("fuzzy:threshold=0", third, third).acceptance.item() == 0
    assert one_step("typical:epsilon=1,delta=1", third, third).acceptance.item() < 1
    assert one_step("top_k:k=1", third, third).acceptance.item() == pytest.approx(0.6)


MORE_RELAXED = {
    "cactus:delta={}": (0, 0.1, 0.5, 2),
    "lenience:alpha={}": (0, 0.3, 0.7, 0.95),
    "cascade_opt:alpha={}": (-1, -0.1, 0, 0.3, 1),
    "cascade_diff:alpha={}": (-1, -0.2, 0, 0.4, 1),
    "cascade_chow:alpha={}": (0, 0.2, 0.5, 1),
    "mentored:budget={}": (0, 0.05, 0.2, 1),
    "mentored:form=optimal,budget={}": (0, 0.05, 0.2, 1),
    "r_fuzzy:threshold={}": (-1, 0.05, 0.3, 0.7),
    "fuzzy:threshold={}": (0, 0.1, 0.3, 0.7),
    "ensemble:weight={}": (1, 0.9, 0.5, 0),
    "tok_lt:alpha={}": (-1, 0, 0.3, 1),
    "top_k:k={}": (1, 2, 4),
    "trt_relaxed:delta={}": (0, 0.2, 0.6),
    "typical:delta=0.3,epsilon={}": (0.5, 0.09, 0.01),
}


@pytest.mark.parametrize("spec", MORE_RELAXED)
def test_acceptance_never_falls_along_a_knob(spec: str) -> None:
    """Group 9."""
    for size in SIZES:
        found = [one_step(spec.format(value), *pairs(size, seed=4)).acceptance for value in MORE_RELAXED[spec]]
        for less, more in itertools.pairwise(found):
            assert (more >= less - 1e-5).all()
        assert (found[-1] > found[0] + 1e-3).any()


def test_acceptance_can_fall_along_contrastives_and_v3s_knobs() -> None:
    """Group 9, negative."""
    p, q = pairs(5, zeros=False, num=200)
    for low, high in (("contrastive:beta=0", "contrastive:beta=1"), ("cascade_v3:alpha=0", "cascade_v3:alpha=0.5")):
        assert (one_step(high, p, q).acceptance < one_step(low, p, q).acceptance - 1e-3).any()
    low, strict = (one_step(spec, p, q).acceptance for spec in ("cascade_v3:alpha=0", "ensemble:weight=1"))
    assert (low < strict - 1e-6).float().mean() > 0.7


@pytest.mark.parametrize("size", SIZES)
def test_one_hot_drafts(size: int) -> None:
    """Group 11: acceptance min(1, pi_rej(x)), and the residual is p without x."""
    p, q = pairs(size, seed=5)
    cases: dict[str, Callable[[Tensor], Tensor]] = {
        "strict": lambda x: x,
        "cactus:delta=0.3": lambda x: raised_share(x, 0.3),
        "lenience:alpha=0.4": lambda x: (x / 0.6).clamp_max(1),
        "ensemble:weight=0.7": lambda x: 0.7 * x + 0.3,
    }
    for spec, share in cases.items():
        step = one_step("ensemble:weight=1" if spec == "strict" else spec, p, q, one_hot=True)
        torch.testing.assert_close(step.accept, share(step.p), **EXACT)
        for x in range(size):
            rest = step.p.clone()
            rest[:, x] = 0
            has_rest = (rest.sum(-1) > 1e-5) & (step.accept[:, x] < 1 - 1e-5)
            expected = rest / rest.sum(-1, keepdim=True)
            torch.testing.assert_close(step.residual[has_rest, x], expected[has_rest], atol=1e-5, rtol=0)
    # Confidence says nothing: the gates accept whatever the drafter copies.
    for spec in ("cascade_chow:alpha=0", "cascade_diff:alpha=0", "cascade_opt:alpha=0"):
        assert one_step(spec, p, q, one_hot=True).accept.min() == 1
    step = one_step("cascade_v3:alpha=0.3", p, q, one_hot=True)
    head = step.p >= 0.7 * top(step.p)[:, None]
    torch.testing.assert_close(step.accept, torch.where(head, 1.0, step.p), **EXACT)


def test_r_fuzzy_with_one_hot_drafts_is_a_threshold_on_p() -> None:
    for threshold, least in ((0.05, 0.863), (0.2, 0.529), (0.3, 0.360), (0.4, 0.226)):
        for share, passes in ((least - 0.002, False), (least + 0.002, True)):
            p = torch.tensor([[share, 1 - share]])
            step = one_step(f"r_fuzzy:threshold={threshold}", p, p, one_hot=True)
            assert (step.accept[0, 0] == 1) == passes


@pytest.mark.parametrize("rows", ["raw", "processed"])
def test_r_fuzzy_has_fuzzys_law_and_accepts_more(rows: str) -> None:
    """Group 12."""
    for size in SIZES:
        p, q = pairs(size, seed=6)
        for threshold in (0.05, 0.2, 0.4):
            found: list[OneStep] = [
                one_step(f"{name}:threshold={threshold},rows={rows}", p, q) for name in ("r_fuzzy", "fuzzy")
            ]
            torch.testing.assert_close(found[0].law, found[1].law, **EXACT)
            assert (found[0].acceptance >= found[1].acceptance - 1e-6).all()


def test_fuzzys_other_distances() -> None:
    p, q = pairs(5, zeros=False)
    for name, distance in (("kl", divergence(p, q)), ("tv", variation(p, q))):
        step = one_step(f"fuzzy:divergence={name},threshold=0.3", p, q)
        clear = (distance - 0.3).abs() > 1e-5
        assert torch.equal(step.accept[clear, 0] == 1, (distance < 0.3)[clear])


# ---- hard gates --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_the_hard_gates(size: int) -> None:
    p, q = pairs(size, zeros=False)
    entropy = -(p * p.log()).sum(-1)
    best = top(p)[:, None]
    cases = {
        "typical:epsilon=0.09,delta=0.3": p > torch.clamp(0.3 * (-entropy).exp(), max=0.09)[:, None],
        "top_k:k=2": p >= p.sort(-1, descending=True).values[:, 1:2],
        "trt_relaxed:k=2,delta=0.4": (p >= p.sort(-1, descending=True).values[:, 1:2]) & (p >= best - 0.4),
        "aasd:alpha=0.1,beta=0.2": p >= torch.minimum(0.2 - 0.1 * entropy, top(p))[:, None],
    }
    for spec, passes in cases.items():
        step = one_step(spec, p, q)
        assert torch.equal(step.accept == 1, passes), spec
        assert torch.equal(step.residual.argmax(-1), p.argmax(-1)[:, None].expand(-1, size))
        assert passes[torch.arange(len(p)), p.argmax(-1)].all(), "the likeliest token must pass"


def test_trt_relaxeds_distance_is_between_the_models_own_probabilities() -> None:
    """Its rank too: neither depends on temperature and truncation."""
    for size in SIZES[1:]:
        p, q = pairs(size, zeros=False)
        close = (p >= p.sort(-1, descending=True).values[:, 1:2]) & (p >= top(p)[:, None] - 0.3)
        step = one_step("trt_relaxed:k=2,delta=0.3", p, q, sampling=Sampling(0.4, top_p=0.9))
        assert torch.equal(step.accept == 1, close)
        processed = step.p >= top(step.p)[:, None] - 0.3
        assert not torch.equal(close, close & processed), "the rows do not tell the two apart"


def test_of_tied_tokens_only_the_one_that_would_be_written_is_the_likeliest() -> None:
    """Logits in bfloat16 are often tied: outside a phase, and with k=1 or delta=0, no second token passes."""
    p = torch.tensor([[0.4, 0.4, 0.2]])
    for spec in ("k=1,delta=1", "k=3,delta=0", "k=3,delta=1,begin=5,end=6"):
        assert one_step(f"trt_relaxed:{spec}", p, p).accept[0].tolist() == [1, 0, 0]
    assert one_step("trt_relaxed:k=2,delta=0.1", p, p).accept[0].tolist() == [1, 1, 0]


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(0.6, top_p=0.8)], ids=["whole", "cut"])
@pytest.mark.parametrize("rows", ["raw", "processed"])
def test_a_gate_looks_at_the_rows_that_it_names(rows: str, sampling: Sampling) -> None:
    """Also the rules without a pi."""
    for size in SIZES[1:]:
        p, q = pairs(size, seed=10)
        plain = one_step("ensemble:weight=1", p, q, sampling=sampling)
        gate_p, gate_q = (raw(p), raw(q)) if rows == "raw" else (plain.p, plain.q)
        entropy = -torch.xlogy(gate_p, gate_p).sum(-1)
        best = torch.nn.functional.one_hot(plain.p.argmax(-1), size).bool()
        close = gate_p >= 0.6 * top(gate_p)[:, None]
        strict = (plain.p / plain.q).clamp_max(1.0)
        every = torch.ones_like(best)
        expected = {
            "tok_lt:alpha=0.4": torch.where(close, 1.0, strict),
            "aasd:alpha=0.1,beta=0.25": (gate_p >= torch.minimum(0.25 - 0.1 * entropy, top(gate_p))[:, None]) | best,
            "fuzzy:threshold=0.2": (js(gate_p, gate_q) < 0.2)[:, None] & every,
            "fuzzy:threshold=0.5,divergence=tv": (variation(gate_p, gate_q) < 0.5)[:, None] & every,
            "fuzzy:threshold=0.7,divergence=kl": (divergence(gate_p, gate_q) < 0.7)[:, None] & every,
        }
        for spec, accept in expected.items():
            step = one_step(f"{spec},rows={rows}", p, q, sampling=sampling)
            drafted = step.q > 0
            torch.testing.assert_close(step.accept[drafted], accept.double()[drafted], atol=1e-5, rtol=0)


def test_a_budget_that_holds_q_makes_mentored_accept_everything() -> None:
    """Group 5, through the rule, with tokens that either model excludes."""
    for form in ("published", "optimal"):
        held = torch.zeros((), dtype=torch.bool)
        for size in SIZES:
            step = one_step(f"mentored:budget=2,form={form}", *pairs(size, num=100))
            within = divergence(step.p, step.q) < 2 - 1e-5
            held |= ((step.p == 0) & (step.q > 0))[within].any()
            assert (step.accept[within][step.q[within] > 0] == 1).all()
            beyond = divergence(step.p, step.q) > 2 + 1e-5
            assert (step.acceptance[beyond] < 1).any()
        assert held


def test_at_temperature_0_ensemble_accepts_a_mismatch_with_the_drafts_weight() -> None:
    """Group 14."""
    p, q = torch.tensor([[0.7, 0.2, 0.1]]), torch.tensor([[0.1, 0.8, 0.1]])
    step = one_step("ensemble:weight=0.7", p, q, sampling=Sampling())
    assert step.accept[0, 1].item() == pytest.approx(0.3)
    assert step.residual[0, 1].tolist() == [1, 0, 0]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0)], ids=["greedy", "sampled"])
def test_typical_accepts_the_likeliest_token_whatever_its_parameters(sampling: Sampling) -> None:
    """At delta=1 a one-hot row and an even one have no token that is likelier than a typical one."""
    p = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.7, 0.1, 0.1, 0.1]])
    step = one_step("typical:epsilon=1,delta=1", p, p, sampling=sampling)
    assert step.accept.tolist() == [[1, 0, 0, 0]] * 2


PROCESSED_GATES = {
    "r_fuzzy:threshold={}": (-1, 0, 0.2, 0.693, 0.6932, 1),
    "fuzzy:threshold={}": (0, 0.01, 0.693, 0.6932, 1),
    "fuzzy:divergence=tv,threshold={}": (0, 0.5, 0.999999999, 1.001),
    "fuzzy:divergence=kl,threshold={}": (0, 0.5, 100, "inf"),
    "cascade_chow:alpha={}": (-1, -0.01, -1e-9, 0, 0.5, 1),
    "cascade_diff:alpha={}": (-1, -0.01, -1e-9, 0, 0.5, 1),
    "cascade_opt:alpha={}": ("-inf", -0.01, -1e-9, 0, 0.5, "inf"),
    "cascade_v1:alpha={}": (-1, -0.01, -1e-9, 0, 0.5, 1),
    "cascade_v2:alpha={}": ("-inf", -0.5, 0, 0.5, 0.99, 0.999999999, 1),
    "cascade_v3:alpha={}": ("-inf", -0.5, 0, 0.5, 0.99, 0.999999999, 1),
    "tok_lt:alpha={}": (-1, 0, 0.5, 0.99, 0.999999999, 1),
    "aasd:beta={}": (-1, 0, 1e-50, 0.01, 0.5, 2),
}


@pytest.mark.parametrize("spec", PROCESSED_GATES)
def test_a_gate_on_processed_rows_is_strict_at_temperature_0_or_refused(spec: str) -> None:
    """Group 14: strict where of one-hot rows it accepts equal tokens alone, refused where all or none pass."""
    p, q = pairs(5, seed=8)
    equal = p.argmax(-1) == q.argmax(-1)
    assert 0 < equal.sum() < len(equal)
    kinds = set()
    for value in PROCESSED_GATES[spec]:
        rule = rule_named(spec.format(value) + ",rows=processed")
        step = one_step(rule, p, q, sampling=Sampling())
        accepted = step.accept[step.q > 0]
        assert (rule.greedy == "strict") == torch.equal(accepted, equal.double()), value
        assert rule.greedy == "strict" or accepted.unique().numel() == 1
        assert torch.equal(step.residual[step.q > 0][~equal].argmax(-1), p.argmax(-1)[~equal]) or accepted.all()
        kinds.add(rule.greedy)
    assert kinds == ({"strict", "refused"})


def test_every_gate_on_processed_rows_is_checked_here() -> None:
    gates = {info.name for info in RULES.values() if info.make and isinstance(info.default, GateRows)}
    assert gates == {spec.partition(":")[0] for spec in PROCESSED_GATES}


def test_every_rule_with_a_pi_is_checked_here() -> None:
    fixed = {info.name for info in RULES.values() if info.make and isinstance(info.default, FixedRule)}
    named = {spec.partition(":")[0] for spec in LAWS} | {"contrastive", "mentored"}
    assert fixed == named
    assert rule_named("mentored").has_own_bonus
