"""Bootstrap intervals and a permutation test over problems, seeded: the same data give the same numbers.

Data are columns (n, d), one row per problem; what several samples of one problem (repeats) say is summed or averaged
in its row before, so that the problem is always the unit that is drawn. A statistic maps means (..., d) of the columns
to (...): ratios of sums are ratios of means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]

NUM_RESAMPLES = 5000
NUM_FLIPS = 100_000
_SEED = 0
#: Numbers drawn at once: bounds the memory, whatever the number of problems.
_AT_ONCE = 2_000_000


def bootstrap_interval(
    columns: Floats, statistic: Statistic, *, level: float = 0.95, num: int = NUM_RESAMPLES
) -> tuple[float, float] | None:
    """The BCa bootstrap interval (Efron 1987) of ``statistic`` over problems; None below two problems.

    Resamples on which the statistic is not defined are left out. Where the correction is not defined (all resamples
    on one side of the estimate, or a jackknife without spread) it is the percentile interval.
    """
    if len(columns) < 2:
        return None
    estimate = float(_apply(statistic, columns.mean(0)))
    drawn = _apply(statistic, resampled_means(columns, num))
    drawn = drawn[np.isfinite(drawn)]
    if not np.isfinite(estimate) or len(drawn) == 0:
        return None
    left_out = (columns.sum(0) - columns) / (len(columns) - 1)
    return _bounds(drawn, _bca_levels(drawn, estimate, _apply(statistic, left_out), level))


def stratified_interval(
    strata: Sequence[Floats], statistic: Statistic, *, level: float = 0.95, num: int = NUM_RESAMPLES
) -> tuple[float, float] | None:
    """The percentile interval of a statistic over tasks, problems being drawn within each task.

    ``statistic`` maps means (..., tasks, d) to (...). None where a task has fewer than two problems.
    """
    if not strata or min(len(columns) for columns in strata) < 2:
        return None
    # A stream of its own for each task: two tasks of one size must not be drawn in step.
    drawn = _apply(statistic, np.stack([resampled_means(c, num, stream) for stream, c in enumerate(strata)], axis=-2))
    drawn = drawn[np.isfinite(drawn)]
    tail = (1 - level) / 2
    return _bounds(drawn, (tail, 1 - tail)) if len(drawn) else None


def resampled_means(columns: Floats, num: int, stream: int = 0) -> Floats:
    """Means (num, d) of ``num`` resamples of the rows, drawn with replacement."""
    rng, num_rows = np.random.default_rng([_SEED, stream]), len(columns)
    parts = [columns[rng.integers(num_rows, size=(count, num_rows))].mean(1) for count in _chunks(num, columns.size)]
    return np.concatenate(parts)


def sign_flip_test(differences: Floats, *, num: int = NUM_FLIPS) -> float:
    """Two-sided p of the paired permutation test on the sum of ``differences`` (n,), one per problem.

    Were both methods equal, each difference would as likely have the other sign. ``num`` random choices of signs;
    ``(1 + as large) / (1 + num)`` is a valid p-value (Phipson and Smyth 2010).
    """
    moved = differences[differences != 0]
    if len(moved) == 0:
        return 1.0
    rng, seen = np.random.default_rng([_SEED, 1]), abs(moved.sum())
    # Sums of the same numbers in another order differ in the last bits; they are ties all the same.
    floor = seen - 1e-9 * np.abs(moved).sum()
    as_large = 0
    for count in _chunks(num, len(moved)):
        signs = rng.integers(2, size=(count, len(moved)), dtype=np.int8) * 2.0 - 1.0
        as_large += int((np.abs(signs @ moved) >= floor).sum())
    return (1 + as_large) / (1 + num)


def _chunks(num: int, width: int) -> Iterator[int]:
    step = max(1, _AT_ONCE // max(1, width))
    for start in range(0, num, step):
        yield min(step, num - start)


def _apply(statistic: Statistic, means: Floats) -> Floats:
    """The statistic, with NaN or an infinity where it divides by 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(statistic(means), dtype=np.float64)


def _bca_levels(drawn: Floats, estimate: float, left_out: Floats, level: float) -> tuple[float, float]:
    """The quantiles of the resamples to take, corrected for bias and acceleration."""
    tail, normal = (1 - level) / 2, NormalDist()
    below = float((drawn < estimate).mean() + (drawn == estimate).mean() / 2)
    gaps = left_out.mean() - left_out
    spread = float((gaps**2).sum()) ** 1.5
    if not 0 < below < 1 or not np.isfinite(spread) or spread == 0:
        return tail, 1 - tail
    bias, acceleration = normal.inv_cdf(below), float((gaps**3).sum()) / (6 * spread)

    def corrected(quantile: float) -> float:
        shifted = bias + normal.inv_cdf(quantile)
        return normal.cdf(bias + shifted / (1 - acceleration * shifted))

    return corrected(tail), corrected(1 - tail)


def _bounds(drawn: Floats, levels: tuple[float, float]) -> tuple[float, float]:
    low, high = np.quantile(drawn, levels)
    return float(low), float(high)
