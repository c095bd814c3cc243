"""Two finished evaluations compared problem by problem: what did a change gain or lose?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cospec.evaluation.comparison import Outcomes
from cospec.evaluation.paired import MARGIN, PairedAccuracy, PairedCost, Ratio, paired_accuracy, paired_cost
from cospec.evaluation.result import Evaluation
from cospec.evaluation.run import RESULTS, SAMPLES, SETTINGS, read_samples
from cospec.evaluation.run_settings import BY_NAME, ENVIRONMENTS, Difference, differing, read_settings
from cospec.evaluation.sample import Sample
from cospec.evaluation.statistics import holm
from cospec.jsonl import require_file

#: Seconds can be compared with seconds only where these are the same.
_DECIDE_SPEED = ("machine", "device", "dtype", "attn", "batch_size")


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """Settings and samples of an evaluation."""

    path: Path
    settings: Mapping[str, Any]
    samples: Mapping[tuple[str, str], tuple[Sample, ...]]

    def outcomes(self, task: str, method: str) -> Outcomes:
        """Right or not by key, without the samples whose scorer failed."""
        return {s.key: s.verdict == "right" for s in self.samples[task, method] if not s.is_failure}


@dataclass(frozen=True, slots=True)
class MethodAgainst:
    """A method of the new run minus (or by) the same method of the old one, on one task."""

    task: str
    method: str
    accuracy: PairedAccuracy
    p_adjusted: float
    cost: PairedCost


@dataclass(frozen=True, slots=True)
class RunsCompared:
    """All methods and tasks that two runs share; ``differences`` are settings that are not the same in both.

    ``speed_is_comparable`` says that none of them touches speed. ``left_out`` names what only one run has.
    """

    old: str
    new: str
    methods: tuple[MethodAgainst, ...]
    differences: tuple[str, ...]
    speed_is_comparable: bool
    left_out: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON, by task and method."""
        tasks: dict[str, dict[str, Any]] = {}
        for entry in self.methods:
            accuracy = dataclasses.asdict(entry.accuracy) | {"half_width": entry.accuracy.half_width}
            ratios = {"length_ratio": entry.cost.length}
            timing = {"speed_ratio": entry.cost.speed, "time_ratio": entry.cost.time}
            tasks.setdefault(entry.task, {})[entry.method] = (
                accuracy
                | {"p_adjusted": entry.p_adjusted}
                | _ratios(ratios)
                | {"timing": _ratios(timing) if self.speed_is_comparable else None}
            )
        return {
            "old": self.old,
            "new": self.new,
            "tasks": tasks,
            "differences": list(self.differences),
            "left_out": list(self.left_out),
        }


def read_finished(path: Path) -> FinishedRun:
    """An evaluation by its directory, or by its results file; ValueError for one that is not finished."""
    directory = path if path.is_dir() else path.parent
    if not path.exists():
        raise ValueError(f"{path} does not exist: give the --out directory of an evaluation, or its {RESULTS}")
    if not (directory / RESULTS).exists():
        raise ValueError(f"{directory} has no {RESULTS}: that evaluation is not finished; run it to its end first")
    settings = read_settings(require_file(directory / SETTINGS, "settings"))
    samples: dict[tuple[str, str], list[Sample]] = {}
    for sample in read_samples(require_file(directory / SAMPLES, "samples")):
        samples.setdefault((sample.task, sample.method), []).append(sample)
    return FinishedRun(directory, settings, {name: tuple(found) for name, found in samples.items()})


def finished_now(path: Path, settings: Mapping[str, Any], evaluation: Evaluation) -> FinishedRun:
    """An evaluation that is still in memory, as if it had been read from ``path``."""
    samples = {(task.name, result.name): result.samples for task in evaluation.tasks for result in task.results}
    return FinishedRun(path, settings, samples)


