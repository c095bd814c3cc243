"""What lies in a sweep's directory: its groups, whatever grid asked for them, and their texts by cell."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cospec.engine.record import Sampling
from cospec.evaluation.result import MethodResult
from cospec.evaluation.run import SAMPLES, SETTINGS, check_begun, read_samples
from cospec.evaluation.run_settings import ENVIRONMENTS, read_settings, refuse_differences
from cospec.evaluation.sample import Sample
from cospec.evaluation.sweep.grid import TARGET, Group, parameters_of
from cospec.evaluation.sweep.row import CellKey, cell_row
from cospec.evaluation.sweep.store import TABLE, read_table
from cospec.evaluation.task import EvalTask
from cospec.jsonl import dumps

#: A cell within the directory: the group's folder, method and task.
CellId = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group's directory, and the settings that lie in it."""

    path: Path
    settings: Mapping[str, Any]

    @property
    def folder(self) -> str:
        """Its name within the sweep's directory."""
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def is_target(self) -> bool:
        """Whether it is of the target alone."""
        return self.path.name == TARGET

    @property
    def key_of_length(self) -> tuple[bool, int, str]:
        """Sorts the target alone before the groups of each K, and these by K."""
        return not self.is_target, len(self.path.name), self.path.name

    def check(self) -> None:
        """ValueError for settings that no group of a sweep has, or that are another group's."""
        try:
            keys = [self.key(method, task) for method in self.settings["methods"] for task in self.settings["tasks"]]
            numbers = [self.settings["repeats"], *(task["num_problems"] for task in self.settings["tasks"].values())]
            bonuses = [entry["bonus"] for entry in self.settings["methods"].values()]
            length = None if self.is_target else self.settings["num_draft_tokens"]
            folder = Group(Sampling(**self.settings["sampling"]), length, ()).folder
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{self.path / SETTINGS} holds no settings of a sweep's group ({error!r}): restore it from a copy, or "
                "move its directory away"
            ) from error
        sane = keys and all(isinstance(number, int) and number > 0 for number in numbers)
        if not sane or not all(bonus is None or isinstance(bonus, str) for bonus in bonuses) or folder != self.folder:
            raise ValueError(
                f"{self.path / SETTINGS} is not of this directory, or damaged (its settings belong to {folder}): "
                "restore it from a copy, or move its directory away"
            )

    @property
    def machines(self) -> frozenset[str]:
        """The machines that decoded here, as JSON."""
        return frozenset(dumps(entry["machine"]) for entry in self.settings.get(ENVIRONMENTS, []) if "machine" in entry)

    def key(self, method: str, task: str) -> CellKey:
        """What a cell of it is."""
        entry = self.settings["methods"][method]
        given = {"threshold": entry["threshold"]} if "threshold" in entry else parameters_of(entry["rule"])
        return CellKey(
            task,
            Sampling(**self.settings["sampling"]),
            method,
            entry["rule"].partition(":")[0],
            None if self.is_target else self.settings["num_draft_tokens"],
            None if self.is_target else self.settings.get("drafter") or "model",
            tuple(given.items()),
        )

    def samples(self) -> dict[CellId, list[Sample]]:
        """The texts by cell, in the order in which they were written."""
        found: dict[CellId, list[Sample]] = {}
        for sample in read_samples(self.path / SAMPLES):
            found.setdefault((self.folder, sample.method, sample.task), []).append(sample)
        return found

    def result(
        self, method: str, task: str, samples: Sequence[Sample], places: Mapping[tuple[str, str | int], int]
    ) -> MethodResult | None:
        """A cell's result, None while texts are missing; ``places`` has the places of problems in their tasks."""
        if len(samples) < self.settings["tasks"][task]["num_problems"] * self.settings["repeats"]:
            return None
        ordered = sorted(samples, key=lambda one: (one.repeat, places.get(one.key.problem, 0), str(one.id)))
        entry = self.settings["methods"][method]
        return MethodResult(method, entry["rule"], entry["bonus"], "arbiter" in entry, tuple(ordered))


def stored_groups(directory: Path) -> list[StoredGroup]:
    """All groups of a sweep's directory, the target alone before each K; ValueError for damaged settings."""
    found = [StoredGroup(file.parent, read_settings(file)) for file in directory.glob(f"temperature=*/*/{SETTINGS}")]
    return sorted(found, key=lambda group: (group.path.parent.name, group.key_of_length))


def check_texts(directory: Path, tasks: Sequence[EvalTask], *, rescore: bool) -> None:
    """ValueError for settings or texts in a sweep's directory that are damaged, or not of the ``tasks`` they name.

    Of every group that lies there, whatever grid it is of: all of them make rows of the table.
    """
    for group in stored_groups(directory):
        group.check()
    for path in sorted(directory.glob(f"temperature=*/*/{SAMPLES}")):
        check_begun(path.parent, {}, tasks, rescore=rescore)


def check_groups(directory: Path, wanted: Mapping[str, Any], *, rescore: bool) -> None:
    """ValueError for a directory with texts under other settings than ``wanted``, as far as these say."""
    wanted = json.loads(dumps(wanted))
    for group in stored_groups(directory):
        refuse_differences(group.settings, wanted, group.path, rescore=rescore, partial=True)


@dataclass
class CellRows:
    """Rows of cells, each beside those of the target alone, which is added first.

    Those in ``mixed`` were not decoded on the machine of the target's texts, or not on one.
    """

    c_rel: float
    margin: float
    rows: dict[CellId, dict[str, Any]] = field(default_factory=dict)
    mixed: set[CellId] = field(default_factory=set)
    _targets: dict[tuple[Path, str], tuple[MethodResult, frozenset[str]]] = field(default_factory=dict)

    def add(self, group: StoredGroup, task: str, result: MethodResult) -> None:
        """Add a cell that is finished."""
        if group.is_target:
            self._targets[group.path.parent, task] = result, group.machines
        target, machines = self._targets[group.path.parent, task]
        cell, one_machine = (group.folder, result.name, task), len(machines | group.machines) < 2
        if not one_machine:
            self.mixed.add(cell)
        key = group.key(result.name, task)
        self.rows[cell] = cell_row(key, result, target, self.c_rel, self.margin, one_machine=one_machine)

    def add_finished(self, directory: Path, tasks: Sequence[EvalTask]) -> None:
        """Add what is finished in a directory and not here; ``tasks`` say in which order problems come."""
        places = {(task.name, row.id): place for task in tasks for place, row in enumerate(task.rows)}
        for group in stored_groups(directory):
            cells = {
                (group.folder, *cell) for cell in itertools.product(group.settings["methods"], group.settings["tasks"])
            }
            # The texts of a group are many: read only where a row may be missing.
            for cell, samples in group.samples().items() if cells - self.rows.keys() else ():
                _, method, task = cell
                result = None if cell in self.rows else group.result(method, task, samples, places)
                if result is not None and (group.is_target or (group.path.parent, task) in self._targets):
                    self.add(group, task, result)


def read_rows(directory: Path) -> dict[CellId, dict[str, Any]]:
    """The table that is there, by cell; nothing where there is none yet, ValueError for a damaged one."""
    file = directory / TABLE
    try:
        return {_cell_of(row): row for row in read_table(directory)} if file.exists() else {}
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is damaged ({error}): remove it, and it is made anew from the texts") from error


def _cell_of(row: Mapping[str, Any]) -> CellId:
    sampling = Sampling(**{name: row[name] for name in Sampling.__slots__})
    return Group(sampling, row["num_draft_tokens"], ()).folder, row["method"], row["task"]
