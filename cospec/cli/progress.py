"""Progress of long work on stderr: a bar on a terminal, now and then a line anywhere else."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

_SECONDS_BETWEEN_LINES = 30.0


class Step(Protocol):
    """Tells that ``count`` more pieces are done."""

    def __call__(self, count: int = 1) -> None: ...


@contextmanager
def progress(title: str, total: int, unit: str = "prompts", *, bar: bool = True) -> Iterator[Step]:
    """Yield a function to call as pieces are finished; stdout stays untouched.

    ``bar`` False is for work that itself writes to the terminal, where a bar would be torn apart.
    """
    if bar and sys.stderr.isatty():
        with _bar(title, total) as step:
            yield step
    else:
        yield _lines(title, total, unit)


@contextmanager
def _bar(title: str, total: int) -> Iterator[Step]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # Left alone, rich would send what is printed meanwhile to stderr, and with it the JSON lines meant for stdout.
    with Progress(*columns, console=Console(stderr=True), redirect_stdout=False, redirect_stderr=False) as bars:
        task = bars.add_task(title, total=total)

        def step(count: int = 1) -> None:
            bars.advance(task, count)

        yield step


def _lines(title: str, total: int, unit: str) -> Step:
    done, last = 0, time.monotonic()

    def step(count: int = 1) -> None:
        nonlocal done, last
        done += count
        if time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            print(f"{title}: {done} of {total} {unit}", file=sys.stderr, flush=True)

    return step
