"""Two methods on the same problems: is one right more often, is it faster, does it write more?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from cospec.evaluation.bounded_score import score_interval, score_test
from cospec.evaluation.comparison import Interval, Outcomes, shared_keys, sums_by_problem
from cospec.evaluation.resampling import Floats, Statistic, bootstrap_interval, sign_flip_test
from cospec.evaluation.sample import Sample
from cospec.evaluation.statistics import POWER, Z95, mcnemar, mcnemar_mid_p, min_detectable, newcombe

#: How much accuracy a method may lose and still be called not inferior.
MARGIN = 0.02
#: What the difference of two shares lies between.
BOUNDS = (-1.0, 1.0)


@dataclass(frozen=True, slots=True)
class PairedAccuracy:
    """The accuracy of a method minus that of a reference, over the ``num_problems`` both were judged on.

    ``gained`` and ``lost`` count samples that only one of the two got right. ``p`` is two-sided; ``p_mid`` is its
    mid-p form, None with repeats. ``p_inferior`` is the one-sided p of "worse by ``margin`` or more". ``test`` and
    ``interval`` name how p and ci95 were made. ``min_detectable`` is what the 5 % test would find with 80 % power.
    """

    num_problems: int
    gained: int
    lost: int
    difference: float
    ci95: Interval
    interval: str
    p: float
    p_mid: float | None
    test: str
    margin: float
    p_inferior: float
    min_detectable: float | None

    @property
    def half_width(self) -> float:
        """Half the length of the interval of the difference."""
        return (self.ci95[1] - self.ci95[0]) / 2


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of a method's sum to a reference's, with the bootstrap interval over problems."""

    value: float | None
    ci95: Interval | None


def paired_accuracy(method: Outcomes, reference: Outcomes, margin: float = MARGIN) -> PairedAccuracy | None:
    """Compare accuracies; None where no problem was judged under both.

    One sample a problem: exact McNemar and Newcombe's interval. Several: a sign-flip permutation test on the problems'
    differences and the score interval over problems. Non-inferiority is the score test over problems in both.
    """
    assert 0 < margin < 1, f"a margin of {margin}"
    keys = shared_keys(method, reference)
    if not keys:
        return None
    gained = sum(method[key] and not reference[key] for key in keys)
    lost = sum(reference[key] and not method[key] for key in keys)
    columns = difference_columns(method, reference)
    if len(columns) < len(keys):
        return _of_repeats(columns, gained, lost, margin)
    both, num = sum(method[key] and reference[key] for key in keys), len(keys)
    return PairedAccuracy(
        num_problems=num,
        gained=gained,
        lost=lost,
        difference=(gained - lost) / num,
        ci95=newcombe(both, gained, lost, num - both - gained - lost),
        interval="Newcombe",
        p=mcnemar(gained, lost),
        p_mid=mcnemar_mid_p(gained, lost),
        test="exact McNemar",
        margin=margin,
        p_inferior=score_test(columns, -margin, BOUNDS),
        min_detectable=min_detectable(gained + lost, num),
    )


def difference_columns(method: Outcomes, reference: Outcomes) -> Floats:
    """Per problem (n, 2): right samples of the method minus right ones of the reference, and the samples compared."""
    keys = shared_keys(method, reference)
    return sums_by_problem({key: (float(method[key]) - float(reference[key]), 1.0) for key in keys})


def _of_repeats(columns: Floats, gained: int, lost: int, margin: float) -> PairedAccuracy:
    difference, num = float(columns[:, 0].sum() / columns[:, 1].sum()), len(columns)
    # The standard error of a ratio of sums over problems (Cochran 1977, section 6.4).
    rest = columns[:, 0] - difference * columns[:, 1]
    error = math.sqrt(float((rest**2).sum()) * num / (num - 1)) / float(columns[:, 1].sum()) if num > 1 else math.inf
    return PairedAccuracy(
        num_problems=num,
        gained=gained,
        lost=lost,
        difference=difference,
        ci95=score_interval([columns], BOUNDS),
        interval="score, over problems",
        p=sign_flip_test(columns[:, 0]),
        p_mid=None,
        test="sign-flip permutation over problems",
        margin=margin,
        p_inferior=score_test(columns, -margin, BOUNDS),
        min_detectable=(Z95 + NormalDist().inv_cdf(POWER)) * error if 0 < error < math.inf else None,
    )


@dataclass(frozen=True, slots=True)
class PairedCost:
    """Ratios of a method to a reference: text ``length`` in tokens, ``speed`` in tokens/s, and ``time`` a problem.

    ``time`` is the reference's seconds by the method's: above 1 the method is done sooner, longer texts included.
    """

    length: Ratio
    speed: Ratio
    time: Ratio


def paired_cost(method: Sequence[Sample], reference: Sequence[Sample]) -> PairedCost | None:
    """Compare tokens and active seconds over the samples both have; None where they share none."""
    columns = cost_columns(method, reference)
    if not len(columns):
        return None
    return PairedCost(ratio_of(columns, length_ratio), ratio_of(columns, speed_ratio), ratio_of(columns, time_ratio))


def paired_rounds(method: Sequence[Sample], reference: Sequence[Sample]) -> Ratio:
    """Tokens per round of the method by those of the reference, over the samples both have."""
    by_key = {sample.key: sample for sample in reference}
    pairs = [(mine, by_key[mine.key]) for mine in method if mine.key in by_key]
    columns = sums_by_problem({m.key: (m.num_tokens, m.num_rounds, o.num_tokens, o.num_rounds) for m, o in pairs})
    return ratio_of(columns, round_ratio) if len(columns) else Ratio(None, None)


def round_ratio(means: Floats) -> Floats:
    """Of means (..., 4) of tokens and rounds of both: tokens per round of the first by those of the second."""
    return (means[..., 0] * means[..., 3]) / (means[..., 1] * means[..., 2])


def cost_columns(method: Sequence[Sample], reference: Sequence[Sample]) -> Floats:
    """Per problem (n, 4): tokens and seconds of the method, then of the reference, summed over shared repeats."""
    by_key = {sample.key: sample for sample in reference}
    pairs = [(sample, by_key[sample.key]) for sample in method if sample.key in by_key]
    return sums_by_problem(
        {mine.key: (mine.num_tokens, mine.timing.active_s, o.num_tokens, o.timing.active_s) for mine, o in pairs}
    )


def length_ratio(means: Floats) -> Floats:
    """Of `cost_columns` means (..., 4): tokens of the method by tokens of the reference."""
    return means[..., 0] / means[..., 2]


def speed_ratio(means: Floats) -> Floats:
    """Of `cost_columns` means (..., 4): tokens/s of the method by tokens/s of the reference."""
    return (means[..., 0] * means[..., 3]) / (means[..., 1] * means[..., 2])


def time_ratio(means: Floats) -> Floats:
    """Of `cost_columns` means (..., 4): seconds of the reference by seconds of the method."""
    return means[..., 3] / means[..., 1]


def ratio_of(columns: Floats, statistic: Statistic) -> Ratio:
    """The statistic of `cost_columns` and its interval; None for what divides by 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(columns.mean(0)))
    return Ratio(value if math.isfinite(value) else None, bootstrap_interval(columns, statistic))
