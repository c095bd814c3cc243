"""What the tests of `ScoringProcess` run in its worker: good jobs and a zoo of bad ones."""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from cospec.scoring import Verdict


def echo(text: str, row: dict[str, object]) -> Verdict:
    return Verdict("right", extracted=text, reason=str(os.getpid()))


def one_or_none(text: str) -> object:
    return {"right": True, "wrong": 0, "nothing": None}[text]


def chatty(text: str) -> bool:
    """Prints to every stream and reads its input: none of it may reach or disturb the parent."""
    print(text, flush=True)
    os.write(1, b"noise" * 1000)
    print(text, file=sys.stderr, flush=True)
    return sys.stdin.read() == ""


def limits() -> Verdict:
    """The bound of the worker's address space, in bytes."""
    return Verdict("right", extracted=str(resource.getrlimit(resource.RLIMIT_AS)[0]))


def torch_loaded() -> Verdict:
    return Verdict("right", extracted=str("torch" in sys.modules))


def busy(seconds: float) -> bool:
    """Takes that much processor time, however long it lasts."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass
    return True


def misbehave(how: str, place: str = "") -> object:
    """Whatever a library may do to its process; ``place`` is a file for its process ids."""
    if place:
        Path(place).write_text(str(os.getpid()))
    if how == "loop":
        for number in range(1, signal.NSIG):
            if number not in (signal.SIGKILL, signal.SIGSTOP):
                _ignore(number)
        while True:
            pass
    elif how == "sleep":
        time.sleep(1000)
    elif how == "big number":
        return 9 ** (9**9) == 1
    elif how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    elif how == "sys.exit":
        sys.exit(0)
    elif how == "memory":
        return len(bytearray(1 << 40)) > 0
    elif how == "recursion":
        return misbehave(how)
    elif how == "child":
        with subprocess.Popen(["sleep", "1000"]) as child:
            Path(place).write_text(f"{os.getpid()} {child.pid}")
    elif how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    return True


def _ignore(number: int) -> None:
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        return
