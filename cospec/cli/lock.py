"""One process at a time writes into a run directory, or goes on with a file."""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

LOCK = ".lock"


@contextmanager
def sole_writer(directory: Path | None) -> Iterator[None]:
    """A context that one process can be in for a directory, which is made; ValueError names the process that is.

    The kernel ends the claim with the process, however that ends. None stands for no directory.
    """
    if directory is None:
        yield
        return
    with _claimed(directory / LOCK, directory):
        yield


@contextmanager
def sole_appender(out: Path) -> Iterator[None]:
    """As `sole_writer`, for one file, by a hidden one beside it, which stays.

    Pipes and terminals belong to whoever has them.
    """
    if out.exists() and not out.is_file():
        yield
        return
    with _claimed((whole := out.resolve()).with_name(f".{whole.name}.lock"), out):
        yield


@contextmanager
def _claimed(lock: Path, out: Path) -> Iterator[None]:
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a+", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"--out {out} cannot be written ({error.strerror}): name another place") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            who = file.read().strip() or "another one"
            raise ValueError(
                f"process {who} is writing to {out}: wait until it has ended, stop it, or name another --out"
            ) from error
        except OSError as error:
            # Some network file systems have no locks; that is no reason not to use them.
            typer.echo(
                f"cospec: warning: {out} cannot be locked ({error.strerror}): start nothing else there", err=True
            )
        file.truncate(0)
        file.write(f"{os.getpid()} on {platform.node()}\n")
        file.flush()
        yield
