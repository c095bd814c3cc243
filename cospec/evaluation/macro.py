"""Averages over tasks, every task with the same weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cospec.evaluation.bounded_score import score_interval
from cospec.evaluation.comparison import Interval, Outcomes, mean_ratio, sums_by_problem
from cospec.evaluation.paired import BOUNDS, Ratio, cost_columns, difference_columns, length_ratio, speed_ratio
from cospec.evaluation.resampling import Floats, Statistic, sign_flip_test, stratified_interval
from cospec.evaluation.result import Evaluation, MethodResult


@dataclass(frozen=True, slots=True)
class MacroAccuracy:
    """The mean over tasks of a method's accuracy, and of its difference to the target alone (None: not compared).

    Intervals are score intervals over problems; ``p`` is that of the sign-flip permutation test on the difference.
    """

    accuracy: float
    ci95: Interval
    difference: float | None
    difference_ci95: Interval | None
    p: float | None


@dataclass(frozen=True, slots=True)
class MacroCost:
    """Geometric means over tasks of a method's length and speed ratios to the target alone."""

    length: Ratio
    speed: Ratio


def macro_accuracy(evaluation: Evaluation, name: str) -> MacroAccuracy | None:
    """Of the method ``name``; None where a task has no judged sample of it."""
    pairs = [(result.outcomes, reference) for result, reference in _with_target(evaluation, name)]
    values = [sums_by_problem({key: (float(hit), 1.0) for key, hit in outcomes.items()}) for outcomes, _ in pairs]
    if not all(map(len, values)):
        return None
    differences = [difference_columns(*pair) for pair in pairs]
    compared = all(map(len, differences))
    return MacroAccuracy(
        accuracy=_mean(values),
        ci95=score_interval(values, (0.0, 1.0)),
        difference=_mean(differences) if compared else None,
        difference_ci95=score_interval(differences, BOUNDS) if compared else None,
        p=sign_flip_test(np.concatenate([c[:, 0] / c[:, 1].sum() for c in differences])) if compared else None,
    )


def macro_cost(evaluation: Evaluation, name: str) -> MacroCost | None:
    """Of the method ``name``; None without the target alone."""
    strata = []
    for task in evaluation.tasks:
        method, target = _named(task.results, name), task.by_rule("target")
        columns = cost_columns(method.samples, target.samples) if target else np.zeros((0, 4))
        if not len(columns):
            return None
        strata.append(columns)
    return MacroCost(_geometric(strata, length_ratio), _geometric(strata, speed_ratio))


def _geometric(strata: Sequence[Floats], statistic: Statistic) -> Ratio:
    def over_tasks(means: Floats) -> Floats:
        return np.exp(np.log(statistic(means)).mean(-1))

    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(over_tasks(np.stack([columns.mean(0) for columns in strata])))
    return Ratio(value if np.isfinite(value) else None, stratified_interval(strata, over_tasks))


def _with_target(evaluation: Evaluation, name: str) -> list[tuple[MethodResult, Outcomes]]:
    found = []
    for task in evaluation.tasks:
        method, target = _named(task.results, name), task.by_rule("target")
        found.append((method, target.outcomes if target and target is not method else {}))
    return found


def _named(results: Sequence[MethodResult], name: str) -> MethodResult:
    return next(result for result in results if result.name == name)


def _mean(strata: Sequence[Floats]) -> float:
    return float(np.mean([mean_ratio(columns.mean(0)) for columns in strata]))
