"""Reading files that another process may still be writing, without touching them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cospec.jsonl import read_numbered_jsonl


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
