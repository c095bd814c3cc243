"""The summary of an evaluation as plain JSON: what `cospec eval` and `cospec demo` write, print and plot."""

from __future__ import annotations

import dataclasses
from typing import Any

from cospec.engine.metrics import ratio
from cospec.evaluation.comparison import (
    Outcomes,
    lost_share,
    non_nested,
    paired_p,
    recovered_share,
    solved_by_neither_alone,
    union_accuracy,
)
from cospec.evaluation.evaluate import Evaluation, MethodResult


def summary(evaluation: Evaluation, k: int) -> dict[str, Any]:
    """All numbers of an evaluation with ``k`` draft tokens a round; comparisons lacking a method are None.

    The dictionaries of comparisons have the arbiters' names as keys. ``speed_ratio`` is tokens/s relative to the
    target alone, ``tokens_per_round_ratio`` relative to `strict`, ``p_vs_target`` the paired p of any method.
    """
    draft, target = _outcomes(evaluation.by_rule("draft")), _outcomes(evaluation.by_rule("target"))
    arbiters = {result.name: result.outcomes for result in evaluation.arbiters}
    neither = {name: solved_by_neither_alone(outcomes, draft, target) for name, outcomes in arbiters.items()}
    return {
        "n": evaluation.num_problems,
        "k": k,
        "methods": {result.name: _method(result, evaluation, target) for result in evaluation.results},
        "union_accuracy": union_accuracy(draft, target),
        "non_nested": non_nested(draft, target) if draft and target else None,
        "recovered_share": {name: recovered_share(outcomes, draft, target) for name, outcomes in arbiters.items()},
        "lost_share": {name: lost_share(outcomes, target) for name, outcomes in arbiters.items()},
        "solved_by_neither_alone": {name: ratio(solved, num) for name, (solved, num) in neither.items()},
        "num_solved_by_neither_alone": {name: solved for name, (solved, _) in neither.items()},
        "num_neither_alone": solved_by_neither_alone(draft, draft, target)[1] if draft and target else None,
        "mcnemar_p": {name: paired_p(outcomes, target) for name, outcomes in arbiters.items()},
        "seconds": evaluation.seconds,
    }


def _method(result: MethodResult, evaluation: Evaluation, target: Outcomes) -> dict[str, Any]:
    score = result.score()
    numbers = dataclasses.asdict(score) | {"ci95": list(score.ci95)}
    if not result.is_arbiter:
        del numbers["mean_reward"]
    return numbers | {
        "rule": result.rule,
        "bonus": result.bonus,
        "speed_ratio": _relative(result, evaluation.by_rule("target"), "tokens_per_s"),
        "tokens_per_round_ratio": _relative(result, evaluation.by_rule("strict"), "tokens_per_round"),
        "p_vs_target": None if result.rule == "target" else paired_p(result.outcomes, target),
    }


def _relative(result: MethodResult, reference: MethodResult | None, name: str) -> float | None:
    mine = getattr(result.score(), name)
    other = getattr(reference.score(), name) if reference else None
    return mine / other if mine is not None and other else None


def _outcomes(result: MethodResult | None) -> Outcomes:
    """Empty for a method that was not run, which makes its comparisons None."""
    return {} if result is None else result.outcomes
