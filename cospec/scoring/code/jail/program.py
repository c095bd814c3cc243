"""The program's side: run its source, as a script or as a module whose functions the tests may call."""

import atexit
import builtins
import copy
import importlib.machinery
import importlib.util
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

from cospec.scoring.code.jail.channel import Channel, ChannelClosed, receive, send
from cospec.scoring.code.jail.codec import decode, encode
from cospec.scoring.code.jail.names import lines_in

MODULE_NAME = "solution"
"""Name of the program's module where its functions are tested; `if __name__ == "__main__":` blocks do not run."""

# Everything a program can raise short of a class of its own below BaseException, which ends the process.
_RAISED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)


def prepare(libraries: Sequence[tuple[str, str]], own_path: str) -> None:
    """Give the program a fresh interpreter's look: standard library and named ``libraries`` alone, UTF-8 streams."""
    sys.argv = [f"{MODULE_NAME}.py"]
    sys.path = [path for path in sys.path if path != own_path]
    sys.meta_path.append(_LibraryFinder(dict(libraries)))
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


class _LibraryFinder:
    """Finds the allowed libraries in their own folders; the folder around them stays out of sight."""

    def __init__(self, folders: dict[str, str]) -> None:
        self.folders = folders

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """The module's specification, None for anything but an allowed library."""
        folder = self.folders.get(name)
        if folder is None:
            return None
        return importlib.util.spec_from_file_location(
            name, f"{folder}/__init__.py", submodule_search_locations=[folder]
        )


def run_script(sources: Sequence[str]) -> int:
    """Run the program as `python solution.py` would, to the end of its threads and exit functions; its exit status."""
    status = 0
    try:
        _execute(sources, "__main__")
    except SystemExit as error:
        status = _exit_status(error)
    except _RAISED:
        status = 1
        _print_traceback()
    # What the interpreter does at its end; this process ends by os._exit instead.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _print_traceback() -> None:
    import traceback  # slow to import

    traceback.print_exc()
    sys.stderr.flush()


def _exit_status(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return (error.code or 0) & 0xFF
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
    except _RAISED as error:
        _print_traceback()
        send(channel.writing, _raised(error))
        return 1
    requests = _Requests(names)
    send(channel.writing, ["ok", None])
    while True:
        try:
            request = receive(channel.reading)
        except ChannelClosed:
            return 0
        send(channel.writing, requests.answer(request))


class _Requests:
    """Does what the tests ask with the program's objects, which they know by number."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
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
        except _RAISED as error:
            return _raised(error)

    def look_up(self, name: str) -> Any:
        if name not in self.names:
            raise NameError(f"the program does not define {name}")
        return self.names[name]

    def object_of(self, parts: list[Any]) -> Any:
        return self.objects[parts[0]]

    def handle_of(self, value: Any) -> Any:
        number = self.numbers.setdefault(id(value), len(self.objects))
        if number == len(self.objects):
            self.objects.append(value)
        return ["handle", number, type(value).__name__]


def _raised(error: BaseException) -> list[Any]:
    # The tests know the interpreter's own exceptions alone: the nearest of them comes first.
    names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    try:
        text = str(error)
    # Broad on purpose: an exception class of the program may fail in any way.
    except _RAISED:
        text = "no text"
    own_name = type(error).__name__
    line = _line_of(error)
    return ["raised", names, own_name, text[:1000], line]


def _line_of(error: BaseException) -> int | None:
    """The line of the program where the exception was raised."""
    if isinstance(error, SyntaxError) and error.filename == sys.argv[0]:
        return error.lineno
    lines = lines_in(sys.argv[0], error)
    return lines[-1] if lines else None
