"""From a task's name to prompt rows that every command takes, and a record of what they are."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cospec.jsonl import dumps
from cospec.prompt_rows import PromptRow
from cospec.scoring.golds import unfit_reason
from cospec.tasks.base import Problem, RowRequest, Task
from cospec.tasks.few_shot import pick_shots
from cospec.tasks.local_data import local_copy
from cospec.tasks.registry import task_named
from cospec.tasks.source import Published
from cospec.tasks.usable import DroppedRow, usable_problems


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """What a set of prompts is, so that a result can say what it was measured on.

    ``version`` is a Hub revision, a file's sha256 or a generator's release, ``files`` the sha256 of every local file.
    ``prompt_sha256`` is over all prompts as they are given to the model's template, in order. ``chat`` False means
    plain text, to be decoded without a chat template. ``dropped`` lists the rows whose gold answer could not be read,
    and those that repeat an earlier row.
    """

    name: str
    licence: str
    source: str
    version: str
    files: dict[str, str]
    split: str
    scorer: str | None
    num_rows: int
    num_shots: int
    chat: bool
    system_prompt: str | None
    seed: int
    prompt_sha256: str
    dropped: tuple[DroppedRow, ...]

    def to_json(self) -> dict[str, Any]:
        """The record as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Prompt rows of one task, in file order, and what they are."""

    rows: list[PromptRow]
    info: TaskInfo


def load_task(
    name: str,
    *,
    path: str | Path | None = None,
    split: str | None = None,
    num: int | None = None,
    num_shots: int = 0,
    chat: bool = True,
    system_prompt: str | None = None,
    seed: int = 0,
    revision: str | None = None,
) -> TaskSet:
    """Read a task and render its prompts.

    ``path`` is a local file or directory; without it the folder of `local_copy` is read, else the Hub's pinned
    revision, which ``revision`` overrides. ``num`` takes the first usable rows in file order, all there are if that is
    fewer. ``num_shots`` worked examples precede each question, as turns of a chat or as text; they come from the task's
    training split, drawn by ``seed``, or were written for the task, and never contain the question asked. ``seed`` also
    orders the choices of multiple-choice tasks and drives generated ones. ValueError for anything that does not fit.
    """
    task = task_named(name)
    if path is None and revision is None:
        path = local_copy(name)
    request = RowRequest(Path(path) if path is not None else None, split, num, seed, revision)
    _check(task, request, num_shots, system_prompt)
    raw = task.source.read(request)
    problems, dropped = usable_problems(task, raw.rows, num, unfit_reason)
    if not problems:
        first = f", the first because {dropped[0].reason}" if dropped else ""
        raise ValueError(f"{task.name}: no usable row in {raw.source} ({len(dropped)} dropped{first}): check the data")
    shots = pick_shots(task, request, raw.split, num_shots)
    rows = [_row(task, problem, shots.before(problem), chat, system_prompt) for problem in problems]
    info = TaskInfo(
        name=task.name,
        licence=task.licence,
        source=raw.source,
        version=raw.version,
        files=dict(raw.files),
        split=raw.split,
        scorer=task.scorer,
        num_rows=len(rows),
        num_shots=num_shots,
        chat=chat,
        system_prompt=system_prompt,
        seed=seed,
        prompt_sha256=prompt_digest(rows),
        dropped=tuple(dropped),
    )
    return TaskSet(rows, info)


def data_files(name: str, path: str | Path | None) -> list[Path]:
    """The local files that `load_task` may read for a task; none where it reads the Hub, or generates."""
    source, place = task_named(name).source, path or local_copy(name)
    return source.files(Path(place)) if isinstance(source, Published) and place is not None else []


def _check(task: Task, request: RowRequest, num_shots: int, system_prompt: str | None) -> None:
    if request.split is not None and request.split not in task.source.splits:
        raise ValueError(f"task {task.name!r} has no split {request.split!r}: choose {', '.join(task.source.splits)}")
    if request.num is not None and request.num < 1:
        raise ValueError(f"num is {request.num}: take at least 1 row, or leave it out for all")
    if num_shots < 0:
        raise ValueError(f"num_shots is {num_shots}: use 0 or more examples")
    if system_prompt is not None and not system_prompt.strip():
        raise ValueError("the system prompt is empty: write one, or leave it out")


def _row(task: Task, problem: Problem, shots: Sequence[Problem], chat: bool, system_prompt: str | None) -> PromptRow:
    row = PromptRow(
        id=problem.id, gold=problem.gold, task=task.name, extra={"question": problem.question, **problem.extra}
    )
    question = task.ask(problem, chat=chat)
    if not chat:
        examples = [_continued(task.ask(shot, chat=False), shot.worked or "") for shot in shots]
        return replace(row, prompt="\n\n".join(filter(None, [system_prompt, *examples, question])))
    if not shots and system_prompt is None:
        # The same single user message, in the form that can also be decoded without a template.
        return replace(row, prompt=question)
    messages = [{"role": "system", "content": system_prompt}] if system_prompt is not None else []
    for shot in shots:
        messages.append({"role": "user", "content": task.ask(shot, chat=True)})
        messages.append({"role": "assistant", "content": shot.worked or ""})
    return replace(row, messages=[*messages, {"role": "user", "content": question}])


def _continued(prompt: str, answer: str) -> str:
    return prompt + answer if prompt[-1:].isspace() else f"{prompt} {answer}"


def prompt_digest(rows: Iterable[PromptRow]) -> str:
    """sha256 over the prompts of the rows, one JSON value a line."""
    digest = hashlib.sha256()
    for row in rows:
        prompt = row.prompt if row.prompt is not None else row.messages or row.prompt_ids
        digest.update(dumps(prompt).encode() + b"\n")
    return digest.hexdigest()
