"""The supervisor's process, as seen by the one that starts it."""

import contextlib
import functools
import importlib.util
import math
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cospec.scoring.code.isolation import Isolation
from cospec.scoring.code.jail.cage import Cage
from cospec.scoring.code.jail.channel import ChannelClosed, receive, send
from cospec.scoring.code.jail.scratch import remove
from cospec.scoring.code.jail.watch import LONGEST_WALL
from cospec.scoring.code.limits import Limits
from cospec.scoring.code.program import Program
from cospec.scoring.threads import wait_readable

_ENTRY = Path(__file__).parent / "jail" / "__main__.py"
# The interpreter may need these to start at all.
_KEPT_ENVIRONMENT = ("LD_LIBRARY_PATH", "PYTHONHOME")
# Where shared libraries and time zones lie; folders that do not exist are left out.
_SYSTEM_PATHS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/nix/store", "/etc/ld.so.cache", "/usr/share/zoneinfo")
_TICK_S, _GRACE_S, _END_S = 1.0, 60.0, 10.0


Libraries = tuple[tuple[str, str], ...]
"""Names and folders of what may be imported beside the standard library."""


class SupervisorError(Exception):
    """The supervisor did not answer: a failure of the sandbox, not of the program that is kept from it."""


class SupervisorLostError(SupervisorError):
    """It was killed, or is silent: a program that can reach it may have done that."""


@contextlib.contextmanager
def supervised(
    program: Program, limits: Limits, isolation: Isolation, *, is_tested: bool
) -> Iterator["SupervisorProcess"]:
    """A supervisor for this program, with a scratch directory; both are gone afterwards, and so are all processes."""
    scratch = tempfile.mkdtemp(prefix="cospec-code-")
    try:
        libraries = _folders(program.libraries)
        cage = _cage(limits, isolation, scratch, libraries)
        supervisor = SupervisorProcess(cage)
        try:
            supervisor.begin(
                {
                    "sources": program.sources,
                    "libraries": libraries,
                    "is_tested": is_tested,
                    "cage": {**cage._asdict(), "mechanisms": sorted(cage.mechanisms)},
                }
            )
            yield supervisor
        finally:
            supervisor.end()
    finally:
        # Gone already unless the supervisor did not come to its end.
        if os.path.lexists(scratch):
            remove(scratch)


def _cage(limits: Limits, isolation: Isolation, scratch: str, libraries: Libraries) -> Cage:
    return Cage(
        mechanisms=frozenset(isolation.mechanisms),
        scratch=scratch,
        readable=(*_readable(), *(path for _, folder in libraries for path in (folder, f"{folder}.libs"))),
        cpu_s=math.ceil(limits.cpu_s),
        wall_s=limits.wall,
        memory_bytes=limits.memory_mb << 20,
        file_bytes=limits.file_mb << 20,
        scratch_bytes=limits.scratch_mb << 20,
        scratch_files=limits.scratch_files,
        output_bytes=limits.output_bytes,
        open_files=limits.open_files,
        processes=limits.processes,
    )


@functools.cache
def _readable() -> tuple[str, ...]:
    """What the interpreter needs to import its standard library; outside a virtual environment, all that is
    installed lies among it and can be read, though not imported."""
    base = {"base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    own = {sysconfig.get_path(name, vars=base) for name in ("stdlib", "platstdlib")}
    return (*sorted(own), f"{sys.base_prefix}/lib", *_SYSTEM_PATHS)


@functools.cache
def _folders(libraries: tuple[str, ...]) -> Libraries:
    """Name and folder of each library that is installed."""
    specs = {name: importlib.util.find_spec(name) for name in libraries}
    return tuple(
        (name, spec.submodule_search_locations[0])
        for name, spec in specs.items()
        if spec and spec.submodule_search_locations
    )


class SupervisorProcess:
    """Orders and answers; SupervisorError when the process fails."""

    def __init__(self, cage: Cage) -> None:
        self.patience_s = LONGEST_WALL * cage.wall_s + _GRACE_S
        # -S and -P leave nothing importable but the standard library; -s and the environment keep the user's out.
        self.process = subprocess.Popen(
            [sys.executable, "-s", "-P", "-S", str(_ENTRY), cage.scratch],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=_environment(cage.scratch),
            start_new_session=True,
        )

    def begin(self, header: dict[str, Any]) -> None:
        """Say what is to be run."""
        self._send(header)

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        """Give one order and wait for its answer."""
        self._send(order)
        assert self.process.stdout
        answers = self.process.stdout.fileno()
        # In short steps: the time in which the whole machine stands still does not count.
        for _ in range(math.ceil(self.patience_s / _TICK_S)):
            if wait_readable(answers, _TICK_S):
                break
        else:
            raise SupervisorLostError(f"no answer from the sandbox's supervisor within {self.patience_s:.0f} s")
        try:
            answer: dict[str, Any] = receive(answers)
        except ChannelClosed as error:
            raise self._ended() from error
        return answer

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        try:
            send(self.process.stdin.fileno(), message)
        except ChannelClosed as error:
            raise self._ended() from error

    def _ended(self) -> SupervisorError:
        assert self.process.stderr
        status = self.process.wait()
        lines = self.process.stderr.read().decode("utf-8", errors="replace").strip().splitlines()
        why = f"the sandbox's supervisor ended: exit status {status}, {lines[-1] if lines else 'no message'}"
        return SupervisorLostError(why) if status < 0 else SupervisorError(why)

    def end(self) -> None:
        """Close the orders, on which the supervisor ends everything and goes; kill it if it does not."""
        assert self.process.stdin
        assert self.process.stdout
        assert self.process.stderr
        self.process.stdin.close()
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


def _environment(scratch: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    return kept | {
        "PATH": "/usr/bin:/bin",
        "HOME": scratch,
        "TMPDIR": scratch,
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        # Sets of strings in the same order every time, so that the same program gets the same verdict.
        "PYTHONHASHSEED": "0",
        "PYTHONUTF8": "1",
        # A linear algebra library starts a thread, and maps memory for it, for every core it sees.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
