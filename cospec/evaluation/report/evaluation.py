"""A directory of `cospec eval` as a report reads it: the summary in typed form, and each sample's verdict."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cospec.engine.metrics import ratio
from cospec.evaluation.comparison import share_of
from cospec.evaluation.report.numbers import Comparison, Interval, MacroNumbers, MethodNumbers
from cospec.evaluation.report.rows import whole_rows
from cospec.evaluation.run import RESULTS, SAMPLES, SETTINGS
from cospec.evaluation.sample import SampleKey
from cospec.evaluation.table import lines
from cospec.scoring.verdict import Verdict

#: (task, method), and within it the id of a problem.
Verdicts = Mapping[tuple[str, str], Mapping[str | int, Verdict]]


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """``whole`` is over all problems, ``tasks`` are its parts where there is more than one, ``macro`` their means.

    ``is_finished`` is False where only samples were found; they are counted, but not compared.
    """

    path: Path
    name: str
    num_draft_tokens: int | None
    whole: Comparison
    tasks: tuple[Comparison, ...]
    macro: tuple[MacroNumbers, ...]
    settings: Mapping[str, Any]
    verdicts: Verdicts
    is_finished: bool

    def described(self) -> str:
        """Size and state, for people."""
        tasks = f" of {len(self.tasks)} tasks" if self.tasks else ""
        state = "" if self.is_finished else ", not finished: counted from the samples written so far"
        return f"{len(self.whole.methods)} methods on {self.whole.num_problems} problems{tasks}{state}"

    def named_alone(self, rule: str) -> str | None:
        """The name of the method of this rule; "draft" and "target" are the models alone."""
        return next((method.name for method in self.whole.methods if method.rule == rule), None)


def read_evaluation(path: Path, name: str) -> EvaluationRun:
    """Read results, settings and samples of a directory; ValueError for files of another version."""
    settings = read_object(path / SETTINGS) if (path / SETTINGS).is_file() else {}
    rows = list(whole_rows(path / SAMPLES)) if (path / SAMPLES).is_file() else []
    is_finished = (path / RESULTS).is_file()
    file = path / (RESULTS if is_finished else SAMPLES)
    try:
        numbers = read_object(path / RESULTS) if is_finished else {}
        if "cells" in numbers:
            raise ValueError(
                f"{file} holds the results of `cospec bench`, which a report does not read: name runs "
                "of `cospec eval` and of training, without it"
            )
        tasks = numbers.get("tasks", {})
        return EvaluationRun(
            path=path,
            name=name,
            num_draft_tokens=numbers.get("k") or settings.get("num_draft_tokens"),
            whole=_comparison("all problems", numbers) if is_finished else _counted(rows, settings),
            tasks=tuple(_comparison(task, part) for task, part in tasks.items()) if len(tasks) > 1 else (),
            macro=_macro(numbers) if len(tasks) > 1 else (),
            settings=numbers.get("settings") or settings,
            verdicts=_verdicts(rows),
            is_finished=is_finished,
        )
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{file} is not of this version ({type(error).__name__}: {error}): run `cospec eval` with the same --out "
            "again, or in a new directory"
        ) from error


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; ValueError names the file of anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON ({error}): it was cut or changed by hand") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a JSON {type(value).__name__}, not an object: it is no record of a run")
    return value


# --- a finished evaluation -------------------------------------------------------------------------------------------


def _comparison(name: str, numbers: Mapping[str, Any]) -> Comparison:
    return Comparison(
        name=name,
        num_problems=int(numbers["n"]),
        methods=tuple(_method(key, row) for key, row in numbers["methods"].items()),
        union_accuracy=numbers.get("union_accuracy"),
        sentences=tuple(lines(numbers)),
    )


def _method(name: str, row: Mapping[str, Any]) -> MethodNumbers:
    timing, compared = row.get("timing") or row, row.get("vs_target") or {}
    return MethodNumbers(
        name=name,
        rule=row["rule"],
        bonus=row.get("bonus"),
        right=row["right"],
        num=row["num"],
        accuracy=row["accuracy"],
        ci95=_interval(row["ci95"]) or (0.0, 1.0),
        difference=compared.get("difference"),
        difference_ci95=_interval(compared.get("ci95")),
        p=row.get("p_vs_target"),
        p_adjusted=row.get("p_adjusted"),
        tokens_per_round=row.get("tokens_per_round"),
        tokens_per_round_ci95=_interval(row.get("tokens_per_round_ci95")),
        target_passes_per_token=row.get("target_passes_per_token"),
        speed_ratio=timing.get("speed_ratio"),
        speed_ratio_ci95=_interval(timing.get("speed_ratio_ci95")),
        length_ratio=row.get("length_ratio"),
        keep_rate=row.get("keep_rate"),
        mean_reward=row.get("mean_reward"),
        num_failed=row.get("num_failed", 0),
        truncated=row.get("truncated"),
        repetitive=row.get("repetitive"),
        num_rounds=row.get("num_rounds", 0),
        accepted_at=tuple((row.get("by_position") or {}).get("num_accepted", ())),
        by_risk=_by_risk(row.get("by_risk") or {}),
    )


def _by_risk(counts: Mapping[str, Sequence[Any]]) -> tuple[tuple[float, float, int, int], ...]:
    edges = counts.get("edges", ())
    columns = (edges[:-1], edges[1:], counts.get("num_mismatches", ()), counts.get("num_kept", ()))
    return tuple(zip(*columns, strict=True))


def _macro(numbers: Mapping[str, Any]) -> tuple[MacroNumbers, ...]:
    return tuple(
        MacroNumbers(
            name=name,
            accuracy=row["accuracy"],
            ci95=_interval(row["ci95"]),
            difference=row["difference"],
            difference_ci95=_interval(row["difference_ci95"]),
            p=row["p"],
            speed_ratio=row["timing"]["speed_ratio"],
            speed_ratio_ci95=_interval(row["timing"]["speed_ratio_ci95"]),
        )
        for name, row in numbers["macro"]["methods"].items()
    )


def _interval(value: Sequence[float] | None) -> Interval | None:
    return None if value is None else (value[0], value[1])


# --- samples ---------------------------------------------------------------------------------------------------------


def _verdicts(rows: Sequence[Mapping[str, Any]]) -> Verdicts:
    """Of the first repeat, the one whose records an evaluation keeps."""
    found: dict[tuple[str, str], dict[str | int, Verdict]] = defaultdict(dict)
    for row in rows:
        if row.get("repeat", 0) == 0:
            verdict = Verdict(row["verdict"], row["extracted"], row["reason"])
            found[row.get("task", ""), row["method"]][row["id"]] = verdict
    return {**found}


def _counted(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Comparison:
    """What an interrupted evaluation has written, without comparisons: methods may stand at different problems."""
    by_method: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_method[row["method"]].append(row)
    problems = {(row.get("task", ""), row["id"]) for row in rows}
    methods = tuple(_count(name, mine, settings.get("methods", {}).get(name)) for name, mine in by_method.items())
    return Comparison("all problems", len(problems), methods, None, ())


def _count(name: str, rows: Sequence[Mapping[str, Any]], described: Any) -> MethodNumbers:
    judged = [row for row in rows if row["verdict"] not in ("timeout", "error")]
    keys = [SampleKey(row.get("task", ""), row["id"], row.get("repeat", 0)) for row in judged]
    accuracy = share_of({key: row["verdict"] == "right" for key, row in zip(keys, judged, strict=True)})
    known = described if isinstance(described, Mapping) else {"rule": described or name}
    rounds = sum(row["num_rounds"] for row in rows)
    return MethodNumbers(
        name=name,
        rule=known["rule"],
        bonus=known.get("bonus"),
        right=accuracy.count,
        num=accuracy.num,
        accuracy=accuracy.share,
        ci95=accuracy.ci95,
        tokens_per_round=ratio(sum(row["num_tokens"] for row in rows), rounds),
        keep_rate=ratio(sum(row["num_kept"] for row in rows), sum(row["num_mismatches"] for row in rows)),
        num_failed=len(rows) - len(judged),
        truncated=ratio(sum(row["finish_reason"] == "length" for row in rows), len(rows)),
        num_rounds=rounds,
    )
