"""Prompt rows: the one JSONL form in which every command takes its prompts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cospec.jsonl import read_numbered_jsonl

_SOURCES = ("prompt", "messages", "prompt_ids")
_KNOWN = frozenset((*_SOURCES, "id", "gold", "task"))
# What an answer is judged by where there is no single gold answer: aliases, test programs, a generated problem.
_INSTEAD_OF_GOLD = ("golds", "tests", "stdin_tests", "entry")


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One problem. Exactly one of ``prompt``, ``messages``, ``prompt_ids`` is set.

    ``id`` keeps its JSON type, so that output can echo it; ``extra`` holds the fields that are not ours.
    """

    id: str | int
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    prompt_ids: list[int] | None = None
    gold: str | None = None
    task: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def scorer_row(self) -> dict[str, Any]:
        """What a scorer is given beside the text: all fields of the row, the extra ones at the top level."""
        return {
            **self.extra,
            "id": self.id,
            "prompt": self.prompt,
            "messages": self.messages,
            "prompt_ids": self.prompt_ids,
            "gold": self.gold,
            "task": self.task,
        }

    def to_json(self) -> dict[str, Any]:
        """The row as `load_prompt_rows` reads it back, without those of our fields that are not set."""
        return {name: value for name, value in self.scorer_row().items() if value is not None or name in self.extra}


def load_prompt_rows(path: str | Path, require_gold: bool) -> list[PromptRow]:
    """Read and check a whole prompt file before anything is computed.

    A row without an id gets its 1-based line number. Raises ValueError with file:line for a row without exactly one
    non-empty prompt field, a repeated id, or a missing gold answer where ``require_gold`` (aliases, tests or a
    generated problem may take its place); and for a file without rows.
    """
    rows: list[PromptRow] = []
    lines_by_id: dict[str, int] = {}
    for number, raw in read_numbered_jsonl(path):
        row = parse_prompt_row(raw, number, f"{path}:{number}", require_gold)
        # Compared as text: 7 and "7" would share a line in every table and every file name.
        first = lines_by_id.setdefault(str(row.id), number)
        if first != number:
            raise ValueError(
                f"{path}:{number}: id {row.id!r} is already used on line {first}: give every row its own id "
                "(a row without one is known by its line number)"
            )
        rows.append(row)
    if not rows:
        raise ValueError(f'{path}: no rows: write one object per line, such as {{"id": 1, "prompt": "..."}}')
    return rows


def parse_prompt_row(raw: Mapping[str, Any], number: int, where: str, require_gold: bool) -> PromptRow:
    """Check one JSON object; ``where`` (file:line) opens the ValueError of a row that does not fit."""
    try:
        json.dumps(raw, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: a lone surrogate is no text (column {error.start + 1}): mend the row") from error
    except RecursionError as error:
        raise ValueError(f"{where}: too many lists or objects inside one another: mend or remove the row") from error
    source = _prompt_source(raw, where)
    gold = _gold(raw.get("gold"), where)
    if require_gold and gold is None and not any(raw.get(name) for name in _INSTEAD_OF_GOLD):
        raise ValueError(f"{where}: no gold answer, which scoring needs: add a non-empty 'gold' to the row")
    return PromptRow(
        id=_row_id(raw.get("id"), number, where),
        prompt=_prompt(raw[source], where) if source == "prompt" else None,
        messages=_messages(raw[source], where) if source == "messages" else None,
        prompt_ids=_prompt_ids(raw[source], where) if source == "prompt_ids" else None,
        gold=gold,
        task=_task(raw.get("task"), where),
        extra={key: value for key, value in raw.items() if key not in _KNOWN},
    )


def _prompt_source(raw: Mapping[str, Any], where: str) -> str:
    given = [name for name in _SOURCES if raw.get(name) is not None]
    if len(given) == 1:
        return given[0]
    found = " and ".join(given) if given else "none (the row has " + (", ".join(map(repr, raw)) or "no field") + ")"
    raise ValueError(f"{where}: a row needs exactly one of prompt, messages, prompt_ids, but has {found}")


def _row_id(value: Any, number: int, where: str) -> str | int:
    if value is None:
        return number
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"{where}: id is {value!r}: use a non-empty string or a whole number, or leave it out")
    return value


def _prompt(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{where}: prompt is a {type(value).__name__}: it must be a string")
    if not value.strip():
        raise ValueError(f"{where}: the prompt is empty: write a prompt, or remove the row")
    return value


def _messages(value: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{where}: messages must be a non-empty list of {{'role', 'content'}} objects")
    for index, message in enumerate(value):
        fits = isinstance(message, dict) and all(isinstance(message.get(key), str) for key in ("role", "content"))
        if not fits:
            raise ValueError(f"{where}: messages[{index}] needs a 'role' and a 'content', both strings")
    if not value[-1]["content"].strip():
        raise ValueError(f"{where}: the last message is empty: write its content, or remove the row")
    return value


def _prompt_ids(value: Any, where: str) -> list[int]:
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError(f"{where}: prompt_ids must be a non-empty list of token ids")
    for index, token_id in enumerate(value):
        if isinstance(token_id, bool) or not isinstance(token_id, int) or token_id < 0:
            raise ValueError(f"{where}: prompt_ids[{index}] is {token_id!r}: token ids are whole numbers >= 0")
    return list(value)


def _gold(value: Any, where: str) -> str | None:
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{where}: gold is a {type(value).__name__}: it must be a string or a number")
    return str(value)


def _task(value: Any, where: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{where}: task is a {type(value).__name__}: it must be the name of a task, or be left out")
    return value


def common_task(rows: Sequence[PromptRow]) -> str:
    """The task all rows name, whose scorer judges them; ValueError if they name none or several."""
    tasks = sorted({row.task or "" for row in rows})
    if len(tasks) != 1 or not tasks[0]:
        found = ", ".join(repr(task) for task in tasks if task) or "none"
        raise ValueError(f"no scorer: the rows name no common task (found {found}); add --scorer NAME")
    return tasks[0]
