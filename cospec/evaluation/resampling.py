"""Bootstrap intervals and a permutation test over problems, seeded: the same data give the same numbers.

Data are columns (n, d), one row per problem; what several samples of one problem say is added up in its row before,
so that the problem is always the unit that is drawn. A statistic maps means (..., d) of the columns
to (...): ratios of sums are ratios of means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Floats]

NUM_RESAMPLES = 5000
#: Resamples of fewer problems than this are too much alike: their interval would be too short to be shown.
MIN_PROBLEMS = 10
NUM_FLIPS = 100_000
_SEED = 0
#: Numbers drawn at once: bounds the memory, whatever the number of problems.
_AT_ONCE = 2_000_000


def bootstrap_interval(
    columns: Floats, statistic: Statistic, *, level: float = 0.95, num: int = NUM_RESAMPLES
) -> tuple[float, float] | None:
    """The percentile bootstrap interval (Efron 1979) of ``statistic`` over problems.

    None below `MIN_PROBLEMS`, and where no resample has the statistic; resamples without it are left out. Percentiles
    rather than BCa: in simulated ratios of tokens and seconds they covered more often, being simpler.
    """
    return _interval(resampled_means(columns, num), statistic, level) if len(columns) >= MIN_PROBLEMS else None


def stratified_interval(
    strata: Sequence[Floats], statistic: Statistic, *, level: float = 0.95, num: int = NUM_RESAMPLES
) -> tuple[float, float] | None:
    """The same of a statistic over tasks, problems being drawn within each task.

    ``statistic`` maps means (..., tasks, d) to (...). None where a task has fewer than `MIN_PROBLEMS`.
    """
    if not strata or min(len(columns) for columns in strata) < MIN_PROBLEMS:
        return None
    # A stream of its own for each task: two tasks of one size must not be drawn in step.
    means = [resampled_means(columns, num, stream) for stream, columns in enumerate(strata)]
    return _interval(np.stack(means, axis=-2), statistic, level)


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


def _interval(means: Floats, statistic: Statistic, level: float) -> tuple[float, float] | None:
    # What divides by 0 is no number and is left out below.
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.asarray(statistic(means), dtype=np.float64)
    drawn, tail = drawn[np.isfinite(drawn)], (1 - level) / 2
    if len(drawn) == 0:
        return None
    low, high = np.quantile(drawn, (tail, 1 - tail))
    return float(low), float(high)
