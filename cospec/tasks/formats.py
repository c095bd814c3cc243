"""Rows of a local file in the formats benchmarks are published in."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from cospec.jsonl import open_rows, read_numbered_jsonl, require_file

SUFFIXES = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".tsv", ".tsv.gz", ".csv", ".csv.gz", ".parquet")

NumberedRows = Iterator[tuple[int, dict[str, Any]]]


def read_rows(path: Path, columns: Sequence[str] | None = None) -> NumberedRows:
    """Rows with their numbers: the line in line-wise files, the position from 1 in the others.

    ``columns`` names the columns of a .tsv without a header line, whose quotes are plain characters. ValueError names
    file and line.
    """
    file = require_file(path, "data file")
    kind = next((suffix for suffix in reversed(SUFFIXES) if file.name.endswith(suffix)), None)
    if kind is None:
        raise ValueError(f"{file}: unknown kind of file: use one of {', '.join(SUFFIXES)}")
    kind = kind.removesuffix(".gz")
    if kind == ".jsonl":
        return read_numbered_jsonl(file)
    if kind == ".json":
        return _read_json(file)
    if kind == ".parquet":
        return _read_parquet(file)
    return _read_separated(file, "\t" if kind == ".tsv" else ",", columns)


def file_digest(path: Path) -> str:
    """sha256 of the file as it lies there, compressed or not."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_json(file: Path) -> NumberedRows:
    with open_rows(file) as content:
        try:
            rows = json.loads(content.read().decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{file}: not JSON ({error}): write a list of objects, or one object per line") from error
    if not isinstance(rows, list):
        raise ValueError(f"{file}: a JSON {type(rows).__name__}, not a list of rows: write [{{...}}, ...]")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise ValueError(f"{file}: row {number} is a JSON {type(row).__name__}, not an object")
        yield number, row


def _read_separated(file: Path, separator: str, columns: Sequence[str] | None) -> NumberedRows:
    # A CSV cell may hold line ends; the fields of the benchmarks are long texts.
    csv.field_size_limit(2**31 - 1)
    with open_rows(file) as content:
        lines = TextIOWrapper(content, encoding="utf-8-sig", newline="")
        if columns is None:
            reader = csv.reader(lines, delimiter=separator, strict=True)
        else:
            reader = csv.reader(lines, delimiter=separator, quoting=csv.QUOTE_NONE)
        try:
            names = list(next(reader)) if columns is None else list(columns)
            for cells in reader:
                if len(cells) != len(names):
                    raise ValueError(
                        f"{file}:{reader.line_num}: {len(cells)} columns instead of {len(names)} ({', '.join(names)})"
                    )
                yield reader.line_num, dict(zip(names, cells, strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{file}:{reader.line_num}: {error}: mend the file") from error
        except StopIteration as error:
            raise ValueError(f"{file}: empty") from error


def _read_parquet(file: Path) -> NumberedRows:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(f"{file}: reading parquet needs pyarrow: pip install 'cospec[eval]'") from error
    try:
        table = pyarrow.parquet.read_table(file)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{file}: not a parquet file ({error})") from error
    yield from enumerate(table.to_pylist(), start=1)
