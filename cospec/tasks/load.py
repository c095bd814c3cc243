"""From a task's name to prompt rows that every command takes, and a record of what they are."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cospec.prompt_rows import PromptRow
from cospec.tasks.registry import task_named

_NUM = 200


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """What a set of prompts is, so that a result can say what it was measured on."""

    name: str
    licence: str
    source: str
    version: str
    split: str
    scorer: str | None
    num_rows: int
    num_shots: int
    chat: bool
    system_prompt: str | None
    seed: int
    prompt_sha256: str
    dropped: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The record as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TaskSet:
    """Prompt rows of one task and what they are."""

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
) -> TaskSet:
    """Read a task and render its prompts; ValueError for anything that does not fit."""
    task = task_named(name)
    if path is not None or num_shots or system_prompt is not None:
        raise ValueError(f"task {name!r} is generated: it has no files, shots or system prompt")
    if num is not None and num < 1:
        raise ValueError(f"num is {num}: take at least 1 row, or leave it out")
    chosen = split or "eval"
    problems = task.read(num or _NUM, seed, chosen)
    rows = [PromptRow(id=p.id, prompt=p.question, gold=p.gold, task=name) for p in problems]
    digest = hashlib.sha256("".join(str(row.prompt) for row in rows).encode()).hexdigest()
    info = TaskInfo(name, task.licence, task.source, "1", chosen, task.scorer, len(rows), 0, chat, None, seed, digest)
    return TaskSet(rows, info)
