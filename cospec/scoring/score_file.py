"""Scoring a file of answers: rows are checked as a whole first, then scored in their order, several at a time."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from cospec.jsonl import read_numbered_jsonl
from cospec.scoring.amounts import LANGUAGES
from cospec.scoring.custom import safe_score
from cospec.scoring.golds import unfit_reason
from cospec.scoring.process import ScoringProcess
from cospec.scoring.registry import scorer_for, scorer_name, scorer_of_task
from cospec.scoring.threads import in_order, stoppable_threads
from cospec.scoring.verdict import Verdict
from cospec.tasks.base import RowRequest, Task
from cospec.tasks.local_data import local_copy
from cospec.tasks.registry import task_named
from cospec.tasks.source import Published
from cospec.tasks.usable import usable_problems

# What a scorer needs of a row, one of each group; scorers of the user's own look after themselves.
_NEEDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "exact": (("gold",),),
    "word_problems": (("gold",),),
    "maths": (("gold",),),
    "number": (("gold",),),
    "choice": (("gold",),),
    "open_qa": (("golds", "gold"),),
    "reasoning_gym": (("dataset",), ("entry",)),
    "code": (("tests", "stdin_tests"),),
}


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """A text and what its scorer reads beside it; ``id`` keeps its JSON type, ``line`` is where it stands."""

    line: int
    id: str | int
    text: str
    row: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScoredRow:
    """A row's verdict."""

    id: str | int
    verdict: Verdict

    def to_json(self) -> dict[str, Any]:
        """{"id", "verdict", "extracted", "reason"}."""
        found = self.verdict
        return {"id": self.id, "verdict": found.kind, "extracted": found.extracted, "reason": found.reason}


def read_answers(file: Path, scorer: str) -> list[AnswerRow]:
    """Rows {"id", "text", "gold", ...} as the scorer reads them; ValueError with file:line where one does not fit."""
    name = scorer_name(scorer)
    return _distinct(
        (_answer(raw, number, f"{file}:{number}", name, "text") for number, raw in read_numbered_jsonl(file)), file
    )


def read_task_answers(file: Path, name: str, data: Path | None, revision: str | None = None) -> list[AnswerRow]:
    """Rows of a task: those of `read_answers`; {"id", "task_id", "completion"} for code, tested by the task's data."""
    task, scorer = task_named(name), scorer_of_task(name)
    if scorer == "code":
        return _code_answers(file, task, data, revision)
    if data is not None or revision is not None:
        raise ValueError(f"rows of task {name!r} carry their gold answers: leave the data and the revision out")
    rows = read_answers(file, scorer)
    for row in rows:
        missing = [field for field in task.row_fields if row.row.get(field) in (None, "")]
        if missing:
            raise ValueError(f"{file}:{row.line}: task {name!r} needs the field {missing[0]!r} in every row")
        if "lang" in task.row_fields and row.row["lang"] not in _languages(task):
            raise ValueError(
                f"{file}:{row.line}: lang is {row.row['lang']!r}, and task {name!r} has {', '.join(_languages(task))}: "
                "mend the row or choose its task"
            )
    return rows


def _languages(task: Task) -> list[str]:
    assert isinstance(task.source, Published)
    return sorted({part.label for parts in task.source.parts.values() for part in parts})


def _distinct(rows: Iterable[AnswerRow], file: Path) -> list[AnswerRow]:
    """The rows as a list; ValueError without any, or for an id that two have."""
    seen: dict[str | int, AnswerRow] = {}
    for row in rows:
        first = seen.setdefault(row.id, row)
        if first is not row:
            raise ValueError(
                f"{file}: lines {first.line} and {row.line} have the same id {row.id!r}, and verdicts go by it: "
                "give each row its own, or leave the ids out (they are the lines' numbers then)"
            )
    if not seen:
        raise ValueError(f"{file}: no rows: write one object per line, the answers that are to be scored")
    return list(seen.values())


def _answer(raw: Mapping[str, Any], number: int, where: str, scorer: str, text_field: str) -> AnswerRow:
    id = raw.get("id", number)
    if isinstance(id, bool) or not isinstance(id, str | int):
        raise ValueError(f"{where}: id is {id!r}: use a string or a whole number, or leave it out")
    text = raw.get(text_field)
    if not isinstance(text, str):
        found = "missing" if text_field not in raw else f"a {type(text).__name__}"
        raise ValueError(f"{where}: {text_field!r} is {found}: it must be the text to score, as a string")
    for fields in _NEEDS.get(scorer, ()):
        if not any(_is_given(raw.get(field)) for field in fields):
            raise ValueError(f"{where}: no {' or '.join(fields)}, which the scorer {scorer!r} reads: add it to the row")
    if scorer == "number" and raw.get("lang") not in (None, "", *LANGUAGES):
        raise ValueError(f"{where}: unknown lang {raw['lang']!r}: use one of {', '.join(sorted(LANGUAGES))}")
    golds = raw.get("golds")
    if golds is not None and not (isinstance(golds, list) and all(isinstance(gold, str) for gold in golds)):
        raise ValueError(f"{where}: golds is {golds!r}: it must be a list of texts")
    return AnswerRow(number, id, text, {"gold": None, **raw, "id": id})