def compare_runs(new: FinishedRun, old: FinishedRun, margin: float = MARGIN) -> RunsCompared:
    """Compare what both runs have; ValueError as `check_comparable` raises it, and for samples that are missing.

    p-values are Holm-adjusted over the tasks of each method.
    """
    shared = check_comparable(new.path, new.settings["tasks"], new.samples, old)
    found = []
    for task, method in shared:
        _check_finished(new, task, method)
        accuracy = paired_accuracy(new.outcomes(task, method), old.outcomes(task, method), margin)
        cost = paired_cost(new.samples[task, method], old.samples[task, method])
        if accuracy and cost:
            found.append(MethodAgainst(task, method, accuracy, accuracy.p, cost))
    if not found:
        raise ValueError(f"no problem was judged in both {new.path} and {old.path}: there is nothing to compare")
    names = {f"method {method!r} on task {task!r}" for task, method in new.samples.keys() ^ old.samples.keys()}
    differences = _differences(new.settings, old.settings)
    return RunsCompared(
        old=str(old.path),
        new=str(new.path),
        methods=tuple(_adjusted(found)),
        differences=_told(differences),
        speed_is_comparable=not any(name in _DECIDE_SPEED for name, _, _ in differences),
        left_out=tuple(sorted(names)),
    )


def _adjusted(entries: Iterable[MethodAgainst]) -> Iterable[MethodAgainst]:
    entries = list(entries)
    families: dict[str, list[int]] = {}
    for index, entry in enumerate(entries):
        families.setdefault(entry.method, []).append(index)
    for family in families.values():
        values = holm([entries[index].accuracy.p for index in family])
        for index, value in zip(family, values, strict=True):
            entries[index] = dataclasses.replace(entries[index], p_adjusted=value)
    return entries


def check_comparable(
    place: Path, tasks: Mapping[str, Any], names: Iterable[tuple[str, str]], old: FinishedRun
) -> list[tuple[str, str]]:
    """The (task, method) of ``names`` that ``old`` has too; ``tasks`` holds the settings of the tasks at ``place``.

    ValueError where a task of one name is not the same task, nothing is shared, or ``old`` lacks samples of what is.
    """
    for name in [name for name in tasks if name in old.settings["tasks"]]:
        now, before = tasks[name], old.settings["tasks"][name]
        for path, entry in ((place, now), (old.path, before)):
            if not {"problems_digest", "num_problems"} <= entry.keys():
                raise ValueError(
                    f"{path} does not say which problems task {name!r} has: compare runs of `cospec eval` alone"
                )
        if now["problems_digest"] != before["problems_digest"]:
            found = _told([entry for entry in differing(before, now) if entry[0] in now])
            raise ValueError(
                f"task {name!r} does not have the same problems in {old.path} and {place} ({'; '.join(found)}): runs "
                "are compared problem by problem, so evaluate both on the same ones"
            )
    shared = [name for name in names if name in old.samples]
    if not shared:
        raise ValueError(f"{place} and {old.path} share no method on a shared task: there is nothing to compare")
    for task, method in shared:
        _check_finished(old, task, method)
    return shared


def _check_finished(run: FinishedRun, task: str, method: str) -> None:
    num, wanted = len(run.samples[task, method]), run.settings["tasks"][task]["num_problems"]
    wanted *= run.settings.get("repeats", 1)
    if num < wanted:
        raise ValueError(
            f"{run.path} holds {num} of {wanted} samples of method {method!r} on task {task!r}: run it to its end first"
        )


def _differences(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Difference]:
    """All settings that are not the same, tasks and methods by their names."""
    plain = [{key: value for key, value in run.items() if key not in (*BY_NAME, ENVIRONMENTS)} for run in (old, new)]
    found = differing(*plain)
    for part in ("machine", "packages", "git"):
        before, now = (_distinct(entry.get(part) for entry in run.get(ENVIRONMENTS, [])) for run in (old, new))
        if before != now:
            found.append((part, before, now))
    for part in BY_NAME:
        for name in [name for name in old[part] if name in new[part]]:
            found += [(f"{name}.{key}", b, n) for key, b, n in differing(old[part][name], new[part][name])]
    return found


def _distinct(values: Iterable[Any]) -> list[Any]:
    """Each value once; a run that went on under another revision was on one machine all the same."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _told(found: Sequence[Difference]) -> tuple[str, ...]:
    return tuple(f"{name} was {before!r}, now {now!r}" for name, before, now in found)


def _ratios(ratios: Mapping[str, Ratio]) -> dict[str, Any]:
    return {
        key: value
        for name, ratio in ratios.items()
        for key, value in ((name, ratio.value), (f"{name}_ci95", ratio.ci95))
    }
