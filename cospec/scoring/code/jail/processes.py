"""Processes: start one, find every descendant, end them all, see what they used."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

_REAP_PAUSE_S = 0.002


class Usage(NamedTuple):
    """Seconds a set of processes ran, and seconds it stood ready to run but had no processor.

    ``is_ready`` says that one of their threads is running or in line for a processor now.
    """

    ran_s: float
    waited_s: float
    is_ready: bool


def start(body: Callable[[], int]) -> int:
    """Fork; the child runs ``body`` and ends with the status it returns. Returns the child's process id."""
    pid = os.fork()
    if pid == 0:
        _run_and_exit(body)
    return pid


def _run_and_exit(body: Callable[[], int]) -> NoReturn:
    status = 1
    try:
        status = body()
    # Broad on purpose: whatever is raised here must not reach the parent's frames, which lie below in this copy.
    except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit):
        import traceback  # seldom needed, and slow to import

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def end_as(wait_status: int) -> NoReturn:
    """End this process the way another one ended, by exit status or by signal."""
    if os.WIFSIGNALED(wait_status):
        number = os.WTERMSIG(wait_status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(wait_status) & 0xFF)


class Ended(NamedTuple):
    """How a child ended (a negative code is the signal that killed it) and the CPU seconds it and its own used."""

    exit_code: int
    cpu_s: float


def wait_for(pid: int, ended: dict[int, Ended]) -> bool:
    """Whether this child has ended; if so it is reaped, and noted in ``ended``."""
    if pid not in ended:
        found, status, usage = os.wait4(pid, os.WNOHANG)
        if found:
            ended[pid] = Ended(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime)
    return pid in ended


def end_all(ended: dict[int, Ended], groups: list[int]) -> None:
    """Kill and reap all children of this process, orphans it inherited included, and note them in ``ended``.

    ``groups`` are the process groups they began in. Runs until there is no child left, so that nothing can hide by
    starting the next process just in time.
    """
    for group in groups:
        # The number of a group whose first process is reaped may be someone else's by now.
        if group in ended:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            ended[pid] = Ended(os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime)
            continue
        time.sleep(_REAP_PAUSE_S)
        for pid in descendants():
            _kill(pid)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def descendants() -> list[int]:
    """Process ids of everything below this process; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for pid in _all_pids():
        # It may have ended since; nobody else's business then.
        with (
            contextlib.suppress(OSError, IndexError, ValueError),
            open(f"/proc/{pid}/stat", encoding="latin-1") as stat,
        ):
            # The name in parentheses may hold anything, blanks and parentheses included.
            parent = int(stat.read().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(pid)
    found, open_ends = list[int](), [os.getpid()]
    while open_ends:
        below = children.get(open_ends.pop(), [])
        found += below
        open_ends += below
    return found


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []


def num_tasks_of(user: int) -> int:
    """Processes and threads that belong to this user id."""
    number = 0
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == user:
                number += len(os.listdir(f"/proc/{pid}/task"))
    return number


def outrank_swarms() -> None:
    """Take a real-time priority where that is permitted: no number of processes can starve this one then."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def usage_of(pids: list[int]) -> Usage | None:
    """What these processes' threads used so far; None where the kernel does not count the waiting."""
    ran, longest, is_ready = 0, dict[int, int](), False
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                on_processor, waited, state = _schedule_of(f"/proc/{pid}/task/{thread}")
                ran, is_ready = ran + on_processor, is_ready or state == "R"
                longest[pid] = max(longest.get(pid, 0), waited)
    # Many threads mostly wait for each other, which is their own doing. So the longest wait of one thread counts for
    # its process, and of many processes the two longest: a program and its tests take turns.
    return Usage(ran / 1e9, sum(sorted(longest.values())[-2:]) / 1e9, is_ready) if longest else None


def _schedule_of(thread: str) -> tuple[int, int, str]:
    """Nanoseconds that it ran and waited in line, and its state; OSError where the kernel does not count them."""
    with open(f"{thread}/schedstat", encoding="ascii") as numbers:
        ran, waited, _ = map(int, numbers.read().split())
    with open(f"{thread}/stat", encoding="latin-1") as stat:
        return ran, waited, stat.read().rpartition(")")[2].split()[0]


def num_tasks(pids: list[int]) -> int:
    """Processes and threads in all."""
    number = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            number += len(os.listdir(f"/proc/{pid}/task"))
    return number


def num_bytes_written(pids: list[int]) -> int:
    """Bytes that these processes brought to the disk and did not take back; 0 where the kernel does not tell."""
    number = 0
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/io", encoding="ascii") as lines:
            found = dict(line.split(": ") for line in lines)
            number += max(0, int(found["write_bytes"]) - int(found["cancelled_write_bytes"]))
    return number
