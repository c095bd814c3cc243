"""The directory of an evaluation: every sample as it ends, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cospec.engine.record import Rollout
from cospec.evaluation.run_settings import merged, read_settings, refuse_differences
from cospec.evaluation.sample import Sample, SampleKey, sample_from_json
from cospec.evaluation.task import EvalTask
from cospec.jsonl import (
    append_jsonl,
    drop_torn_tail,
    dumps,
    read_jsonl,
    read_numbered_jsonl,
    write_json_atomic,
    write_jsonl_atomic,
)

SETTINGS, SAMPLES, RESULTS, ROLLOUTS = "settings.json", "samples.jsonl", "results.json", "rollouts"


class EvalRun:
    """``settings`` holds what is common to all samples and, under "tasks" and "methods", what is particular to each.

    Samples belong to one settings file. Opening a directory whose settings differ in anything common, or in a task or
    method of the same name, raises ValueError that names the difference; further tasks and methods may be added. With
    ``rejudge``, which is given the samples and returns them under new verdicts, the scorers may differ.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, Any],
        rejudge: Callable[[list[Sample]], list[Sample]] | None = None,
    ) -> None:
        self.directory = directory
        wanted = json.loads(dumps(settings))
        before = _settings_before(directory)
        if before is not None:
            wanted = merged(before, wanted, directory, rescore=rejudge is not None)
        drop_torn_tail(directory / SAMPLES)
        if rejudge and (directory / SAMPLES).exists():
            # Before the settings: verdicts of one scorer must never lie beside the digest of another.
            self.replace(rejudge(self.samples()))
        self.settings: dict[str, Any] = wanted
        write_json_atomic(directory / SETTINGS, wanted)

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

    def match_rollouts(self, tasks: Sequence[EvalTask], methods: Sequence[str]) -> int:
        """Drop the record of a text whose sample a kill has lost; the number of samples that have no record.

        Only the files of these methods on these tasks are looked at. ValueError for one that holds anything else: what
        was not written here is not cut.
        """
        have: dict[tuple[str, str], set[str | int]] = {}
        for sample in self.samples():
            if sample.repeat == 0:
                have.setdefault((sample.task, sample.method), set()).add(sample.id)
        return sum(
            _match(
                self.rollouts(task.name, method), {row.id for row in task.rows}, have.get((task.name, method), set())
            )
            for task in tasks
            for method in methods
        )

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


def _match(path: Path, problems: set[str | int], sampled: set[str | int]) -> int:
    """How many of ``sampled`` have no record in the file, once one that lost its sample is cut."""
    if not path.exists():
        return len(sampled)
    drop_torn_tail(path)
    rows = list(read_jsonl(path))
    lost = [row for row in rows if not (isinstance(row.get("id"), str | int) and row["id"] in sampled)]
    # A kill comes between a record and its sample once, and the next run cuts what it left.
    if len(lost) > 1 or any(not isinstance(row.get("id"), str | int) or row["id"] not in problems for row in lost):
        raise ValueError(
            f"{path} holds {len(lost)} records without a sample, such as of {lost[0].get('id')!r}: they are not of "
            "this evaluation, or its samples are lost; move the file away, or drop --keep-rollouts"
        )
    if lost:
        write_jsonl_atomic(path, [row for row in rows if row not in lost])
    return len(sampled - {row["id"] for row in rows})


def read_samples(path: Path, *, torn: bool = False) -> list[Sample]:
    """The samples of a file, which may be missing; ValueError for one that stands there twice, or is damaged.

    With ``torn``, a last line that a kill has left half written is passed over.
    """
    return [sample for _, sample in _numbered_samples(path, torn=torn)]


def _numbered_samples(path: Path, *, torn: bool = False) -> list[tuple[int, Sample]]:
    found: list[tuple[int, Sample]] = []
    lines: dict[tuple[str, SampleKey], int] = {}
    for number, row in read_numbered_jsonl(path, torn=torn) if path.exists() else ():
        try:
            sample = sample_from_json(row)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
        first = lines.setdefault((sample.method, sample.key), number)
        if first != number:
            raise ValueError(
                f"{path}:{number}: problem {sample.id!r} of task {sample.task!r} under method {sample.method!r} is in "
                f"line {first} already; two processes have written here: remove one of the two lines"
            )
        found.append((number, sample))
    return found


def check_settings(directory: Path, wanted: Mapping[str, Any], *, rescore: bool = False) -> dict[str, Any] | None:
    """The settings of a directory, None if it has none yet; ValueError where ``wanted``, as far as known, differs."""
    before = _settings_before(directory)
    if before is not None:
        refuse_differences(before, json.loads(dumps(wanted)), directory, rescore=rescore, partial=True)
    return before


def check_begun(
    directory: Path, wanted: Mapping[str, Any], tasks: Sequence[EvalTask], *, rescore: bool = False
) -> None:
    """ValueError, before any model is loaded, for a directory that ``wanted``, settings as far as known, cannot go on.

    That is one of other settings, with damaged files, or with samples of what its settings or ``tasks`` do not have.
    """
    path = directory / SAMPLES
    before = check_settings(directory, wanted, rescore=rescore)
    if before is None:
        return
    drop_torn_tail(path)
    rows = {task.name: {row.id for row in task.rows} for task in tasks}
    for number, sample in _numbered_samples(path):
        for what, value, known in (
            ("task", sample.task, before["tasks"]),
            ("method", sample.method, before["methods"]),
            ("problem", sample.id, rows.get(sample.task, {sample.id})),
            ("repeat", sample.repeat, range(before.get("repeats", 1))),
        ):
            if value not in known:
                raise ValueError(
                    f"{path}:{number}: a sample of {what} {value!r}, which this evaluation does not have: remove the "
                    "line, or name another --out"
                )


def _settings_before(directory: Path) -> dict[str, Any] | None:
    if (directory / SETTINGS).exists():
        return read_settings(directory / SETTINGS)
    if (directory / SAMPLES).exists():
        raise ValueError(f"{directory} holds {SAMPLES} without {SETTINGS}: it is no evaluation; name another --out")
    return None
