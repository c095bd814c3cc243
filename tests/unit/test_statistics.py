"""Intervals and tests against scipy, statsmodels, published examples and simulation."""

from __future__ import annotations

import functools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from cospec.evaluation.statistics import (
    holm,
    mcnemar,
    mcnemar_mid_p,
    min_detectable,
    newcombe,
    wilson,
)

COUNTS = st.integers(0, 400)


@settings(deadline=None)
@given(st.integers(1, 3000).flatmap(lambda num: st.tuples(st.integers(0, num), st.just(num))))
def test_wilson_equals_scipys(counts: tuple[int, int]) -> None:
    expected = binomtest(*counts).proportion_ci(0.95, method="wilson")
    assert wilson(*counts) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_by_hand() -> None:
    # z = 2: (0.5 + 4/20) / 1.4 with half width sqrt(0.4 * (0.25 + 0.1)) / 1.4.
    assert wilson(5, 10, z=2.0) == pytest.approx((0.5 - 0.14**0.5 / 1.4, 0.5 + 0.14**0.5 / 1.4))


@pytest.mark.parametrize(("right", "num", "bound"), [(0, 0, (0.0, 1.0)), (0, 5, (0.0, None)), (5, 5, (None, 1.0))])
def test_wilson_never_leaves_the_unit_interval(right: int, num: int, bound: tuple[float | None, float | None]) -> None:
    low, high = wilson(right, num)
    assert bound[0] in (None, low)
    assert bound[1] in (None, high)
    assert 0 <= low < high <= 1


@settings(deadline=None)
@given(COUNTS, COUNTS)
def test_mcnemar_is_the_two_sided_binomial_test(gained: int, lost: int) -> None:
    expected = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar(gained, lost) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(gained, lost) == mcnemar(lost, gained)


def test_fixed_data_equal_statsmodels() -> None:
    # Imported here, and called seldom: it takes seconds to load and collects garbage in every call.
    from statsmodels.stats.contingency_tables import mcnemar as their_mcnemar
    from statsmodels.stats.multitest import multipletests
    from statsmodels.stats.proportion import proportion_confint

    for both, gained, lost, neither in ((7, 12, 5, 11), (400, 31, 50, 19), (0, 1, 0, 3), (90, 6, 6, 8)):
        theirs = their_mcnemar([[both, gained], [lost, neither]], exact=True).pvalue
        assert mcnemar(gained, lost) == pytest.approx(theirs, rel=1e-9)
        num = both + gained + lost + neither
        assert wilson(both, num) == pytest.approx(proportion_confint(both, num, method="wilson"), abs=1e-12)
    for p_values in ([0.01, 0.04, 0.03, 0.005], [0.2], [0.5, 0.5, 1.0], [0.03, 0.0, 0.03, 0.6, 0.012]):
        assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]))


def test_mcnemar_by_hand() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(3, 3) == 1.0
    assert mcnemar(0, 5) == 2 / 32
    assert mcnemar(1, 4) == 2 * 6 / 32
    # 2 / 2^3000 has no place among the floats, and must not raise.
    assert mcnemar(0, 3000) == 0.0


@given(COUNTS, COUNTS)
def test_mid_p_is_the_exact_p_less_half_of_what_was_seen(gained: int, lost: int) -> None:
    seen = binomtest(gained, gained + lost) if gained + lost else None
    both_tails = mcnemar(gained, lost)
    mid = mcnemar_mid_p(gained, lost)
    assert 0 <= mid <= both_tails
    assert mid == mcnemar_mid_p(lost, gained)
    if seen is not None and gained != lost:
        # Both outcomes as extreme as this one count by half.
        num = gained + lost
        assert mid == pytest.approx(both_tails - math.comb(num, gained) / 2**num, abs=1e-12)


def test_mid_p_by_hand() -> None:
    # Fagerland, Lydersen and Laake (2013), airway hyper-responsiveness: 1 and 7 discordant pairs; exact 0.070.
    assert mcnemar(1, 7) == pytest.approx(0.0703, abs=5e-5)
    assert mcnemar_mid_p(1, 7) == pytest.approx(0.0391, abs=5e-5)
    assert mcnemar_mid_p(2, 2) == 1 - math.comb(4, 2) / 2**4 / 2
    # The paper's formula for a draw would say 0.5 of no pair at all.
    assert mcnemar_mid_p(0, 0) == 1.0


