"""A process in a cage, and the ends of its pipes that stay outside."""

import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from cospec.scoring.code.jail import kernel
from cospec.scoring.code.jail.cage import Cage, enter_namespaces, lock_in
from cospec.scoring.code.jail.channel import Channel
from cospec.scoring.code.jail.processes import end_as, start

LOCKED = b"L"
"""First byte on the status pipe: the cage is closed. Before it, whatever failed was not the program."""

# The supervisor has some twenty open.
_HIGHEST_DESCRIPTOR = 256


class Caged(NamedTuple):
    """A running process: its id, which is its group's too, and what it writes."""

    pid: int
    stdout: int
    stderr: int
    status: int


class _Pipe(NamedTuple):
    reading: int
    writing: int


def start_caged(
    cage: Cage,
    body: Callable[[int], int],
    *,
    writable: str | None,
    user: int | None,
    stdin: int | None = None,
    channel: Channel | None = None,
    in_namespaces: bool = False,
) -> Caged:
    """Start ``body`` in a session and cage of its own, with ``stdin`` (else an empty one) and ``channel`` alone open.

    ``body`` is given the status pipe and has to close it before it runs foreign code.
    """
    stdout, stderr, status = (_Pipe(*os.pipe()) for _ in range(3))

    def inside() -> int:
        lock_in(cage, writable=writable, user=user)
        os.write(status.writing, LOCKED)
        return body(status.writing)

    def outside() -> int:
        os.setsid()
        if kernel.IS_LINUX:
            kernel.die_with_parent()
        _keep_only(stdin, stdout.writing, stderr.writing, {status.writing, *(channel or ())})
        os.chdir(writable or "/")
        return _first_of_namespace(inside) if in_namespaces else inside()

    if user is not None and writable is not None:
        os.chown(writable, user, user)
    pid = start(outside)
    for pipe in (stdout, stderr, status):
        os.close(pipe.writing)
        os.set_blocking(pipe.reading, False)
    return Caged(pid, stdout.reading, stderr.reading, status.reading)


def _first_of_namespace(inside: Callable[[], int]) -> NoReturn:
    """Run ``inside`` as the first process of a PID namespace: what it leaves there, the kernel ends with it."""
    # A process whose memory is hidden may not write its own user map.
    kernel.hide_memory(False)
    enter_namespaces()
    first = start(inside)
    os.closerange(0, _HIGHEST_DESCRIPTOR)
    end_as(os.waitpid(first, 0)[1])


def _keep_only(stdin: int | None, stdout: int, stderr: int, others: set[int]) -> None:
    empty = os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty if stdin is None else stdin, 0)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    kept = {0, 1, 2, *others}
    for descriptor in range(_HIGHEST_DESCRIPTOR):
        if descriptor not in kept:
            # Most numbers are not in use.
            with contextlib.suppress(OSError):
                os.close(descriptor)


def close(caged: Caged) -> None:
    """Close the outer ends of the pipes."""
    for descriptor in (caged.stdout, caged.stderr, caged.status):
        os.close(descriptor)
