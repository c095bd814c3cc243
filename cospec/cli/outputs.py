"""Files that a command writes, checked before it reads or computes anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from cospec.jsonl import require_plain_name


def check_output(option: str, out: Path, inputs: Sequence[Path | None] = ()) -> None:
    """ValueError where ``out`` is a directory, would have to be compressed, or is one of the command's own inputs."""
    if out.is_dir():
        raise ValueError(f"{option} {out} is a directory: give the path of a file")
    require_plain_name(out)
    for file in inputs:
        # Pipes and terminals may well be both.
        if file is not None and out.is_file() and file.is_file() and out.samefile(file):
            raise ValueError(f"{option} {out} is the file that is read: it would be overwritten, so name another file")


def check_directory(out: Path | None) -> None:
    """ValueError where --out, which is to be a directory, is something else."""
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a directory")


def check_files_within(out: Path, names: Iterable[str]) -> None:
    """ValueError where --out has a directory in place of one of the files that are written there."""
    for path in (out / name for name in names):
        if path.is_dir():
            raise ValueError(
                f"{path} is a directory, and a file of that name is written: move it, or name another --out"
            )
