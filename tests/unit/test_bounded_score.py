"""The score test and interval over problems: against Wilson, Tango and scipy, and their promises in simulation."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cospec.evaluation.bounded_score import Bounds, score, score_interval, score_test
from cospec.evaluation.comparison import Outcomes, share_of
from cospec.evaluation.paired import MARGIN, paired_accuracy
from cospec.evaluation.resampling import Floats
from cospec.evaluation.sample import SampleKey
from cospec.evaluation.statistics import Z95, wilson

SHARE: Bounds = (0.0, 1.0)
DIFFERENCE: Bounds = (-1.0, 1.0)


def columns_of(sums: Floats | list[float], num: Floats | float = 1.0) -> Floats:
    """One row per problem: a sum and a number of samples."""
    totals = np.asarray(sums, dtype=np.float64)
    return np.stack([totals, np.broadcast_to(np.asarray(num, dtype=np.float64), totals.shape)], axis=1)


def paired_columns(gained: int, lost: int, num: int) -> Floats:
    return columns_of([1.0] * gained + [-1.0] * lost + [0.0] * (num - gained - lost))


def tango(gained: int, lost: int, num: int, margin: float) -> float:
    """The score of Tango (1998) in closed form."""
    b = gained + lost + (2 * num - gained + lost) * margin
    c = lost * margin * (1 + margin)
    only_second = (b + math.sqrt(max(0.0, b * b - 8 * num * c))) / (4 * num)
    return (gained - lost + num * margin) / math.sqrt(num * (2 * only_second - margin * (1 + margin)))


# --- one sample a problem --------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(2, 300).flatmap(lambda num: st.tuples(st.integers(0, num), st.just(num))))
def test_with_one_sample_a_share_is_at_wilsons_bounds_by_the_normal_quantile(counts: tuple[int, int]) -> None:
    right, num = counts
    columns = columns_of([1.0] * right + [0.0] * (num - right))
    low, high = wilson(right, num)
    if right > 0:
        assert score(columns, low, SHARE) == pytest.approx(Z95)
    if right < num:
        assert score(columns, high, SHARE) == pytest.approx(-Z95)


@settings(deadline=None)
@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 200), st.floats(0.01, 0.3))
def test_with_one_sample_a_difference_is_tangos_score(gained: int, lost: int, rest: int, margin: float) -> None:
    num = gained + lost + rest
    found = score(paired_columns(gained, lost, num), -margin, DIFFERENCE)
    assert found == pytest.approx(tango(gained, lost, num, margin), abs=1e-5)


def test_the_score_equals_the_published_example() -> None:
    # Tango (1998), contact lenses: 44 pairs, of which 1 favours the standard; margin 0.1 gives Z = 1.709.
    assert score(paired_columns(0, 1, 44), -0.1, DIFFERENCE) == pytest.approx(1.709, abs=5e-4)


# --- properties ------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.integers(0, 40), st.integers(0, 40), st.integers(2, 100), st.floats(0.01, 0.3))
def test_the_p_value_follows_the_evidence_and_students_t(gained: int, lost: int, rest: int, margin: float) -> None:
    num = gained + lost + rest
    columns = paired_columns(gained, lost, num)
    p = score_test(columns, -margin, DIFFERENCE)
    assert p == pytest.approx(stats.t.sf(score(columns, -margin, DIFFERENCE), num - 1), abs=0.003)
    assert score_test(paired_columns(gained + 1, lost, num + 1), -margin, DIFFERENCE) <= p + 1e-9
    assert score_test(columns, -1.5 * margin, DIFFERENCE) <= p + 1e-9


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 4), st.floats(0, 1)), min_size=1, max_size=30))
def test_the_interval_lies_around_what_was_seen_and_is_where_the_test_turns(problems: list[tuple[int, float]]) -> None:
    columns = np.array([(round(share * num), num) for num, share in problems], dtype=np.float64)
    low, high = score_interval([columns], SHARE)
    seen = columns[:, 0].sum() / columns[:, 1].sum()
    assert 0 <= low <= seen <= high <= 1
    assert low < high
    if len(columns) > 1 and seen > 0.01:
        assert score_test(columns, low, SHARE) == pytest.approx(0.025, abs=1e-3)
    # Right and wrong may change places, and the same texts again say nothing new.
    mirrored = columns * [-1, 1] + columns[:, 1:] * [1, 0]
    assert score_interval([mirrored], SHARE) == pytest.approx((1 - high, 1 - low), abs=1e-5)
    assert score_interval([3 * columns], SHARE) == pytest.approx((low, high), abs=1e-5)


def repeated(rows: list[list[bool]]) -> Outcomes:
    return {SampleKey("t", problem, repeat): hit for problem, row in enumerate(rows) for repeat, hit in enumerate(row)}


@pytest.mark.parametrize("num", [1, 2, 3, 9, 10, 50, 180])
@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("repeats", [1, 2, 4])
def test_where_nothing_differs_no_interval_is_a_point_and_nothing_is_claimed(
    num: int, right: bool, repeats: int
) -> None:
    outcomes = repeated([[right] * repeats] * num)
    low, high = share_of(outcomes).ci95
    assert high - low >= wilson(0, num)[1] - 1e-5
    found = paired_accuracy(outcomes, outcomes)
    assert found is not None
    assert found.ci95[0] < -MARGIN < MARGIN < found.ci95[1]
    assert found.p_inferior > 0.025
    assert (found.p, found.p_mid) == (1, 1 if repeats == 1 else None)


def test_enough_problems_without_a_difference_do_show_that_nothing_is_lost() -> None:
    for repeats in (1, 3):
        outcomes = repeated([[True] * repeats] * 250)
        found = paired_accuracy(outcomes, outcomes)
        assert found is not None
        assert found.p_inferior < 0.025


def test_six_problems_are_too_few_for_any_claim() -> None:
    for repeats in (1, 4):
        found = paired_accuracy(repeated([[True] * repeats] * 6), repeated([[False] * repeats] * 6))
        assert found is not None
        assert found.p_inferior > 0.025


def test_the_mean_over_tasks_is_as_exact_as_its_tasks_together() -> None:
    one = columns_of([1.0] * 70 + [0.0] * 30)
    low, high = score_interval([one] * 4, SHARE)
    assert (low, high) == pytest.approx(score_interval([np.concatenate([one] * 4)], SHARE), abs=1e-3)
    # Tasks that lie far apart make the mean no less exact.
    apart = [columns_of([1.0] * 950 + [0.0] * 50), columns_of([1.0] * 50 + [0.0] * 950)]
    low, high = score_interval(apart, SHARE)
    assert (high - low) / 2 == pytest.approx(1.96 * math.sqrt(2 * 0.95 * 0.05 / 1000) / 2, rel=0.1)
    assert score_interval([columns_of([1.0]), columns_of([1.0])], SHARE) == SHARE


# --- promises, simulated ---------------------------------------------------------------------------------------------

Draw = np.random.Generator


def samples(rng: Draw, skill: Floats, repeats: int) -> Floats:
    return rng.binomial(repeats, np.clip(skill, 0, 1)).astype(np.float64)


def worse_by_the_margin(rng: Draw, size: tuple[int, int], repeats: int) -> Iterator[Floats]:
    """Sums over repeats (runs, problems) of differences whose mean is exactly the margin, made in many ways."""
    margin, u = MARGIN, rng.random(size)
    yield -1.0 * (u < margin) * repeats
    yield -1.0 * (u < margin * repeats)
    yield np.where(u < (1 - margin) / 2, 1.0, -1.0) * repeats
    yield ((u < 0.1) * 1.0 - ((u > 0.5) & (u < 0.6 + margin))) * repeats
    yield (u < 0.4) * 1.0 - ((u > 0.5) & (u < 0.5 + 0.4 / repeats + margin)) * repeats
    yield (u < 0.1) * 1.0 * repeats - ((u > 0.3) & (u < 0.3 + (0.1 + margin) * repeats))
    yield samples(rng, np.full(size, 1 - margin), repeats) - repeats
    yield samples(rng, np.full(size, 0.5 - margin), repeats) - samples(rng, np.full(size, 0.5), repeats)
    for spread in (0.1, 0.5, 2):
        skill = rng.beta(spread, spread, size)
        yield samples(rng, skill * (1 - 2 * margin), repeats) - samples(rng, skill, repeats)
    skill = rng.beta(0.3, 0.3, size)
    yield samples(rng, skill, repeats) * (u >= 2 * margin) - samples(rng, skill, repeats)


def most_false_claims(num: int, repeats: int, runs: int) -> float:
    rng = np.random.default_rng([num, repeats])
    claims = []
    for sums in worse_by_the_margin(rng, (runs, num), repeats):
        found = [score_test(columns_of(row, repeats), -MARGIN, DIFFERENCE) for row in sums]
        claims.append(np.mean(np.array(found) < 0.025))
    return float(max(claims))


def coverage(num: int, repeats: int, share: float, spread: float, runs: int) -> float:
    """Of a share of problems whose skills differ: ``spread`` near 0 makes all samples of a problem alike."""
    rng = np.random.default_rng([num, repeats])
    skill = rng.beta(share * spread, (1 - share) * spread, (runs, num))
    found = [score_test(columns_of(row, repeats), share, SHARE) for row in samples(rng, skill, repeats)]
    return float(np.mean([0.025 <= p <= 0.975 for p in found]))


@pytest.mark.parametrize(("num", "repeats"), [(3, 2), (10, 1), (10, 4), (50, 2), (200, 4)])
def test_what_is_worse_by_the_margin_is_seldom_called_not_inferior(num: int, repeats: int) -> None:
    assert most_false_claims(num, repeats, runs=120) <= 0.06


def test_equal_methods_are_called_not_inferior_where_there_are_problems_enough() -> None:
    rng = np.random.default_rng(21)
    runs = rng.multinomial(1000, [0.03, 0.03, 0.94], size=200)
    found = [score_test(paired_columns(int(b), int(c), 1000), -MARGIN, DIFFERENCE) < 0.025 for b, c, _ in runs]
    assert np.mean(found) > 0.65


@pytest.mark.parametrize(("num", "share", "spread"), [(3, 0.98, 0.3), (10, 0.9, 0.02), (10, 0.5, 5), (50, 0.05, 0.3)])
def test_intervals_of_repeats_cover_what_they_estimate(num: int, share: float, spread: float) -> None:
    assert coverage(num, 2, share, spread, runs=200) >= 0.93


@pytest.mark.slow
@pytest.mark.parametrize("num", [3, 4, 5, 8, 10, 20, 50, 200])
@pytest.mark.parametrize("repeats", [1, 2, 4])
def test_the_level_of_non_inferiority_is_kept_in_every_way_to_be_worse(num: int, repeats: int) -> None:
    assert most_false_claims(num, repeats, runs=1500) <= 0.04


@pytest.mark.slow
@pytest.mark.parametrize("num", [3, 10, 50, 200])
@pytest.mark.parametrize("repeats", [2, 4])
def test_intervals_of_repeats_cover_at_every_share_and_spread(num: int, repeats: int) -> None:
    found = [
        coverage(num, repeats, share, spread, runs=500)
        for share in (0.05, 0.3, 0.5, 0.9, 0.98)
        for spread in (0.02, 0.3, 1, 5, 1000)
    ]
    assert np.mean(found) >= 0.95
    # Like Wilson's, it dips below its level at some shares near the ends.
    assert sum(share < 0.93 for share in found) <= 1
    assert min(found) >= 0.92


@pytest.mark.slow
@pytest.mark.parametrize("num_tasks", [2, 3, 6])
def test_means_over_tasks_are_covered(num_tasks: int) -> None:
    rng = np.random.default_rng(num_tasks)
    for num, base in ((5, 0.5), (10, 0.1), (10, 0.98), (30, 0.02), (100, 0.9)):
        shares = base + np.linspace(-0.8, 0.8, num_tasks) * min(base, 1 - base)
        runs = [score_interval([columns_of(rng.binomial(1, p, num)) for p in shares], SHARE) for _ in range(200)]
        assert np.mean([low <= shares.mean() <= high for low, high in runs]) >= 0.91
