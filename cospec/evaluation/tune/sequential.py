"""A sequential test of a mean by betting: look after every sample, stop whenever you like, the level still holds.

Waudby-Smith and Ramdas 2023 ("Estimating means of bounded random variables by betting"): somebody who bets against a
hypothesis at its own odds multiplies their capital by 20 with a chance of at most 1/20 if it is true, however long they
play (Ville's inequality). Capital is averaged over fixed bets, small and large, so that no bet has to be guessed.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping

import numpy as np

#: Bets as shares of the largest one that cannot ruin: small ones for noisy differences, large ones for rare ones.
_SHARES = np.geomspace(0.005, 0.99, 20)


class Bets:
    """The capital of bets against "the mean of values in [-1, 1] is ``bound`` or less", -1 < ``bound`` < 1.

    Values must be independent draws, or drawn without replacement, in an order fixed before they are seen.
    """

    def __init__(self, bound: float) -> None:
        assert -1 < bound < 1, f"a bound of {bound}"
        self.bound, self.num = bound, 0
        # The worst value, -1, leaves 1 - bet * (1 + bound) of the capital.
        self._bets = _SHARES / (1 + bound)
        self._logs = np.zeros_like(self._bets)
        self._best = 0.0

    def add(self, value: float) -> None:
        """Take in one value."""
        assert -1 <= value <= 1, f"a value of {value}"
        self.num += 1
        self._logs += np.log1p(self._bets * (value - self.bound))
        self._best = max(self._best, self.log_capital)

    @property
    def log_capital(self) -> float:
        """Logarithm of the capital, which began at 1."""
        return _log_mean(self._logs)

    def log_capital_after(self, counts: Mapping[float, float]) -> float:
        """The same if these numbers of these values came next."""
        logs = sum(num * np.log1p(self._bets * (value - self.bound)) for value, num in counts.items())
        return _log_mean(self._logs + logs)

    @property
    def p(self) -> float:
        """A p-value at any time: one over the largest capital so far."""
        return math.exp(-self._best)


def least_problems(budget: float, level: float) -> int:
    """Problems after which a method that never changes an answer is certain, at ``level``, to keep ``budget``.

    Fewer are enough only for one that gains accuracy.
    """
    bets = Bets(-budget)
    return bisect.bisect_left(range(10**15), -math.log(level), key=lambda num: bets.log_capital_after({0.0: num}))


class LossTest:
    """Does a method lose more than ``budget`` of its accuracy to a reference? Either answer, as soon as it is certain.

    Differences are those of one problem: right samples of the method minus right ones of the reference, as shares.
    """

    def __init__(self, budget: float) -> None:
        self.budget, self.total, self.num, self.gained = budget, 0.0, 0, 0
        self._loses = Bets(-budget)
        self._keeps = Bets(budget)

    def add(self, difference: float) -> None:
        """Take in one problem."""
        self.num += 1
        self.total += difference
        self.gained += difference > 0
        self._loses.add(difference)
        self._keeps.add(-difference)

    @property
    def p_loses(self) -> float:
        """Of "it loses ``budget`` or more": small where the budget is certainly kept."""
        return self._loses.p

    @property
    def p_keeps(self) -> float:
        """Of "it loses ``budget`` or less": small where the budget is certainly exceeded."""
        return self._keeps.p

    def can_keep(self, level: float, num_left: int) -> bool:
        """Whether ``num_left`` more problems may make ``p_loses`` as small as ``level``.

        They are taken to lose no right answer, and to gain one as often as those before and one more.
        """
        gained = num_left * (self.gained + 1) / (self.num + 1)
        best = self._loses.log_capital_after({1.0: gained, 0.0: num_left - gained})
        return max(best, -math.log(self.p_loses)) >= -math.log(level)

    @property
    def mean(self) -> float:
        """The mean difference so far."""
        return self.total / self.num if self.num else 0.0


def mean_bounds(values: list[float], level: float = 0.05) -> tuple[float, float]:
    """The values that the mean may have at this moment, each side with an error of ``level`` / 2: [-1, 1] at first.

    A confidence sequence: all intervals, at all times, cover together with a chance of 1 - ``level``.
    """
    seen = np.asarray(values, dtype=np.float64)
    return -_upper(-seen, level / 2), _upper(seen, level / 2)


def _upper(values: np.ndarray, level: float) -> float:
    """The largest mean that bets against "this or more" do not rule out."""
    low, high = (float(values.mean()), 1.0) if len(values) else (1.0, 1.0)
    for _ in range(40):
        middle = (low + high) / 2
        # "The mean is middle or more" is "the mean of the negated is -middle or less".
        if _log_capital(-values, -middle) >= -math.log(level):
            high = middle
        else:
            low = middle
    return high


def _log_mean(logs: np.ndarray) -> float:
    """The logarithm of the mean of what ``logs`` are the logarithms of."""
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).mean()))


def _log_capital(values: np.ndarray, bound: float) -> float:
    bound = min(max(bound, -1 + 1e-9), 1 - 1e-9)
    logs = np.log1p(np.outer(_SHARES / (1 + bound), values - bound)).sum(axis=1)
    return _log_mean(logs)
