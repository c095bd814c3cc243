"""The files of a sweep's directory that are its own: the table, and what a draft step costs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cospec.jsonl import dumps, read_jsonl, require_file, write_jsonl_atomic

TABLE, PARQUET, COSTS = "cells.jsonl", "cells.parquet", "costs.json"


def write_table(directory: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """All rows at once: readers see a whole table."""
    write_jsonl_atomic(directory / TABLE, rows)


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of a sweep by its directory or its table."""
    file = path / TABLE if path.is_dir() else path
    return list(read_jsonl(require_file(file, "table of a sweep")))


def require_pyarrow() -> None:
    """ValueError where it is not installed; ask before long work that ends in a Parquet file."""
    if find_spec("pyarrow") is None:
        raise ValueError(
            "--parquet needs pyarrow, which is not installed: pip install pyarrow, or drop --parquet and remove a "
            f"{PARQUET} of before"
        )


def write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """The table for data frames: nested names are joined with dots, parameters are JSON, as each rule has its own."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([flat(row) for row in rows]), path)


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """One level of names: `timing.seconds`."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name == "parameters":
            found[name] = dumps(value)
        elif isinstance(value, Mapping):
            found |= {f"{name}.{inner}": entry for inner, entry in value.items()}
        else:
            found[name] = value
    return found


def read_costs(path: Path) -> dict[str, Any] | None:
    """What was measured before, None if nothing was; ValueError for a damaged file."""
    if not path.exists():
        return None
    require_file(path, "costs of a sweep")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if 0 < float(found["c_rel"]) < math.inf:
            return dict(found)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): remove it, and the costs are measured anew") from error
    raise ValueError(f"{path} holds a c_rel of {found['c_rel']}: remove it, and the costs are measured anew")
