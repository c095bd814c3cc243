"""Intervals and tests on counts; pure functions of the standard library.

Paired counts are those of two methods on the same problems: ``both`` solved, solved by the first alone, by the second
alone, and ``neither``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

#: The normal quantile of a two-sided 95 % interval.
Z95 = 1.959963984540054
#: The power that `min_detectable` asks for.
POWER = 0.8


def wilson(right: int, num: int, z: float = Z95) -> tuple[float, float]:
    """The Wilson score interval of ``right`` successes in ``num`` trials (Wilson 1927); (0, 1) without a trial."""
    assert 0 <= right <= num, f"{right} right of {num}"
    if num == 0:
        return 0.0, 1.0
    share, spread = right / num, z * z / num
    centre = (share + spread / 2) / (1 + spread)
    half = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    # The bounds at 0 and num successes are exactly 0 and 1; rounding would leave a trace.
    return (0.0 if right == 0 else centre - half), (1.0 if right == num else centre + half)


def mcnemar(only_one: int, only_other: int) -> float:
    """Two-sided p of the exact McNemar test (McNemar 1947), from the numbers of problems that only one side solved.

    Under equal skill each discordant problem falls to either side like a fair coin, so this is the binomial test at
    1/2, which is symmetric: twice the smaller tail. 1 where the sides never differ.
    """
    num, fewer = only_one + only_other, min(only_one, only_other)
    # One binomial coefficient as an integer, so that it neither under- nor overflows; from term to term by ratios.
    term, tail = 1.0, 0.0
    for count in range(fewer, -1, -1):
        tail += term
        term *= count / (num - count + 1)
    return min(1.0, 2 * tail * _seen(num, fewer))


def mcnemar_mid_p(only_one: int, only_other: int) -> float:
    """Two-sided mid-p of McNemar's test (Fagerland, Lydersen and Laake 2013): the outcome itself counts by half.

    The exact test errs far below its level on few discordant problems; this one keeps it on average, at the price of
    passing it a little here and there. 1 where the sides never differ, as then nothing was seen.
    """
    if only_one == only_other == 0:
        return 1.0
    seen = _seen(only_one + only_other, min(only_one, only_other))
    return mcnemar(only_one, only_other) - (seen / 2 if only_one == only_other else seen)


def _seen(num: int, count: int) -> float:
    """The chance of ``count`` heads of ``num`` fair coins; 0 where it is too small for a float."""
    return math.comb(num, count) / 2**num


def newcombe(both: int, only_one: int, only_other: int, neither: int, z: float = Z95) -> tuple[float, float]:
    """Interval of the difference of two paired shares, first minus second (Newcombe 1998, method 10).

    The Wilson intervals of both shares are combined as the sides of a triangle, with the correlation of the pairs as
    the angle. (-1, 1) without a pair.
    """
    num = both + only_one + only_other + neither
    if num == 0:
        return -1.0, 1.0
    first, second = (both + only_one) / num, (both + only_other) / num
    (low1, high1), (low2, high2) = wilson(both + only_one, num, z), wilson(both + only_other, num, z)
    phi = _phi(both, only_one, only_other, neither)
    down, up = (first - low1, high2 - second), (high1 - first, second - low2)
    difference = first - second
    return difference - _third_side(*down, phi), difference + _third_side(*up, phi)


def _phi(both: int, only_one: int, only_other: int, neither: int) -> float:
    """The correlation of the pairs, corrected for continuity as in the paper; 0 where a margin is empty."""
    margins = (both + only_one) * (only_other + neither) * (both + only_other) * (only_one + neither)
    if margins == 0:
        return 0.0
    cross: float = both * neither - only_one * only_other
    if cross > 0:
        cross = max(cross - (both + only_one + only_other + neither) / 2, 0)
    return cross / math.sqrt(margins)


def _third_side(one: float, other: float, cosine: float) -> float:
    return math.sqrt(max(0.0, one * one - 2 * cosine * one * other + other * other))


def min_detectable(discordant: int, num: int, power: float = POWER) -> float | None:
    """The smallest difference of two paired shares that a 5 % test on ``num`` problems finds with ``power``.

    ``(z_0.975 + z_power) * sqrt(discordant share / num)`` (Connor 1987, without its small second term). None where
    the methods never differ, as nothing then says how often they would.
    """
    if num == 0 or discordant == 0:
        return None
    return (Z95 + NormalDist().inv_cdf(power)) * math.sqrt(discordant) / num


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values, in the order given: the chance of one false alarm in all stays below 5 %."""
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = running
    return adjusted
