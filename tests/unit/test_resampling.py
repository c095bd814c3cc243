"""Bootstrap and permutation against scipy, and their promises in simulation; every draw is seeded."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cospec.evaluation.comparison import mean_ratio
from cospec.evaluation.resampling import (
    Floats,
    bootstrap_interval,
    resampled_means,
    sign_flip_test,
    stratified_interval,
)
from cospec.evaluation.statistics import mcnemar


def skewed(num: int, seed: int = 3) -> Floats:
    """Tokens and seconds of problems, both skewed and closely related."""
    rng = np.random.default_rng(seed)
    tokens = rng.lognormal(4, 0.8, num)
    return np.stack([tokens, tokens * rng.lognormal(-3, 0.3, num)], axis=1)


def test_the_interval_of_a_ratio_equals_scipys() -> None:
    data = skewed(80)

    def ratio(a: Floats, b: Floats, axis: int = -1) -> Floats:
        return a.mean(axis) / b.mean(axis)

    expected = stats.bootstrap(
        (data[:, 0], data[:, 1]), ratio, paired=True, vectorized=True, n_resamples=20_000, method="percentile", rng=1
    ).confidence_interval
    found = bootstrap_interval(data, mean_ratio, num=20_000)
    assert found == pytest.approx((expected.low, expected.high), rel=0.01)


def test_the_interval_of_a_mean_equals_scipys() -> None:
    data = np.random.default_rng(4).exponential(size=(60, 1))
    expected = stats.bootstrap(
        (data[:, 0],), np.mean, n_resamples=20_000, method="percentile", rng=1
    ).confidence_interval
    found = bootstrap_interval(data, lambda means: means[..., 0], num=20_000)
    assert found == pytest.approx((expected.low, expected.high), rel=0.01)


def test_intervals_cover_what_they_estimate() -> None:
    truth = np.exp(3 - 0.3**2 / 2)
    covered = 0
    for run in range(400):
        interval = bootstrap_interval(skewed(60, seed=100 + run), mean_ratio, num=1000)
        assert interval is not None
        covered += interval[0] <= truth <= interval[1]
    assert 360 <= covered <= 388


def test_the_same_data_give_the_same_interval_in_any_scale_and_not_in_another_order_of_draws() -> None:
    data = skewed(50)
    low, high = bootstrap_interval(data, mean_ratio) or (0, 0)
    assert bootstrap_interval(data.copy(), mean_ratio) == (low, high)
    assert bootstrap_interval(data * [10, 1], mean_ratio) == pytest.approx((10 * low, 10 * high))
    assert not np.array_equal(resampled_means(data, 10, stream=0), resampled_means(data, 10, stream=1))


def test_data_without_spread_give_a_point_and_too_few_give_nothing() -> None:
    assert bootstrap_interval(np.tile([6.0, 2.0], (12, 1)), mean_ratio) == (3, 3)
    assert bootstrap_interval(skewed(9), mean_ratio) is None
    assert bootstrap_interval(skewed(10), mean_ratio) is not None
    assert bootstrap_interval(np.zeros((0, 2)), mean_ratio) is None
    assert bootstrap_interval(np.zeros((15, 2)), mean_ratio) is None
    # Some resamples hold no decision at all: they are left out.
    rare = np.array([[1.0, 1.0]] + [[0.0, 0.0]] * 9 + [[0.0, 1.0]])
    low, high = bootstrap_interval(rare, mean_ratio) or (-1, -1)
    assert 0 <= low <= 0.5 <= high <= 1


def test_a_mean_over_tasks_draws_within_each_task() -> None:
    rng = np.random.default_rng(5)
    strata = [rng.random((40, 1)), 5 + rng.random((500, 1))]
    mean = np.mean([column.mean() for column in strata])
    low, high = stratified_interval(strata, lambda means: means[..., 0].mean(-1)) or (0, 0)
    # The tasks are far apart, and that adds nothing: the half width is that of a sum of independent means.
    error = np.sqrt(sum(column.var(ddof=1) / len(column) for column in strata)) / 2
    assert low < mean < high
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.05)
    assert stratified_interval([strata[0], strata[1][:1]], lambda means: means[..., 0].mean(-1)) is None
    assert stratified_interval([], lambda means: means[..., 0]) is None


@pytest.mark.parametrize(("gained", "lost"), [(14, 5), (5, 14), (8, 8), (1, 0), (0, 12), (0, 0)])
def test_flipping_signs_of_single_outcomes_is_the_exact_mcnemar_test(gained: int, lost: int) -> None:
    differences = np.array([1.0] * gained + [-1.0] * lost + [0.0] * 50)
    assert sign_flip_test(differences) == pytest.approx(mcnemar(gained, lost), abs=0.005)


def test_flipping_signs_equals_scipys_permutation_test() -> None:
    differences = np.random.default_rng(6).normal(0.3, 1, 30)
    expected = stats.permutation_test(
        (differences,), np.sum, permutation_type="samples", n_resamples=20_000, rng=1
    ).pvalue
    assert sign_flip_test(differences) == pytest.approx(expected, abs=0.01)


def test_equal_methods_with_repeats_are_called_different_in_about_five_of_a_hundred_runs() -> None:
    rng = np.random.default_rng(7)
    skill = rng.beta(1, 1, size=(1000, 60))
    right = rng.binomial(4, skill, size=(2, 1000, 60)) / 4
    alarms = sum(sign_flip_test(run, num=2000) < 0.05 for run in right[0] - right[1])
    assert 30 <= alarms <= 60
