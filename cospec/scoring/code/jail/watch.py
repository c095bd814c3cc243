"""Watching a run from outside: output drained and capped, limits kept, everything ended and reaped."""

import os
import select
import time
from typing import Any

from cospec.scoring.code.jail.cage import Cage
from cospec.scoring.code.jail.caged import LOCKED, Caged, close
from cospec.scoring.code.jail.processes import (
    Ended,
    descendants,
    end_all,
    num_bytes_written,
    num_tasks,
    usage_of,
    wait_for,
)
from cospec.scoring.code.jail.scratch import is_over

_TICK_S = 0.02
# No tick takes that long unless the machine, or the supervisor, was stopped: time the program did not have either.
_LONGEST_TICK_S = 0.25
# Looking through all the machine's processes costs a millisecond or more.
_COUNT_S = 0.2
_OWN_TASKS = 2
_PIECE = 1 << 18
_DISCARDED_OUTPUTS = 64
_LAST_MOMENT_S = 0.25

LONGEST_WALL = 10.0
"""Multiples of the wall limit to which waiting for a processor can extend it."""


class _Drain:
    """What came out of a pipe: the first ``max_bytes`` of it, and how much there was."""

    def __init__(self, descriptor: int, max_bytes: int) -> None:
        self.descriptor, self.max_bytes = descriptor, max_bytes
        self.kept = bytearray()
        self.num_bytes = 0

    def read(self) -> bool:
        """Take what is there now; False at the end of the pipe."""
        while True:
            try:
                piece = os.read(self.descriptor, _PIECE)
            except BlockingIOError:
                return True
            if not piece:
                return False
            self.num_bytes += len(piece)
            self.kept += piece[: self.max_bytes - len(self.kept)]
            if len(piece) < _PIECE:
                return True

    @property
    def text(self) -> str:
        return self.kept.decode("utf-8", errors="replace")


class Watch:
    """One run: a program, and the tester that questions it unless it is a script."""

    def __init__(self, cage: Cage, program: Caged, tester: Caged | None, orders: int) -> None:
        self.cage, self.program, self.tester, self.orders = cage, program, tester, orders
        # The one whose end is the end of the run.
        self.decisive = tester or program
        self.drains = {
            descriptor: _Drain(descriptor, cage.output_bytes)
            for caged in (program, tester)
            if caged
            for descriptor in (caged.stdout, caged.stderr, caged.status)
        }
        self.poll = select.poll()
        for descriptor in self.drains:
            self.poll.register(descriptor, select.POLLIN)
        self.pidfd = _pidfd(self.decisive.pid)
        if self.pidfd is not None:
            self.poll.register(self.pidfd, select.POLLIN)
        # No event asked for: only the other side's hanging up is reported.
        self.poll.register(orders, 0)
        self.limit: str | None = None
        self.spent_s = 0.0
        self.wall_s = cage.wall_s
        self.ran_s: float | None = None
        self.next_look = 0.0
        self.next_count_s = 0.0

    def to_the_end(self) -> dict[str, Any]:
        """Watch until the run is over or a limit is reached, end all processes, and say what happened."""
        ended: dict[int, Ended] = {}
        while self.limit is None and not self._is_over(ended):
            self._tick(_TICK_S)
        if self.limit is None and self.tester:
            self._await_program(ended)
        end_all(ended, [caged.pid for caged in (self.program, self.tester) if caged])
        for drain in self.drains.values():
            drain.read()
        answer = self._answer(ended)
        self._close()
        return answer

    def _close(self) -> None:
        for caged in (self.program, self.tester):
            if caged:
                close(caged)
        if self.pidfd is not None:
            os.close(self.pidfd)

    def _is_over(self, ended: dict[int, Ended]) -> bool:
        return wait_for(self.decisive.pid, ended)

    def _await_program(self, ended: dict[int, Ended]) -> None:
        """The tester is gone, so the program's end is near; how it ended may be why the tests failed."""
        deadline = time.monotonic() + _LAST_MOMENT_S
        while not wait_for(self.program.pid, ended) and time.monotonic() < deadline:
            self._tick(_TICK_S / 4)

    def _tick(self, wait_s: float) -> None:
        before = time.monotonic()
        for descriptor, event in self.poll.poll(wait_s * 1000):
            if descriptor == self.orders:
                self.limit = "abandoned"
            elif descriptor == self.pidfd or not self._drained(descriptor, event):
                self.poll.unregister(descriptor)
        now = time.monotonic()
        self.spent_s += min(now - before, _LONGEST_TICK_S)
        if now >= self.next_look:
            self.limit = self.limit or self._reached()
            self.next_look = now + _TICK_S

    def _drained(self, descriptor: int, event: int) -> bool:
        """Take what the pipe holds; False when nothing more can come."""
        return bool(event & (select.POLLIN | select.POLLHUP)) and self.drains[descriptor].read()

    def _reached(self) -> str | None:
        if self.spent_s > self.wall_s and (limit := self._out_of_time()):
            return limit
        if any(drain.num_bytes > _DISCARDED_OUTPUTS * self.cage.output_bytes for drain in self.drains.values()):
            return "output"
        if is_over(self.cage.scratch, self.cage.scratch_bytes, self.cage.scratch_files):
            return "scratch"
        return self._crowded_or_full() if self.cage.forks_freely or self.spent_s >= self.next_count_s else None

    def _crowded_or_full(self) -> str | None:
        """What only a look at all the processes shows: their number, and what files without a name take up."""
        self.next_count_s = self.spent_s + _COUNT_S
        below = descendants()
        # Each side has one of its own, and a namespace its first.
        if num_tasks(below) > self.cage.processes + _OWN_TASKS:
            return "processes"
        if num_bytes_written(below) > self.cage.scratch_bytes:
            return "scratch"
        return None

    def _out_of_time(self) -> str | None:
        """Whether the time is up, once what was spent in line for a processor is added to it."""
        usage = usage_of(descendants())
        # Where the kernel does not count the waiting, the program gets the benefit of the doubt.
        if usage is None or self.spent_s >= LONGEST_WALL * self.cage.wall_s:
            return "starved"
        # The kernel counts a wait when it is over: whoever did not run since the last look may be in line still.
        ran_before, self.ran_s = self.ran_s, usage.ran_s
        if usage.is_ready and ran_before in (None, usage.ran_s):
            return None
        extended = min(self.cage.wall_s + usage.waited_s, LONGEST_WALL * self.cage.wall_s)
        if extended <= self.spent_s:
            return "wall"
        self.wall_s, self.ran_s = extended, None
        return None

    def _answer(self, ended: dict[int, Ended]) -> dict[str, Any]:
        program = self.program
        return {
            "limit": self.limit,
            "wall_s": self.spent_s,
            "program": self._side(program, ended),
            "tester": self._side(self.tester, ended) if self.tester else None,
        }

    def _side(self, caged: Caged, ended: dict[int, Ended]) -> dict[str, Any]:
        stdout, stderr, status = (self.drains[one] for one in (caged.stdout, caged.stderr, caged.status))
        end = ended.get(caged.pid)
        return {
            "locked": status.kept.startswith(LOCKED),
            "report": status.text[len(LOCKED) :],
            "exit_code": None if end is None else end.exit_code,
            "cpu_s": 0.0 if end is None else end.cpu_s,
            "stdout": stdout.text,
            "stderr": stderr.text,
            "cut": stdout.num_bytes > len(stdout.kept),
        }


def _pidfd(pid: int) -> int | None:
    """A descriptor that wakes the poll when the process ends; None where the kernel has none, and ticks must do."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
