"""The tests' side: runs the benchmark's tests in a process of their own, where the program can decide nothing.

Whatever the tests take from the program is a plain value rebuilt here, or a handle on an object over there. The
report carries the nonce only this side knows, and is written after the last test.
"""

import ast
import builtins
import contextlib
import importlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

from cospec.scoring.code.jail.channel import Channel, ChannelClosed, receive, send
from cospec.scoring.code.jail.codec import NotPlainError, decode, encode
from cospec.scoring.code.jail.names import is_standard_module, leaves_check_uncalled, lines_in, tested_names

_MAX_REPLY_BYTES = 32 << 20
_MAX_REASON = 1000
_TESTS_FILE = "tests"


class Tests(NamedTuple):
    """The tests' source; ``given`` is the benchmark's own code before the program, whose helpers the tests may use."""

    source: str
    given: str
    entry_point: str | None
    nonce: str


class ProgramEndedError(BaseException):
    """The program is gone; no `except Exception` of a test shall pass over it."""


class UnfitTestsError(Exception):
    """The tests themselves cannot be run here: a failure of the benchmark, not of the program."""


def run_tests(tests: Tests, channel: Channel) -> str:
    """Run all tests against the program behind ``channel``; the report (JSON) says "passed", "failed" or "unfit"."""
    program = Program(channel)
    try:
        program.await_start()
        _execute(tests, program)
        if program.ended:
            raise ProgramEndedError(program.ended)
        if program.num_requests == 0:
            raise UnfitTestsError("they never use the program")
    except UnfitTestsError as error:
        return _report(tests, "unfit", str(error))
    # Broad on purpose: a test fails by raising, whatever it raises.
    except (Exception, SystemExit, KeyboardInterrupt, ProgramEndedError) as error:
        return _report(tests, "failed", _describe(error, tests.source))
    return _report(tests, "passed", "")


def _report(tests: Tests, result: str, reason: str) -> str:
    return json.dumps({"nonce": tests.nonce, "result": result, "reason": reason[:_MAX_REASON]})


class Program:
    """The program as the tests see it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.handles: dict[int, RemoteObject] = {}
        self.num_requests = 0
        self.ended = ""

    def await_start(self) -> None:
        """Wait until the program's own code has run through."""
        self._value_of(self._next_reply())

    def ask(self, action: str, *arguments: Any) -> Any:
        """Have the program's side do one thing; its value, or the exception it met."""
        self.num_requests += 1
        if self.ended:
            raise ProgramEndedError(self.ended)
        request = [action, [encode(argument, _handle_of) for argument in arguments]]
        try:
            send(self.channel.writing, request)
        except ChannelClosed:
            self._end("ended before the last test")
        return self._value_of(self._next_reply())

    def _next_reply(self) -> list[Any]:
        try:
            reply = receive(self.channel.reading, _MAX_REPLY_BYTES)
        except ChannelClosed as error:
            self._end(f"ended before the last test ({error})")
        if not isinstance(reply, list) or not reply:
            self._end("sent something that is no reply")
        return reply

    def _end(self, why: str) -> NoReturn:
        self.ended = f"the program {why}"
        raise ProgramEndedError(self.ended)

    def _value_of(self, reply: list[Any]) -> Any:
        if reply[0] == "ok" and len(reply) == 2:
            return decode(reply[1], self._handle)
        try:
            _, names, own_name, text, line = reply
            place = "" if line is None else f" (line {int(line)} of the program)"
            message = f"{own_name}: {text}{place}"
            kind = next((str(name) for name in names if _is_exception(name)), None)
        except (TypeError, ValueError):
            self._end("sent something that is no reply")
        if kind is None:
            self._end(f"ended itself: {message}")
        raise _exception(kind, message)

    def _handle(self, parts: list[Any]) -> "RemoteObject":
        number, type_name = int(parts[0]), str(parts[1])
        if number not in self.handles:
            self.handles[number] = RemoteObject(self, number, type_name)
        return self.handles[number]


