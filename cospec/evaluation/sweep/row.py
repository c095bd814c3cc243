"""One cell as one row of the table: every number of `docs/sweep.md`, those of a clock under "timing"."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from cospec.engine.metrics import ratio
from cospec.engine.record import Sampling
from cospec.evaluation.acceleration import acceleration_of, steps_of
from cospec.evaluation.paired import PairedCost, Ratio, paired_accuracy, paired_cost
from cospec.evaluation.result import MethodResult
from cospec.evaluation.statistics import holm

#: A text rambles that is at least so many times as long as the target's of the same sample.
RAMBLING = 2.0

_SCORES = (
    "right",
    "num",
    "accuracy",
    "ci95",
    "num_no_answer",
    "num_failed",
    "num_tokens",
    "num_rounds",
    "tokens_per_round",
    "tokens_per_round_ci95",
    "l_accept",
    "mean_acceptance_length",
    "acceptance_rate",
    "acceptance_by_position",
    "accepted_lengths",
    "keep_rate",
    "truncated",
    "repetitive",
)


@dataclasses.dataclass(frozen=True, slots=True)
class CellKey:
    """What a cell is: a row of the table begins with it."""

    task: str
    sampling: Sampling
    method: str
    rule: str
    num_draft_tokens: int | None
    drafter: str | None = "model"
    parameters: tuple[tuple[str, Any], ...] = ()


def cell_row(
    key: CellKey, result: MethodResult, target: MethodResult, c_rel: float, margin: float, *, one_machine: bool = True
) -> dict[str, Any]:
    """The numbers of a cell beside those of the target alone on the same samples, as JSON holds them.

    Without ``one_machine`` there are no ratios of seconds.
    """
    score = dataclasses.asdict(result.score())
    timing = result.timing()
    cost = paired_cost(result.samples, target.samples)
    return {
        "task": key.task,
        **dataclasses.asdict(key.sampling),
        "method": key.method,
        "rule": key.rule,
        "parameters": {name: _written(value) for name, value in key.parameters},
        "num_draft_tokens": key.num_draft_tokens,
        "drafter": key.drafter,
        "bonus": result.bonus,
        **{name: _listed(score[name]) for name in _SCORES},
        **_difference(result, target, margin),
        **_ratio("length_ratio", cost.length if cost else None),
        "rambling": rambling(result, target),
        "timing": {
            "seconds": timing.seconds,
            "draft_s": timing.draft_s,
            "target_s": timing.target_s,
            "arbiter_s": timing.arbiter_s,
            "tokens_per_s": timing.tokens_per_s,
            "cpu_share": timing.cpu_share,
            **_speeds(key, result, target, c_rel, cost if one_machine else None),
        },
    }


def _written(value: Any) -> Any:
    """A parameter as JSON has it: no infinite numbers there, so their names stand for them."""
    return str(value) if isinstance(value, float) and math.isinf(value) else value


def _difference(result: MethodResult, target: MethodResult, margin: float) -> dict[str, Any]:
    """Accuracy minus the target's, paired by sample; nothing for the target itself."""
    found = None if result is target else paired_accuracy(result.outcomes, target.outcomes, margin)
    names = ("difference", "gained", "lost", "p", "p_inferior", "min_detectable")
    numbers = {name: getattr(found, name) if found else None for name in names}
    return numbers | {"difference_ci95": list(found.ci95) if found else None, "p_adjusted": None}


def _speeds(
    key: CellKey, result: MethodResult, target: MethodResult, c_rel: float, cost: PairedCost | None
) -> dict[str, Any]:
    """The modelled speed-up as its two factors, and what the clock says of the same problems."""
    num_steps = steps_of(key.num_draft_tokens or 0, result.bonus, result.rule)
    model = acceleration_of(result, target, num_steps, c_rel)
    return {
        "c_rel": c_rel,
        "modelled_speedup": model.speedup if model else None,
        "length_factor": model.length if model else None,
        "round_factor": model.rounds if model else None,
        **_ratio("clock_speedup", cost.time if cost else None),
        **_ratio("tokens_per_s_ratio", cost.speed if cost else None),
    }


def rambling(result: MethodResult, target: MethodResult) -> float | None:
    """The share of texts at least `RAMBLING` times as long as the target's own of the same sample."""
    lengths = {sample.key: sample.num_tokens for sample in target.samples}
    pairs = [(s.num_tokens, lengths[s.key]) for s in result.samples if s.key in lengths]
    return ratio(sum(mine >= RAMBLING * theirs for mine, theirs in pairs), len(pairs))


def adjusted(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with Holm's p-values; a family is all cells of one task and sampling."""
    families: dict[tuple[Any, ...], list[int]] = {}
    found = [dict(row) for row in rows]
    for index, row in enumerate(found):
        if row["p"] is not None:
            families.setdefault((row["task"], *(row[name] for name in Sampling.__slots__)), []).append(index)
    for members in families.values():
        for index, p in zip(members, holm([found[index]["p"] for index in members]), strict=True):
            found[index]["p_adjusted"] = p
    return found


def _ratio(name: str, found: Ratio | None) -> dict[str, Any]:
    interval = found.ci95 if found else None
    return {name: found.value if found else None, f"{name}_ci95": list(interval) if interval else None}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
