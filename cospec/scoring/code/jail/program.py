"""The program's side: run its source, as a script or as a module whose functions the tests may call."""

import atexit
import builtins
import contextlib
import copy
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

from cospec.scoring.code.jail.channel import Channel, ChannelClosed, receive, send
from cospec.scoring.code.jail.codec import decode, encode
from cospec.scoring.code.jail.libraries import allow
from cospec.scoring.code.jail.replies import RAISED, failure, raised

MODULE_NAME = "solution"
"""Name of the program's module where its functions are tested; `if __name__ == "__main__":` blocks do not run."""


def prepare(libraries: Sequence[tuple[str, str]]) -> None:
    """Give the program a fresh interpreter's look: standard library and ``libraries`` alone, UTF-8 streams."""
    sys.argv = [f"{MODULE_NAME}.py"]
    allow(libraries)
    sys.dont_write_bytecode = True
    for name in [name for name in sys.modules if name.partition(".")[0] == "cospec"]:
        del sys.modules[name]
    # `site` adds these; many programs end with exit().
    vars(builtins).update(exit=sys.exit, quit=sys.exit)
    # Fresh ones: the supervisor's are bound to what it read and wrote.
    for name, descriptor, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = open(descriptor, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        vars(sys).update({name: stream, f"__{name}__": stream})


def run_script(sources: Sequence[str]) -> int:
    """Run the program as `python solution.py` would, to the end of its threads and exit functions; its exit status."""
    status = 0
    try:
        _execute(sources, "__main__")
    except SystemExit as error:
        status = _exit_status(error)
    except RAISED:
        status = 1
        _print_traceback()
    # What the interpreter does at its end; this process ends by os._exit instead.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    # A stream of the program's own needs the program's names to write.
    _flush()
    # Streams that the program opened itself are written out when they go.
    with contextlib.suppress(*RAISED):
        vars(sys.modules["__main__"]).clear()
    _flush()
    return status


def _print_traceback() -> None:
    import traceback  # slow to import

    # The program may have put anything in the stream's place, or closed it.
    with contextlib.suppress(*RAISED):
        traceback.print_exc()


def _exit_status(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
    with contextlib.suppress(*RAISED):
        print(error.code, file=sys.stderr)
    return 1


def _execute(sources: Sequence[str], name: str) -> dict[str, Any]:
    """Run the sources one after another in one module; returns its names."""
    module = types.ModuleType(name)
    # Dataclasses and others look their module up.
    sys.modules[name] = module
    if any("random" in source for source in sources):
        import random

        random.seed(0)  # so that a program that draws gets the same verdict every time
    for source in sources:
        exec(compile(source, sys.argv[0], "exec", dont_inherit=True), module.__dict__)
    return module.__dict__


def serve(sources: Sequence[str], channel: Channel) -> int:
    """Run the program as a module, then answer the tests' requests until they hang up; the exit status."""
    try:
        names = _execute(sources, MODULE_NAME)
    except RAISED as error:
        _print_traceback()
        send(channel.writing, raised(error, sys.argv[0]))
        return _flushed(1)
    requests = _Requests(names, channel)
    try:
        send(channel.writing, ["ok", None])
        while True:
            send(channel.writing, requests.answer(receive(channel.reading)))
    except ChannelClosed:
        return _flushed(0)


def _flushed(status: int) -> int:
    _flush()
    return status


def _flush() -> None:
    """Write out what the streams hold, those that the program replaced included."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        # Broad on purpose: the program may have put anything in the stream's place, or closed it.
        with contextlib.suppress(*RAISED):
            stream.flush()  # type: ignore[union-attr]


class _Requests:
    """Does what the tests ask with the program's objects, which they know by number."""

    def __init__(self, names: dict[str, Any], channel: Channel) -> None:
        self.names, self.channel = names, channel
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.actions: dict[str, Callable[..., Any]] = {
            "name": self.look_up,
            "call": lambda target, arguments, options: target(*arguments, **options),
            "getattr": getattr,
            "setattr": setattr,
            "getitem": lambda target, key: target[key],
            "iter": iter,
            "next": next,
            "len": len,
            "bool": bool,
            "str": str,
            "copy": copy.copy,
            "deepcopy": copy.deepcopy,
        }

    def answer(self, request: Any) -> Any:
        """The reply to one request: a value, or what was raised."""
        action, arguments = request
        try:
            value = self.actions[action](*(decode(argument, self.object_of) for argument in arguments))
            return ["ok", encode(value, self.handle_of)]
        except RAISED as error:
            return raised(error, sys.argv[0])

    def look_up(self, name: str) -> Any:
        if name not in self.names:
            raise NameError(f"the program does not define {name}")
        return self.names[name]

    def object_of(self, name: str, parts: list[Any]) -> Any:
        return _TestsFunction(self, parts[0]) if name == "function" else self.objects[parts[0]]

    def handle_of(self, value: Any) -> Any:
        if isinstance(value, _TestsFunction):
            return ["function", value.number]
        number = self.numbers.setdefault(id(value), len(self.objects))
        if number == len(self.objects):
            self.objects.append(value)
        return ["handle", number, type(value).__name__]

    def call_back(self, number: int, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Have the tests' side call a function that it passed; it may ask for more meanwhile."""
        call = [number, encode(arguments, self.handle_of), encode(options, self.handle_of)]
        send(self.channel.writing, ["callback", *call])
        while (message := receive(self.channel.reading))[0] not in ("ok", "raised"):
            send(self.channel.writing, self.answer(message))
        if found := failure(message):
            raise found.exception() if found.kind else RuntimeError(found.message)
        return decode(message[1], self.object_of)


class _TestsFunction:
    """A function of the tests that the program was given to call."""

    def __init__(self, requests: _Requests, number: int) -> None:
        self.requests, self.number = requests, number

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self.requests.call_back(self.number, arguments, options)
