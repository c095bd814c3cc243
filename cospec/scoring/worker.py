"""The child of a `ScoringProcess`: calls one function for every request, in a bounded process, until its parent ends.

Started as a file, not as a module, so that it can take over its parent's import path before it imports anything but
the standard library. One message is a 4-byte length and that many bytes of JSON.
"""

import importlib
import json
import math
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

_HEADER = struct.Struct("!I")
#: Seconds of CPU time beyond twice the wall limit. Only a job whose parent is gone lasts as long.
_CPU_SLACK_S = 2


def encode(message: Any) -> bytes:
    """One message, ready to be sent; escapes keep lone surrogates, which have no UTF-8 form."""
    body = json.dumps(message).encode("ascii")
    return _HEADER.pack(len(body)) + body


def receive(connection: socket.socket) -> Any:
    """The next message; EOFError when the other side has closed."""
    (length,) = _HEADER.unpack(_receive_exactly(connection, _HEADER.size))
    return json.loads(_receive_exactly(connection, length))


def _receive_exactly(connection: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = connection.recv(min(length, 1 << 20))
        if not part:
            raise EOFError("the other side has closed the connection")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def main() -> None:
    """Serve the parent whose socket is file descriptor 0."""
    connection = socket.socket(fileno=os.dup(0))
    # A function that reads its input must get an end of file, not the next request.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_die_with_the_parent, args=(connection,), daemon=True).start()
    setting = receive(connection)
    sys.path[:] = setting["path"]
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, setting["memory_limit_mb"] << 20)
    try:
        function = _find(setting["function"])
    except (ImportError, SyntaxError, AttributeError, ValueError) as error:
        connection.sendall(encode({"failure": f"{type(error).__name__}: {error}"}))
        return
    connection.sendall(encode({"failure": None}))
    try:
        while True:
            _serve(connection, function, setting["time_limit_s"])
    except (EOFError, ConnectionError):
        return  # The parent is gone, or has closed.


def _die_with_the_parent(connection: socket.socket) -> None:
    # Between jobs the main thread sees the end of the connection itself. During a job this thread does, unless one
    # call of C code keeps the interpreter to itself: then the CPU limit ends the process.
    hangup = select.poll()
    hangup.register(connection, select.POLLRDHUP)
    hangup.poll()
    os.killpg(0, signal.SIGKILL)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _find(name: str) -> Callable[..., object]:
    module, _, attribute = name.partition(":")
    function: Callable[..., object] = getattr(importlib.import_module(module), attribute)
    return function


def _serve(connection: socket.socket, function: Callable[..., object], time_limit_s: float) -> None:
    # Imported here: the parent's import path is set by now.
    from cospec.scoring.custom import safe_score

    arguments = receive(connection)
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + 2 * time_limit_s) + _CPU_SLACK_S)
    out_of_memory = False

    def call(text: str, row: Any) -> object:
        nonlocal out_of_memory
        try:
            return function(*arguments)
        except MemoryError:
            out_of_memory = True
            raise

    verdict = safe_score(call, "", {})
    reason = "the scoring process ran out of memory" if out_of_memory else verdict.reason
    connection.sendall(encode([verdict.kind, verdict.extracted, reason, out_of_memory]))


if __name__ == "__main__":
    main()
