"""Reading files that another process may still be writing, without touching them."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cospec.jsonl import read_numbered_jsonl
from cospec.labels.record import RolloutLabels, labels_from_json


def numbered_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Line numbers and objects of a JSON Lines file; a last line that is not finished is passed over.

    ValueError with file:line for any other line that is no object.
    """
    last = 0
    try:
        for last, row in read_numbered_jsonl(path):
            yield last, row
    except ValueError:
        rest = path.read_bytes().split(b"\n")[last:]
        # Torn is only what no newline ends and nothing stands before.
        if not rest or not rest[-1].strip() or any(line.strip() for line in rest[:-1]):
            raise


def whole_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects alone."""
    for _, row in numbered_rows(path):
        yield row


def whole_labels(path: Path) -> list[RolloutLabels]:
    """The rows of a file of labels, none where it has just been begun; ValueError with file:line for any other."""
    found = []
    for number, row in numbered_rows(path):
        try:
            found.append(labels_from_json(row))
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
    return found


def is_torn(path: Path) -> bool:
    """Whether the last line is one that `numbered_rows` passes over."""
    with path.open("rb") as lines:
        last = collections.deque(lines, maxlen=1)
    if not last or last[0].endswith(b"\n") or not last[0].strip():
        return False
    try:
        return not isinstance(json.loads(last[0]), dict)
    except ValueError:
        return True
