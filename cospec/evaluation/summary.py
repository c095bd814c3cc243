"""The summary of an evaluation as plain JSON: what `cospec eval` and `cospec demo` write, print and plot.

`docs/evaluation.md` defines every number. What a clock measured lies under keys called "timing" and nowhere else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from cospec.evaluation.acceleration import acceleration_of, c_rel_of, steps_of
from cospec.evaluation.comparison import Outcomes, Share, lost, non_nested, recovered, solved_by_neither_alone, union
from cospec.evaluation.macro import macro_accuracy, macro_cost
from cospec.evaluation.paired import MARGIN, PairedAccuracy, Ratio, paired_accuracy, paired_cost, paired_rounds
from cospec.evaluation.result import Evaluation, MethodResult, TaskResult
from cospec.evaluation.sample import RISK_EDGES
from cospec.evaluation.statistics import holm

#: One-sided level of the non-inferiority test: what a two-sided 95 % interval has on each side.
NON_INFERIOR_LEVEL = 0.025

Adjusted = Mapping[str, tuple[float, float]]


def summary(
    evaluation: Evaluation, k: int, margin: float = MARGIN, extra: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """All numbers of an evaluation with ``k`` draft tokens a round; ``extra`` are further entries of tasks.

    The top level is over the problems of all tasks together; "tasks" holds the same of each task, "macro" the means
    over tasks. Comparisons that lack a method are None.
    """
    paired = {task.name: _against_target(task, margin) for task in evaluation.tasks}
    adjusted = _adjust(paired)
    tasks = {
        task.name: _block(task, k, paired[task.name], adjusted[task.name]) | dict((extra or {}).get(task.name, {}))
        for task in evaluation.tasks
    }
    pooled = evaluation.pooled()
    if len(evaluation.tasks) == 1:
        whole = tasks[pooled.name]
    else:
        alone = {"all": _against_target(pooled, margin)}
        whole = _block(pooled, k, alone["all"], _adjust(alone)["all"])
    return whole | {"tasks": tasks, "macro": _macro(evaluation)}


def _against_target(task: TaskResult, margin: float) -> dict[str, PairedAccuracy]:
    target = task.by_rule("target")
    if target is None:
        return {}
    found = {r.name: paired_accuracy(r.outcomes, target.outcomes, margin) for r in task.results if r is not target}
    return {name: result for name, result in found.items() if result is not None}


def _adjust(paired: Mapping[str, Mapping[str, PairedAccuracy]]) -> Mapping[str, Adjusted]:
    """Holm-adjusted (p, p_inferior) by task and method; a family is the tests of one method over the tasks."""
    adjusted: dict[str, dict[str, tuple[float, float]]] = {task: {} for task in paired}
    for name in dict.fromkeys(name for results in paired.values() for name in results):
        tasks = [task for task, results in paired.items() if name in results]
        different = holm([paired[task][name].p for task in tasks])
        inferior = holm([paired[task][name].p_inferior for task in tasks])
        for task, p, p_inferior in zip(tasks, different, inferior, strict=True):
            adjusted[task][name] = (p, p_inferior)
    return adjusted


# --- one task, or all problems together ------------------------------------------------------------------------------


def _block(task: TaskResult, k: int, paired: Mapping[str, PairedAccuracy], adjusted: Adjusted) -> dict[str, Any]:
    draft, target = _outcomes(task.by_rule("draft")), _outcomes(task.by_rule("target"))
    both = union(draft, target) if draft and target else None
    only_draft = non_nested(draft, target) if draft and target else None
    neither = solved_by_neither_alone(draft, draft, target) if draft and target else None
    shares = {result.name: _complementarity(result, draft, target) for result in task.results if _drafts(result)}
    arbiters = {name: shares[name] for name in (result.name for result in task.arbiters)}
    alone = task.by_rule("target")
    c_rel = c_rel_of(task.results, alone, k) if alone else None
    return {
        "n": task.num_problems,
        "k": k,
        "methods": {r.name: _method(r, task, k, c_rel, paired.get(r.name), adjusted.get(r.name)) for r in task.results},
        "union_accuracy": both.share if both else None,
        "non_nested": only_draft.count if only_draft else None,
        "recovered_share": {name: share["recovered"]["share"] for name, share in arbiters.items()},
        "lost_share": {name: share["lost"]["share"] for name, share in arbiters.items()},
        "solved_by_neither_alone": {name: share["of_neither"]["share"] for name, share in arbiters.items()},
        "num_solved_by_neither_alone": {name: share["of_neither"]["count"] for name, share in arbiters.items()},
        "num_neither_alone": neither.num if neither else None,
        "mcnemar_p": {name: paired[name].p if name in paired else None for name in arbiters},
        "complementarity": {"union": _share(both), "only_draft": _share(only_draft), "methods": shares},
        "timing": {"seconds": task.seconds},
    }


def _drafts(result: MethodResult) -> bool:
    return result.rule not in ("draft", "target")


def _complementarity(result: MethodResult, draft: Outcomes, target: Outcomes) -> dict[str, Any]:
    outcomes = result.outcomes
    return {
        "recovered": _share(recovered(outcomes, draft, target)),
        "lost": _share(lost(outcomes, target)),
        "of_neither": _share(solved_by_neither_alone(outcomes, draft, target)),
    }


def _share(share: Share | None) -> dict[str, Any] | None:
    return None if share is None else share.to_json()


def _method(
    result: MethodResult,
    task: TaskResult,
    k: int,
    c_rel: float | None,
    paired: PairedAccuracy | None,
    adjusted: tuple[float, float] | None,
) -> dict[str, Any]:
    strict, target = task.by_rule("strict"), task.by_rule("target")
    numbers = _plain(result.score())
    if not result.is_arbiter:
        del numbers["mean_reward"]
    cost = paired_cost(result.samples, target.samples) if target else None
    compared = _paired(paired, adjusted)
    return numbers | {
        "rule": result.rule,
        "bonus": result.bonus,
        **_ratio("tokens_per_round_ratio", paired_rounds(result.samples, strict.samples) if strict else None),
        **_ratio("length_ratio", cost.length if cost else None),
        "p_vs_target": paired.p if paired else None,
        "p_adjusted": compared["p_adjusted"] if compared else None,
        "vs_target": compared,
        "by_position": _by_position(result),
        "by_risk": _by_risk(result),
        "timing": _plain(result.timing())
        | _ratio("speed_ratio", cost.speed if cost else None)
        | _ratio("time_ratio", cost.time if cost else None)
        | {"model": _acceleration(result, target, k, c_rel) if target else None},
    }


def _acceleration(result: MethodResult, target: MethodResult, k: int, c_rel: float | None) -> dict[str, Any] | None:
    """The acceleration model with c_rel as it was in this run, None for a method that drafts nothing."""
    num_steps = steps_of(k, result.bonus, result.rule)
    found = acceleration_of(result, target, num_steps, c_rel)
    if found is None:
        return None
    return {
        "c_rel": c_rel if num_steps else None,
        "speedup": found.speedup,
        "length_factor": found.length,
        "round_factor": found.rounds,
    }


def _paired(paired: PairedAccuracy | None, adjusted: tuple[float, float] | None) -> dict[str, Any] | None:
    if paired is None or adjusted is None:
        return None
    p, p_inferior = adjusted
    return _plain(paired) | {
        "half_width": paired.half_width,
        "p_adjusted": p,
        "p_inferior_adjusted": p_inferior,
        "not_inferior": p_inferior < NON_INFERIOR_LEVEL,
    }


def _by_position(result: MethodResult) -> dict[str, Any]:
    counts = result.by_position()
    return {
        "num_drafted": [drafted for drafted, _ in counts],
        "num_accepted": [accepted for _, accepted in counts],
        "acceptance": [accepted / drafted if drafted else None for drafted, accepted in counts],
    }


def _by_risk(result: MethodResult) -> dict[str, Any]:
    counts = result.by_risk()
    return {
        "edges": [0.0, *RISK_EDGES, 1.0],
        "num_mismatches": [mismatches for mismatches, _ in counts],
        "num_kept": [kept for _, kept in counts],
        "keep_rate": [kept / mismatches if mismatches else None for mismatches, kept in counts],
    }


# --- over tasks ------------------------------------------------------------------------------------------------------


def _macro(evaluation: Evaluation) -> dict[str, Any]:
    methods = {}
    for name in (result.name for result in evaluation.tasks[0].results):
        accuracy, cost = macro_accuracy(evaluation, name), macro_cost(evaluation, name)
        empty: dict[str, Any] = {"accuracy": None, "ci95": None, "difference": None, "difference_ci95": None, "p": None}
        methods[name] = (_plain(accuracy) if accuracy else empty) | {
            **_ratio("length_ratio", cost.length if cost else None),
            "timing": _ratio("speed_ratio", cost.speed if cost else None),
        }
    return {"num_tasks": len(evaluation.tasks), "methods": methods}


def _ratio(name: str, ratio: Ratio | None) -> dict[str, Any]:
    value, interval = (ratio.value, ratio.ci95) if ratio else (None, None)
    return {name: value, f"{name}_ci95": list(interval) if interval else None}


def _outcomes(result: MethodResult | None) -> Outcomes:
    """Empty for a method that was not run, which makes its comparisons None."""
    return {} if result is None else result.outcomes


def _plain(value: Any) -> dict[str, Any]:
    """A dataclass as JSON holds it: tuples are lists, so that a summary equals itself read back."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in dataclasses.asdict(value).items()}
