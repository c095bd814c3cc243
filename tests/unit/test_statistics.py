"""Interval and paired test against scipy and by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from cospec.evaluation.statistics import mcnemar, wilson


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
@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_is_the_two_sided_binomial_test(gained: int, lost: int) -> None:
    expected = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert mcnemar(gained, lost) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(gained, lost) == mcnemar(lost, gained)


def test_mcnemar_by_hand() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(3, 3) == 1.0
    assert mcnemar(0, 5) == 2 / 32
    assert mcnemar(1, 4) == 2 * 6 / 32
    # 2 / 2^3000 has no place among the floats, and must not raise.
    assert mcnemar(0, 3000) == 0.0
