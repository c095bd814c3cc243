"""The supervisor: starts a program and its tests in cages, watches them from outside, ends and reaps everything.

It speaks with the process that started it over its standard streams: a header (the program and its cage), then one
order after another, each answered with what happened. When that process goes away, so does everything here.
"""

import contextlib
import os
import signal
from typing import Any, NamedTuple

from cospec.scoring.code.jail import kernel
from cospec.scoring.code.jail.cage import Cage, free_user
from cospec.scoring.code.jail.caged import Caged, start_caged
from cospec.scoring.code.jail.channel import Channel, ChannelClosed, channel_pair, receive, send
from cospec.scoring.code.jail.libraries import allow
from cospec.scoring.code.jail.processes import outrank_swarms
from cospec.scoring.code.jail.program import prepare, run_script, serve
from cospec.scoring.code.jail.scratch import remove
from cospec.scoring.code.jail.tester import Tests, run_tests
from cospec.scoring.code.jail.watch import Watch

_ORDERS, _ANSWERS = 0, 1


class Header(NamedTuple):
    """What is run: the program's sources in order, the libraries it may import, its cage, and whether it is tested."""

    sources: tuple[str, ...]
    libraries: tuple[tuple[str, str], ...]
    is_tested: bool
    cage: Cage


def main(scratch: str) -> None:
    """Serve one starter until it closes its end of the orders, or dies; the scratch directory goes with it."""
    # Ignored by the starter, it would be ignored here, and no child could be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if kernel.IS_LINUX:
        kernel.become_subreaper()
        # Stopped by somebody, it would never see that its starter is gone.
        kernel.wake_with_parent()
        # The tests and their nonce pass through here.
        kernel.hide_memory()
    with contextlib.suppress(ChannelClosed):
        header = _header(receive(_ORDERS))
        if header.cage.forks_freely:
            outrank_swarms()
        while True:
            send(_ANSWERS, _run_tested(header) if header.is_tested else _run_script(header))
    remove(scratch)


def _header(value: dict[str, Any]) -> Header:
    libraries = tuple((name, folder) for name, folder in value["libraries"])
    cage = Cage.from_json(value["cage"])
    return Header(tuple(value["sources"]), libraries, value["is_tested"], cage)


def _run_script(header: Header) -> dict[str, Any]:
    """Run the program once, with the next order as its standard input."""
    stdin = _file_holding(receive(_ORDERS)["stdin"])

    def body(status: int) -> int:
        _begin_program(header, status)
        return run_script(header.sources)

    program = _start_program(header, body, stdin=stdin)
    os.close(stdin)
    return Watch(header.cage, program, None, _ORDERS).to_the_end()


def _file_holding(text: str) -> int:
    """An open file without a name, at its beginning."""
    if kernel.IS_LINUX:
        descriptor = os.memfd_create("stdin")
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp()
        os.unlink(path)
    with open(descriptor, "wb", closefd=False) as out:
        out.write(text.encode("utf-8", errors="surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _run_tested(header: Header) -> dict[str, Any]:
    """Run the program as a module, and the tests of the next order against it."""
    near, far = channel_pair()

    def body(status: int) -> int:
        _begin_program(header, status)
        return serve(header.sources, far)

    program = _start_program(header, body, channel=far)
    far.close()
    try:
        # Not before now: the program's process is a copy of this one, and must not hold what is in the order.
        tests = Tests(**receive(_ORDERS))
    except ChannelClosed:
        Watch(header.cage, program, None, _ORDERS).to_the_end()
        raise
    tester = _start_tester(header, tests, near)
    near.close()
    return Watch(header.cage, program, tester, _ORDERS).to_the_end()


def _begin_program(header: Header, status: int) -> None:
    os.close(status)
    if kernel.IS_LINUX:
        # What it wrote to the disk can be read from outside only then; there is no secret in its memory.
        kernel.hide_memory(False)
    prepare(header.libraries)


def _start_program(header: Header, body: Any, *, stdin: int | None = None, channel: Channel | None = None) -> Caged:
    cage = header.cage
    return start_caged(
        cage,
        body,
        writable=cage.scratch,
        user=free_user(0) if "user" in cage.mechanisms else None,
        stdin=stdin,
        channel=channel,
        in_namespaces="namespaces" in cage.mechanisms,
    )


def _start_tester(header: Header, tests: Tests, channel: Channel) -> Caged:
    def body(status: int) -> int:
        # In the cage, since a change of user id would make the memory readable again.
        if kernel.IS_LINUX:
            kernel.hide_memory()
        allow(header.libraries)
        os.write(status, run_tests(tests, channel).encode())
        return 0

    cage = header.cage
    user = free_user(1) if "user" in cage.mechanisms else None
    return start_caged(cage, body, writable=None, user=user, channel=channel)
