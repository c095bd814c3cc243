"""Interval and paired test on counts; pure functions, no imports beyond the standard library."""

import math

#: The normal quantile of a two-sided 95 % interval.
Z95 = 1.959963984540054


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
    # Integers, so that the tail neither under- nor overflows.
    tail = sum(math.comb(num, count) for count in range(fewer + 1))
    return min(1.0, 2 * tail / 2**num)