def _is_given(value: Any) -> bool:
    return value is not None and value != [] and not (isinstance(value, str) and not value.strip())


# --- code ------------------------------------------------------------------------------------------------------------


def _code_answers(file: Path, task: Task, data: Path | None, revision: str | None) -> list[AnswerRow]:
    problems = _by_task_id(task, data, revision)
    rows: list[AnswerRow] = []
    for number, raw in read_numbered_jsonl(file):
        where, task_id = f"{file}:{number}", raw.get("task_id")
        if task_id is None:
            raise ValueError(f"{where}: no task_id: it says which problem's tests to run")
        if str(task_id) not in problems:
            near = difflib.get_close_matches(str(task_id), problems, n=1)
            hint = (
                f"did you mean {near[0]!r}?" if near else f"it has {len(problems)} ids such as {next(iter(problems))!r}"
            )
            raise ValueError(f"{where}: task {task.name!r} has no task_id {task_id!r}: {hint}")
        # The tests are the task's own: a row that brought its own would be scored by something else.
        merged = {**{key: raw[key] for key in raw if key in ("id", "completion")}, **problems[str(task_id)]}
        rows.append(_answer(merged, number, where, "code", "completion"))
    return _distinct(rows, file)


def _by_task_id(task: Task, data: Path | None, revision: str | None) -> dict[str, Mapping[str, Any]]:
    assert isinstance(task.source, Published)
    place = local_copy(task.name) if data is None and revision is None else data
    raw = task.source.read_all(RowRequest(path=place, revision=revision))
    problems, _ = usable_problems(task, raw.rows, None, unfit_reason)
    return {str(problem.extra["task_id"]): {"gold": problem.gold, **problem.extra} for problem in problems}


# --- scoring ---------------------------------------------------------------------------------------------------------


def score_rows(rows: Sequence[AnswerRow], scorer: str, workers: int = 1) -> Generator[ScoredRow]:
    """Verdicts in the order of the rows, as they come, ``workers`` rows at a time.

    Closing it ends all that runs, and so does an interrupt; a killed program leaves nothing behind either. ValueError
    for an unknown scorer, before anything is scored.
    """
    if workers < 1:
        raise ValueError(f"{workers} workers: use at least 1")
    for row, verdict in zip(rows, _verdicts(rows, scorer, workers), strict=True):
        yield ScoredRow(row.id, verdict)


def _verdicts(rows: Sequence[AnswerRow], scorer: str, workers: int) -> Iterator[Verdict]:
    judge = scorer_for(scorer)
    if scorer_name(scorer) == "code":
        # Each program is run in a process of its own.
        with stoppable_threads(workers) as pool:
            yield from in_order(pool, lambda row: safe_score(judge, row.text, row.row), rows)
    # A user's scorer may print, crash, or hang in C code, out of reach of signals: better not in this process.
    elif ":" in scorer_name(scorer) or workers > 1:
        yield from _verdicts_of_processes(rows, scorer, workers)
    else:
        yield from (safe_score(judge, row.text, row.row) for row in rows)


def _verdicts_of_processes(rows: Sequence[AnswerRow], scorer: str, workers: int) -> Iterator[Verdict]:
    free: SimpleQueue[ScoringProcess] = SimpleQueue()

    def judge(row: AnswerRow) -> Verdict:
        process = free.get()
        try:
            return process.score(scorer, row.text, row.row)
        finally:
            free.put(process)

    with ExitStack() as stack:
        for _ in range(min(workers, len(rows))):
            # No limits: verdicts must not depend on the number of workers.
            process = ScoringProcess(
                f"{__name__}:score_text", time_limit_s=None, memory_limit_mb=None, shows_output=True
            )
            free.put(stack.enter_context(process))
        with stoppable_threads(workers) as pool:
            yield from in_order(pool, judge, rows)


def score_text(scorer: str, text: str, row: Mapping[str, Any]) -> Verdict:
    """What a worker's process does for each row."""
    return safe_score(_known_scorer(scorer), text, row)


_known_scorer = functools.cache(scorer_for)
