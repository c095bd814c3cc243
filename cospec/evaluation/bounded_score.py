"""Score test and interval of bounded means over problems: Wilson's and Tango's for problems with several samples.

Columns (n, 2) hold one row per problem: a sum over its samples, and how many these are. What is asked about is the
ratio of their sums, which lies between two ``bounds``: 0 and 1 for a share, -1 and 1 for a difference of shares.

The variance is that of the most likely distribution over problems whose mean is the value asked about. Where the
problems seen do not reach that mean, the rest of its mass lies on a bound: so problems that all agree still leave
room for some, not yet seen, that do not. With one sample a problem this is Wilson's (1927) score for a share and
Tango's (1998) for a difference. Scores are compared with Student's t instead of the normal distribution, which keeps
the level on few problems.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from cospec.evaluation.resampling import Floats
from cospec.evaluation.statistics import Z95

Bounds = tuple[float, float]

_HALVINGS = 40


def score(columns: Floats, value: float, bounds: Bounds) -> float:
    """Standard errors from ``value`` up to the ratio that was seen; infinite where the data rule ``value`` out."""
    distance = _ratio(columns) - value
    return _in_errors(distance, _squared_error(columns, value, bounds))


def score_test(columns: Floats, value: float, bounds: Bounds) -> float:
    """One-sided p of "the ratio is ``value`` or less"; 1 below two problems, which show no spread."""
    if len(columns) < 2:
        return 1.0
    freedom, found = len(columns) - 1, score(columns, value, bounds)
    # Student's t as a normal quantile (Wallace 1959): off by less than 0.002 in probability from 2 degrees on.
    normal = _stretch(freedom) * math.sqrt(freedom * math.log1p(found**2 / freedom))
    return NormalDist().cdf(-math.copysign(normal, found))


def score_interval(strata: Sequence[Floats], bounds: Bounds) -> Bounds:
    """The 95 % interval of the mean over tasks of their ratios; of a single ratio, for one task.

    Of one task: the values that `score_test` does not reject at 2.5 % on either side. Of several: all ratios are moved
    towards a bound by the same part of their way, and the squared errors there add up. The bounds for a problem a task.
    """
    freedom = sum(map(len, strata)) - len(strata)
    if freedom < 1:
        return bounds
    # `score_test` solved for the score.
    most = math.sqrt(freedom * math.expm1((Z95 / _stretch(freedom)) ** 2 / freedom))
    low, high = (_edge(strata, bound, bounds, most) for bound in bounds)
    return low, high


def _edge(strata: Sequence[Floats], bound: float, bounds: Bounds, most: float) -> float:
    """The mean of the ratios where their score is ``most``, on the way to ``bound``."""
    seen = np.array([_ratio(columns) for columns in strata])
    inside, outside = 0.0, 1.0
    # To a millionth: finer than anything that is printed.
    while outside - inside > 1e-6:
        part = (inside + outside) / 2
        values = seen + part * (bound - seen)
        squared = sum(_squared_error(c, float(value), bounds) for c, value in zip(strata, values, strict=True))
        if abs(_in_errors(float((seen - values).sum()), squared)) <= most:
            inside = part
        else:
            outside = part
    return float((seen + outside * (bound - seen)).mean())


def _ratio(columns: Floats) -> float:
    return float(columns[:, 0].sum() / columns[:, 1].sum())


def _in_errors(distance: float, squared_error: float) -> float:
    if distance == 0:
        return 0.0
    return distance / math.sqrt(squared_error) if squared_error > 0 else math.copysign(math.inf, distance)


def _squared_error(columns: Floats, value: float, bounds: Bounds) -> float:
    """Of the ratio, were it ``value``: the variance of the most likely distribution over problems, by their number.

    Its weights are ``1 / (n (1 + tilt * rest))``, as in empirical likelihood (Owen 1988); what they lack to 1 lies on
    the bound.
    """
    size = float(columns[:, 1].mean())
    # Mean 0 if the ratio is ``value``; the largest problem sets how far a problem not yet seen may lie away.
    rests = (columns[:, 0] - value * columns[:, 1]) / size
    is_above = bool(rests.sum() > 0)
    far = abs(bounds[0 if is_above else 1] - value) * float(columns[:, 1].max()) / size
    if far <= 0:
        return 0.0
    rests = rests if is_above else -rests
    low, high = 0.0, 1 / far
    for _ in range(_HALVINGS):
        tilt = (low + high) / 2
        low, high = (tilt, high) if float((rests / (1 + tilt * rests)).sum()) > 0 else (low, tilt)
    weights = 1 / (len(rests) * (1 + low * rests))
    return float((weights * rests**2).sum() + max(0.0, 1 - weights.sum()) * far**2) / len(rests)


def _stretch(freedom: int) -> float:
    return (8 * freedom + 1) / (8 * freedom + 3)
