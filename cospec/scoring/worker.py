"""The child of a `ScoringProcess`: calls one function for every request, in a bounded process, until its parent ends.

Its standard input is a pipe through which nothing comes: the parent alone holds the other end, as long as it lives.
Started as a file, not as a module, so that it can take over its parent's import path before it imports anything but
the standard library. One message is a 4-byte length and that many bytes of JSON.
"""

import fcntl
import importlib
import json
import os
import resource
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

_HEADER = struct.Struct("!I")


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
    """Serve the parent whose socket's file descriptor is the argument."""
    connection = socket.socket(fileno=int(sys.argv[1]))
    connection.set_inheritable(False)
    _die_with_the_parent()
    setting = receive(connection)
    sys.path[:] = setting["path"]
    _limit(resource.RLIMIT_CORE, 0)
    if setting["memory_limit_mb"] is not None:
        _limit(resource.RLIMIT_AS, setting["memory_limit_mb"] << 20)
    try:
        function = _find(setting["function"])
    except (ImportError, SyntaxError, AttributeError, ValueError) as error:
        connection.sendall(encode({"failure": f"{type(error).__name__}: {error}"}))
        return
    connection.sendall(encode({"failure": None}))
    try:
        while True:
            _serve(connection, function)
    except (EOFError, ConnectionError):
        return  # The parent is gone, or has closed.


def _die_with_the_parent() -> None:
    # The kernel does it: C code may keep the interpreter, and so any thread that watched, from running for hours.
    lifeline = os.dup(0)
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    # A function that reads its input must get an end of file.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _find(name: str) -> Callable[..., object]:
    module, _, attribute = name.partition(":")
    function: Callable[..., object] = getattr(importlib.import_module(module), attribute)
    return function


def _serve(connection: socket.socket, function: Callable[..., object]) -> None:
    # Imported here: the parent's import path is set by now.
    from cospec.scoring.custom import safe_score

    arguments = receive(connection)
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