def _is_exception(name: Any) -> bool:
    found = vars(builtins).get(name)
    return isinstance(found, type) and issubclass(found, Exception)


def _exception(name: str, message: str) -> Exception:
    error = vars(builtins)[name]
    try:
        return error(message)
    # UnicodeDecodeError and its like want more than a text.
    except TypeError:
        return ValueError(message)


class RemoteObject:
    """An object of the program. It equals only itself and is in no order: its class has no say in a test."""

    __slots__ = ("_number", "_program", "_type_name")

    def __init__(self, program: Program, number: int, type_name: str) -> None:
        for name, value in (("_program", program), ("_number", number), ("_type_name", type_name)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # `copy`, `pickle` and others look for these; they concern this object, not the one over there.
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._program.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._program.ask("setattr", self, name, value)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._program.ask("call", self, arguments, options)

    def __getitem__(self, key: Any) -> Any:
        return self._program.ask("getitem", self, key)

    def __iter__(self) -> Iterator[Any]:
        return self._program.ask("iter", self)

    def __next__(self) -> Any:
        return self._program.ask("next", self)

    def __len__(self) -> int:
        return self._program.ask("len", self)

    def __copy__(self) -> Any:
        return self._program.ask("copy", self)

    def __deepcopy__(self, seen: Any) -> Any:
        return self._program.ask("deepcopy", self)

    def __bool__(self) -> bool:
        return self._program.ask("bool", self)

    def __str__(self) -> str:
        return self._program.ask("str", self)

    def __repr__(self) -> str:
        return f"<{self._type_name} of the program>"


def _handle_of(value: Any) -> Any:
    if isinstance(value, RemoteObject):
        return ["handle", value._number]
    raise UnfitTestsError(f"they pass the program a {type(value).__name__}, which cannot travel")


def _execute(tests: Tests, program: Program) -> None:
    tree = _parsed(tests.source)
    names: dict[str, Any] = {"__name__": _TESTS_FILE}
    _add_given_names(names, tests)
    _add_program_names(names, tests, tree, program)
    if "random" in tests.source:
        import random

        random.seed(0)  # tests that draw shall draw the same every time
    exec(compile(tree, _TESTS_FILE, "exec", dont_inherit=True), names)
    if leaves_check_uncalled(tree):
        if tests.entry_point not in names:
            raise UnfitTestsError("they define check() but the row names no entry point to check")
        names["check"](names[tests.entry_point])


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source, _TESTS_FILE)
    except (SyntaxError, ValueError) as error:
        raise UnfitTestsError(f"they are no Python: {error}") from error


def _add_given_names(names: dict[str, Any], tests: Tests) -> None:
    """The helpers of the benchmark's own code, taken from there: the program may have put others in their place."""
    tree = _parsed_prompt(tests.given)
    tree.body = [node for node in tree.body if getattr(node, "name", None) != tests.entry_point]
    exec(compile(tree, "given", "exec", dont_inherit=True), names)


def _parsed_prompt(given: str) -> ast.Module:
    """The prompt's code, which mostly breaks off behind a function's head; empty where it is no code."""
    for ending in ("", "\n    pass\n"):
        with contextlib.suppress(SyntaxError, ValueError):
            return ast.parse(given + ending)
    return ast.parse("")


def _add_program_names(names: dict[str, Any], tests: Tests, tree: ast.Module, program: Program) -> None:
    for name in tested_names(tree, tests.entry_point):
        if name in names:
            continue
        if is_standard_module(name, tree):
            names[name] = importlib.import_module(name)
            continue
        try:
            names[name] = program.ask("name", name)
        # The test that needs it says so; a name of the tests' own need not be in the program.
        except NameError:
            program.num_requests -= 1


def _describe(error: BaseException, source: str) -> str:
    if isinstance(error, ProgramEndedError | NotPlainError):
        return str(error)
    lines = lines_in(_TESTS_FILE, error)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if not lines:
        return text
    return f"{text} at test line {lines[-1]}: {source.splitlines()[lines[-1] - 1].strip()[:300]}"