def test_tens_of_thousands_of_discordant_pairs_take_no_time() -> None:
    for gained, lost in ((20_000, 20_000), (9_000, 11_000), (14_900, 15_100)):
        assert mcnemar(gained, lost) == pytest.approx(binomtest(gained, gained + lost).pvalue, rel=1e-9)


# --- the null hypothesis, simulated ----------------------------------------------------------------------------------


@functools.cache
def null_counts() -> np.ndarray:
    """Discordant counts (1000, 2) of two equally good methods whose outcomes hang together, on 250 problems each."""
    rng = np.random.default_rng(20)
    # Problems differ in difficulty, and half of them give both methods the same draw.
    skill = rng.beta(2, 2, size=(1000, 250))
    draws = rng.random((2, 1000, 250))
    same = rng.random((1000, 250)) < 0.5
    first, second = draws[0] < skill, np.where(same, draws[0], draws[1]) < skill
    return np.stack([(first & ~second).sum(1), (second & ~first).sum(1)], axis=1)


def test_equal_methods_are_called_different_in_at_most_six_of_a_hundred_runs() -> None:
    alarms = sum(mcnemar(*map(int, pair)) < 0.05 for pair in null_counts())
    assert 10 <= alarms <= 60


def test_the_mid_p_keeps_its_level_on_average() -> None:
    alarms = sum(mcnemar_mid_p(*map(int, pair)) < 0.05 for pair in null_counts())
    assert 35 <= alarms <= 65
    assert alarms >= sum(mcnemar(*map(int, pair)) < 0.05 for pair in null_counts())


def test_the_interval_of_the_difference_covers_it() -> None:
    covered = 0
    for gained, lost in null_counts().tolist():
        rest = 250 - gained - lost
        low, high = newcombe(rest // 2, gained, lost, rest - rest // 2)
        covered += low <= 0 <= high
    assert 930 <= covered <= 980


# --- intervals and tests against the literature ----------------------------------------------------------------------


def test_newcombe_equals_the_published_example() -> None:
    # Fagerland, Lydersen and Laake (2014), table 3: both 1, one only 1, other only 7, neither 12.
    assert newcombe(1, 1, 7, 12) == pytest.approx((-0.507, -0.026), abs=6e-4)


@given(*[st.integers(0, 60)] * 4)
def test_newcombe_is_an_interval_around_the_difference_and_has_no_favourite(a: int, b: int, c: int, d: int) -> None:
    low, high = newcombe(a, b, c, d)
    assert -1 <= low <= high <= 1
    if a + b + c + d:
        assert low <= (b - c) / (a + b + c + d) <= high
    assert newcombe(a, c, b, d) == pytest.approx((-high, -low))
    # What both solve and what neither solves may change places.
    assert newcombe(d, b, c, a) == pytest.approx((low, high))


def test_min_detectable_is_found_with_the_power_it_promises() -> None:
    num, discordant = 1000, 0.1
    difference = min_detectable(100, num)
    assert difference is not None
    rng = np.random.default_rng(22)
    shares = [(discordant + difference) / 2, (discordant - difference) / 2, 1 - discordant]
    found = sum(mcnemar(int(b), int(c)) < 0.05 for b, c, _ in rng.multinomial(num, shares, size=1000))
    assert 740 <= found <= 840
    assert min_detectable(0, 10) is min_detectable(0, 0) is None


# --- Holm ------------------------------------------------------------------------------------------------------------

P_VALUES = st.lists(st.floats(0, 1), max_size=12)


@given(P_VALUES, st.randoms())
def test_holm_is_stricter_keeps_the_order_and_does_not_care_where_a_value_stands(
    p_values: list[float], random: Random
) -> None:
    adjusted = holm(p_values)
    assert all(raw <= new <= 1 for raw, new in zip(p_values, adjusted, strict=True))
    pairs = sorted(zip(p_values, adjusted, strict=True))
    assert [new for _, new in pairs] == sorted(adjusted)
    order = list(range(len(p_values)))
    random.shuffle(order)
    assert holm([p_values[index] for index in order]) == [adjusted[index] for index in order]
    if p_values:
        assert min(adjusted) == min(1, len(p_values) * min(p_values))


def test_holm_keeps_the_chance_of_any_false_alarm_over_tasks() -> None:
    rng = np.random.default_rng(23)
    runs = rng.random((1000, 8))
    raw = sum((run < 0.05).any() for run in runs)
    kept = sum(min(holm(run.tolist())) < 0.05 for run in runs)
    assert raw > 250
    assert 30 <= kept <= 65
