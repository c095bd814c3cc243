"""Scoring that may hang, crash or eat memory, in a process that can be killed.

A time limit by signal works on the main thread alone and cannot interrupt C code; a thread or a pool can only stop
waiting. Here the parent watches the clock, kills the worker with its whole process group, reaps it, and starts another.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from cospec.scoring import worker
from cospec.scoring.threads import wait_readable
from cospec.scoring.verdict import Verdict

_START_LIMIT_S = 300.0
_STDERR = 2
#: Time limits that a worker may take while others have the processor, as on a machine that trains.
_PATIENCE = 30


class ScoringProcess:
    """Runs ``module:function`` on JSON arguments in a worker of its own, one call at a time, from any thread.

    The function returns what a scorer may return. A call that takes longer than ``time_limit_s`` (wall time, up to 30
    times as much while the worker is ready to run and does not get the processor) is a "timeout" verdict, one that
    runs out of memory or kills its process an "error" verdict; both cost a new worker for the next call.
    ``memory_limit_mb`` bounds the worker's address space. None is no limit. What the function prints is dropped, or
    goes to stderr with ``shows_output``. The worker starts with the first call and ends with `close`, with this object,
    or with the program, even if the program is killed. Linux alone has all that this needs.
    """

    def __init__(
        self,
        function: str,
        *,
        time_limit_s: float | None = 10.0,
        memory_limit_mb: int | None = 2048,
        shows_output: bool = False,
    ) -> None:
        if any(limit is not None and not limit > 0 for limit in (time_limit_s, memory_limit_mb)):
            raise ValueError(
                f"a scoring process with time_limit_s={time_limit_s} and memory_limit_mb={memory_limit_mb}: "
                "both limits must be positive"
            )
        self._setting = _Setting(function, time_limit_s, memory_limit_mb, shows_output)
        self._lock = threading.Lock()
        self._child: _Child | None = None
        _ALIVE.add(self)

    def score(self, *arguments: Any) -> Verdict:
        """The verdict of the function on ``arguments``; ValueError if the function cannot be imported."""
        request = worker.encode(arguments)
        with self._lock:
            child = self._running_child()
            healthy = False
            try:
                verdict, healthy = child.ask(request)
            finally:
                # Also after an interrupt: the reply to a question nobody waits for must not answer the next one.
                if not healthy:
                    self._stop()
            return verdict

    def close(self) -> None:
        """End the worker; a later call starts another one."""
        with self._lock:
            self._stop()

    @property
    def pid(self) -> int | None:
        """The worker's process id, None while there is none."""
        return self._child.pid if self._child is not None else None

    def __enter__(self) -> "ScoringProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _running_child(self) -> "_Child":
        if self._child is None:
            self._child = _Child(self._setting)
        return self._child

    def forget(self) -> None:
        """In a forked child: leave the worker to the parent, and a lock that one of its threads may hold."""
        self._lock = threading.Lock()
        self._stop()

    def _stop(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


@dataclass(frozen=True, slots=True)
class _Setting:
    """What a worker runs, within which limits."""

    function: str
    time_limit_s: float | None
    memory_limit_mb: int | None
    shows_output: bool


class _Child:
    """One worker process and the socket to it."""

    def __init__(self, setting: _Setting) -> None:
        self._setting = setting
        output = _STDERR if setting.shows_output else subprocess.DEVNULL
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # -P: the worker's own directory must not shadow the standard library.
                [sys.executable, "-P", str(Path(worker.__file__)), str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.pid = self._process.pid
        # Runs when this object or the program ends, whichever is first; `end` calls it by hand.
        self.end = weakref.finalize(self, _end, os.getpid(), self._process, self._connection)
        started = False
        try:
            self._introduce()
            started = True
        finally:
            if not started:
                self.end()

    def _introduce(self) -> None:
        function, memory_limit_mb = self._setting.function, self._setting.memory_limit_mb
        setting = {"function": function, "path": sys.path, "memory_limit_mb": memory_limit_mb}
        try:
            failure = self._exchange(worker.encode(setting), _START_LIMIT_S)["failure"]
        except (EOFError, ConnectionError, TimeoutError) as error:
            raise ValueError(
                f"the scoring process for {function!r} did not start ({self._fate()}): "
                f"is its memory limit of {memory_limit_mb} MB too small?"
            ) from error
        if failure is not None:
            raise ValueError(f"the scoring process cannot import {function!r}: {failure}")

    def ask(self, request: bytes) -> tuple[Verdict, bool]:
        """The verdict, and whether the worker can serve again."""
        try:
            kind, extracted, reason, out_of_memory = self._exchange(request, self._setting.time_limit_s)
        except TimeoutError:
            return Verdict("timeout", reason=f"no verdict within {self._setting.time_limit_s:g} s"), False
        except (EOFError, ConnectionError, json.JSONDecodeError):
            return Verdict("error", reason=f"the scoring process ended ({self._fate()})"), False
        return Verdict(kind, extracted, reason), not out_of_memory

    def _exchange(self, request: bytes, time_limit_s: float | None) -> Any:
        self._connection.settimeout(time_limit_s)
        cpu_before = self._cpu_time_s()
        self._connection.sendall(request)
        for _ in range(_PATIENCE):
            if wait_readable(self._connection.fileno(), time_limit_s):
                return worker.receive(self._connection)
            if time_limit_s is None or not self._is_starved(cpu_before, time_limit_s):
                break
        raise TimeoutError

    def _is_starved(self, cpu_before: float, time_limit_s: float) -> bool:
        """Whether the worker is ready to run, or stopped from outside, and has had little of its time so far."""
        return self._state() in "RT" and self._cpu_time_s() - cpu_before < time_limit_s / 2

    def _state(self) -> str:
        return self._stat()[0]

    def _cpu_time_s(self) -> float:
        return sum(map(int, self._stat()[11:13])) / os.sysconf("SC_CLK_TCK")

    def _stat(self) -> list[str]:
        # The name in front of these fields is in parentheses and may hold anything.
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()

    def _fate(self) -> str:
        """How the worker ended, in words; it stays unreaped, so that `end` still finds its process group."""
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                killed = ended.si_code != os.CLD_EXITED
                return f"signal {signal.Signals(ended.si_status).name}" if killed else f"exit status {ended.si_status}"
            time.sleep(0.01)
        return "no reply"


def _after_fork() -> None:
    # Two processes on one connection would mix up their replies.
    for process in list(_ALIVE):
        process.forget()


_ALIVE: "weakref.WeakSet[ScoringProcess]" = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)


def _end(owner: int, process: "subprocess.Popen[bytes]", connection: socket.socket) -> None:
    connection.close()
    assert process.stdin
    process.stdin.close()
    if os.getpid() == owner:
        # Not reaped so far, dead or alive: the group's number cannot have passed to a stranger.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
