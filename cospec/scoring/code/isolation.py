"""What this machine permits for keeping a program in, found by trying it, and what that guarantees."""

import functools
import json
import os
import socket
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cospec.scoring.code.jail import kernel
from cospec.scoring.code.jail.cage import MECHANISMS

Level = Literal["limits", "contained", "full"]

LEVELS: tuple[Level, ...] = ("limits", "contained", "full")

# What each guarantee means, and which mechanisms give it.
_GUARANTEES = {
    "no_network": ("no network", "seccomp or namespaces"),
    "no_outside_writes": ("no writing outside the scratch directory", "landlock with seccomp or user"),
    "no_outside_reads": ("no reading beyond the interpreter and its libraries", "landlock"),
    "no_outside_processes": ("no reach into other processes", "seccomp and landlock"),
    "no_left_processes": ("no process that outlives the program", "seccomp or namespaces"),
}
_NEEDED: dict[Level, tuple[str, ...]] = {
    "limits": (),
    "contained": ("no_network", "no_outside_writes"),
    "full": tuple(_GUARANTEES),
}


@dataclass(frozen=True, slots=True)
class Isolation:
    """The mechanisms in use on this machine and what, tried out, they guarantee.

    Limits on CPU time, memory, output and files, a scratch directory, an empty environment and the ending of all
    descendants from outside are part of every level, "limits" too. "contained" adds that there is no network and no
    writing outside; "full" has all guarantees.
    """

    mechanisms: tuple[str, ...]
    no_network: bool = False
    no_outside_writes: bool = False
    no_outside_reads: bool = False
    no_outside_processes: bool = False
    no_left_processes: bool = False

    @property
    def level(self) -> Level:
        """The highest level whose guarantees all hold."""
        return next(level for level in reversed(LEVELS) if not self.missing(level))

    def missing(self, level: Level) -> tuple[str, ...]:
        """Names of the guarantees that ``level`` has and this machine has not."""
        return tuple(name for name in _NEEDED[level] if not getattr(self, name))

    def to_json(self) -> dict[str, Any]:
        """For results: the level, the mechanisms and each guarantee."""
        return {"level": self.level, **asdict(self), "mechanisms": list(self.mechanisms)}

    def __str__(self) -> str:
        holds = [text for name, (text, _) in _GUARANTEES.items() if getattr(self, name)]
        return f"isolation {self.level} ({', '.join(self.mechanisms) or 'rlimits only'}): {', '.join(holds) or 'none'}"

    def require(self, minimum: Level) -> None:
        """ValueError naming what is missing unless this is at least ``minimum``."""
        if minimum not in LEVELS:
            raise ValueError(f"isolation level {minimum!r} does not exist: choose from {', '.join(LEVELS)}")
        missing = [f"{_GUARANTEES[name][0]} (needs {_GUARANTEES[name][1]})" for name in self.missing(minimum)]
        if missing:
            raise ValueError(
                f"isolation level {minimum!r} is asked for, but this machine offers {self.level!r}; missing: "
                f"{'; '.join(missing)}. Run where these are permitted, or ask for {self.level!r}"
            )


_probing = threading.Lock()


def isolation_here(mechanisms: Sequence[str] = MECHANISMS) -> Isolation:
    """The isolation of this machine, using no other than the given mechanisms; tried out once per process."""
    for name in mechanisms:
        if name not in MECHANISMS:
            raise ValueError(f"isolation mechanism {name!r} does not exist: choose from {', '.join(MECHANISMS)}")
    with _probing:
        try:
            return _tried(tuple(mechanisms))
        except OSError as error:
            raise _does_not_start(str(error)) from error


def _does_not_start(why: str) -> ValueError:
    return ValueError(
        f"the code sandbox does not start, not even without isolation: {why}; check that {tempfile.gettempdir()} is "
        "writable and that processes can be started"
    )


@functools.cache
def _tried(mechanisms: tuple[str, ...]) -> Isolation:
    usable: tuple[str, ...] = ()
    with (
        tempfile.TemporaryDirectory(prefix="cospec-probe-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as local_server,
    ):
        _listen(local_server, folder)
        targets = _targets(Path(folder), server)
        found = _probe(usable, targets)
        if isinstance(found, str):
            raise _does_not_start(found)
        for name in MECHANISMS:
            tried = _probe((*usable, name), targets) if name in mechanisms else ""
            if not isinstance(tried, str):
                usable, found = (*usable, name), tried
    return Isolation(usable, **{name: found[name] for name in _GUARANTEES})


def _listen(server: socket.socket, folder: str) -> None:
    """Listen at the name "socket" in the folder, whose own path may be longer than an address can be."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        server.bind(f"/proc/self/fd/{opened}/socket" if kernel.IS_LINUX else f"{folder}/socket")
    finally:
        os.close(opened)
    server.listen()
    os.chmod(f"{folder}/socket", 0o666)


def _targets(folder: Path, server: socket.socket) -> str:
    """Things outside, unprotected as far as the file system is concerned, that a program must not get at."""
    os.chmod(folder, 0o777)
    readable = folder / "readable"
    readable.write_text("outside")
    os.chmod(readable, 0o666)
    return json.dumps({"folder": str(folder), "port": server.getsockname()[1], "pid": os.getpid()})


def _probe(mechanisms: tuple[str, ...], targets: str) -> dict[str, bool] | str:
    """What a program under these mechanisms cannot do; or why they, or Python under them, do not work."""
    from cospec.scoring.code.limits import Limits
    from cospec.scoring.code.program import Program
    from cospec.scoring.code.sandbox import run_script

    program = Program((_PROBE,), libraries=())
    try:
        run = run_script(program, targets, Limits(cpu_s=10), Isolation(mechanisms))
    except OSError as error:
        return str(error)
    if run.outcome != "passed":
        return run.reason
    found: dict[str, bool] = json.loads(run.stdout)
    return found


_PROBE = """
import ctypes, decimal, fcntl, json, os, random, socket, sys, unicodedata
targets = json.load(sys.stdin)

def refused(action):
    try:
        action()
    except OSError:
        return True
    return False

def start_a_process():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)

open("own", "w").write("the scratch directory is writable")
def connect():
    socket.create_connection(("127.0.0.1", targets["port"]), timeout=2).close()

def send_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.sendto(b"datagram", ("127.0.0.1", targets["port"]))

def connect_locally():
    # From inside the folder: the path to it may be longer than an address can be.
    os.chdir(targets["folder"])
    with socket.socket(socket.AF_UNIX) as out:
        out.connect("socket")

def own_a_signal():
    reading, writing = os.pipe()
    try:
        fcntl.fcntl(reading, fcntl.F_SETOWN, targets["pid"])
    finally:
        os.close(reading)
        os.close(writing)

new, old = os.path.join(targets["folder"], "new"), os.path.join(targets["folder"], "readable")
signals = refused(lambda: os.kill(targets["pid"], 0)) and refused(own_a_signal)
memory = refused(lambda: open("/proc/%d/mem" % targets["pid"], "r+b").close())
print(json.dumps({
    "no_network": refused(connect) and refused(send_datagram),
    "no_outside_writes": all(map(refused, (
        lambda: open(new, "w"), lambda: open(old, "a"), lambda: os.remove(old), lambda: os.chmod(old, 0o666),
    ))),
    "no_outside_reads": refused(lambda: open(old)),
    "no_outside_processes": signals and memory and refused(connect_locally),
    "no_left_processes": os.getpid() == 1 or refused(start_a_process),
}))
"""
