"""The directory of an evaluation: every sample as it ends, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cospec.engine.record import Rollout
from cospec.evaluation.sample import Sample, sample_from_json
from cospec.evaluation.task import EvalTask
from cospec.jsonl import append_jsonl, drop_torn_tail, dumps, read_jsonl, write_json_atomic, write_jsonl_atomic

SETTINGS, SAMPLES, RESULTS, ROLLOUTS = "settings.json", "samples.jsonl", "results.json", "rollouts"
#: Parts of the settings that hold one entry per name; a later run may add names.
_BY_NAME = ("tasks", "methods")
#: What the results do not depend on: recorded, once for every kind that took part.
ENVIRONMENTS = "environments"


class EvalRun:
    """``settings`` holds what is common to all samples and, under "tasks" and "methods", what is particular to each.

    Samples belong to one settings file. Opening a directory whose settings differ in anything common, or in a task or
    method of the same name, raises ValueError that names the difference; further tasks and methods may be added.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        self.directory = directory
        wanted = json.loads(dumps(settings))
        path = directory / SETTINGS
        if path.exists():
            wanted = _merged(json.loads(path.read_text(encoding="utf-8")), wanted, directory)
        elif (directory / SAMPLES).exists():
            raise ValueError(f"{directory} holds {SAMPLES} without {SETTINGS}: it is no evaluation; name another --out")
        self.settings: dict[str, Any] = wanted
        write_json_atomic(path, wanted)
        drop_torn_tail(directory / SAMPLES)

    def samples(self) -> list[Sample]:
        """All samples written so far."""
        return read_samples(self.directory / SAMPLES)

    def add(self, sample: Sample) -> None:
        """Write one sample."""
        append_jsonl(self.directory / SAMPLES, [sample.to_json()])

    def rollouts(self, task: str, method: str) -> Path:
        """Where complete records of a method on a task lie, if they are kept."""
        return self.directory / ROLLOUTS / f"{quote(f'{task}/{method}', safe='')}.jsonl"

    def add_rollout(self, sample: Sample, rollout: Rollout) -> None:
        """Write the complete record of a sample; call it before `add`."""
        append_jsonl(self.rollouts(sample.task, sample.method), [rollout.to_json()])

    def match_rollouts(self) -> int:
        """Drop records whose sample was not written any more; the number of samples that have no record."""
        ids: dict[Path, set[str | int]] = {}
        for sample in self.samples():
            if sample.repeat == 0:
                ids.setdefault(self.rollouts(sample.task, sample.method), set()).add(sample.id)
        num_bare = sum(map(len, ids.values()))
        for path in (self.directory / ROLLOUTS).glob("*.jsonl"):
            drop_torn_tail(path)
            rows = list(read_jsonl(path))
            kept = [row for row in rows if row["id"] in ids.get(path, set())]
            num_bare -= len(kept)
            if len(kept) < len(rows):
                write_jsonl_atomic(path, kept)
        return num_bare

    def finish(self, summary: Mapping[str, Any], tasks: Sequence[EvalTask]) -> None:
        """Write the summary, and the samples anew: by task and method as in the settings, by repeat, by problem.

        Samples of tasks that are not among ``tasks`` keep their order.
        """
        names, methods = list(self.settings["tasks"]), list(self.settings["methods"])
        rows = {(task.name, row.id): index for task in tasks for index, row in enumerate(task.rows)}

        def place(sample: Sample) -> tuple[int, int, int, int]:
            row = rows.get(sample.key.problem, 0)
            return names.index(sample.task), methods.index(sample.method), sample.repeat, row

        samples = self.samples()
        ordered = sorted(samples, key=place)
        if ordered != samples:
            self.replace(ordered)
        write_json_atomic(self.directory / RESULTS, summary)

    def replace(self, samples: Sequence[Sample]) -> None:
        """Write all samples anew, at once."""
        write_jsonl_atomic(self.directory / SAMPLES, (sample.to_json() for sample in samples))


def read_samples(path: Path) -> list[Sample]:
    """The samples of a file, which may be missing."""
    return [sample_from_json(row) for row in read_jsonl(path)] if path.exists() else []


def _merged(before: dict[str, Any], wanted: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Both settings in one, the names of the earlier ones first."""
    own: dict[str, Any] = {ENVIRONMENTS: [], **{part: {} for part in _BY_NAME}}
    differences = _differences(before | own, wanted | own)
    for part in _BY_NAME:
        old, new = before.get(part, {}), wanted.get(part, {})
        for name in [name for name in old if name in new]:
            differences += [f"{name}.{line}" for line in _differences(_named(old[name]), _named(new[name]))]
    if differences:
        raise ValueError(
            f"{directory} holds an evaluation under other settings ({'; '.join(differences[:4])}): name another --out, "
            "or remove the directory"
        )
    joined = {part: before.get(part, {}) | wanted.get(part, {}) for part in _BY_NAME}
    known, now = before.get(ENVIRONMENTS, []), wanted.get(ENVIRONMENTS, [])
    return wanted | joined | {ENVIRONMENTS: known + [entry for entry in now if entry not in known]}


def _named(entry: Any) -> Mapping[str, Any]:
    return entry if isinstance(entry, dict) else {"rule": entry}


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    keys = sorted(old.keys() | new.keys())
    return [f"{key} was {old.get(key)!r}, now {new.get(key)!r}" for key in keys if old.get(key) != new.get(key)]
