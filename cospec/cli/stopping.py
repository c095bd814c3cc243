"""Ctrl-C, and the SIGTERM that a scheduler sends before it kills, end long work, but never in the middle of a write."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopSignals:
    """A context in which both signals raise KeyboardInterrupt, as soon as no `held` block is being run."""

    def __init__(self) -> None:
        self._holding = self._pending = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> StopSignals:
        # Python lets only the main thread set handlers.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *details: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    @contextmanager
    def held(self) -> Iterator[None]:
        """A block that is finished before a signal takes effect."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if not self._holding:
            raise KeyboardInterrupt
        self._pending = True
