"""Which of a task's raw rows make problems, and which are dropped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cospec.tasks.base import Problem, RawRow, Task, UnusableRow

#: Why no text can be judged by a row (`cospec.scoring.golds.unfit_reason`), given the scorer's name and the row.
Unfit = Callable[[str, Mapping[str, Any]], str | None]


@dataclass(frozen=True, slots=True)
class DroppedRow:
    """A row that is not used, and why."""

    id: str
    reason: str


def usable_problems(
    task: Task, raw: Iterable[RawRow], num: int | None, unfit: Unfit
) -> tuple[list[Problem], list[DroppedRow]]:
    """The first ``num`` problems whose gold answer can be read, and the rows dropped on the way.

    A problem that is there again is dropped as well; ValueError for an id that two different problems have.
    """
    problems: list[Problem] = []
    dropped: list[DroppedRow] = []
    first_of: dict[str, tuple[Problem, str]] = {}
    for row in raw:
        if len(problems) == num:
            break
        try:
            problem = _read(task, row, unfit)
            _check_id(problem, row, first_of)
            problems.append(problem)
        except UnusableRow as reason:
            dropped.append(DroppedRow(row.where, str(reason)))
    return problems, dropped


def _read(task: Task, row: RawRow, unfit: Unfit) -> Problem:
    try:
        problem = task.read(row)
        fields = {"id": problem.id, "gold": problem.gold, **problem.extra}
        _require_json([problem.question, problem.worked, fields])
    except (UnicodeEncodeError, _NoJson, RecursionError) as error:
        name = next((name for name, value in row.fields.items() if not _is_json(value)), "")
        raise row.misfit(name, f"holds what a file of rows cannot ({error}): mend or remove the row") from error
    reason = task.scorer and unfit(task.scorer, fields)
    if reason:
        raise UnusableRow(reason)
    return problem


class _NoJson(ValueError):
    """A value that would not come back from a file as it is."""


def _require_json(value: Any) -> None:
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _NoJson(str(error)) from error


def _is_json(value: Any) -> bool:
    try:
        _require_json(value)
    except _NoJson:
        return False
    return True


def _check_id(problem: Problem, row: RawRow, first_of: dict[str, tuple[Problem, str]]) -> None:
    first, where = first_of.setdefault(problem.id, (problem, row.where))
    if first is problem:
        return
    # TriviaQA's rows are pairs of a question and a collection of documents, so that most questions come twice.
    if (problem.question, problem.gold) == (first.question, first.gold):
        raise UnusableRow(f"the same problem {problem.id!r} as {where}")
    raise ValueError(f"{row.where}: id {problem.id!r} is already used in {where}: give every problem its own id")
