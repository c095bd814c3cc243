"""The tests' side: runs the benchmark's tests in a process of their own, where the program can decide nothing.

Whatever the tests take from the program is a plain value rebuilt here, or a handle on an object over there. The
report carries the nonce only this side knows, and is written after the last test.
"""

import ast
import contextlib
import importlib
import json
from typing import Any, NamedTuple

from cospec.scoring.code.jail.channel import Channel
from cospec.scoring.code.jail.codec import NotPlainError
from cospec.scoring.code.jail.names import (
    defined_at_top,
    is_standard_module,
    leaves_check_uncalled,
    lines_in,
    names_read,
    open_definition,
    tested_names,
)
from cospec.scoring.code.jail.remote import Program, ProgramEndedError, UnfitTestsError

_MAX_REASON = 1000
_TESTS_FILE = "tests"


class Tests(NamedTuple):
    """The tests' source; ``given`` is the benchmark's own code before the program, whose helpers the tests may use."""

    source: str
    given: str
    entry_point: str | None
    nonce: str


def run_tests(tests: Tests, channel: Channel) -> str:
    """Run all tests against the program behind ``channel``; the report (JSON) says "passed", "failed" or "unfit"."""
    program = Program(channel, _TESTS_FILE)
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


def _execute(tests: Tests, program: Program) -> None:
    tree = _parsed(tests.source)
    given = _parsed_prompt(tests.given)
    entry_point = tests.entry_point or open_definition(given)
    if entry_point is None and (clashes := sorted(defined_at_top(given) & names_read(tree))):
        raise UnfitTestsError(
            f"they use {', '.join(clashes)} of the prompt, and without an entry point nothing says whether that is a "
            "helper or what the program shall define"
        )
    names: dict[str, Any] = {"__name__": _TESTS_FILE}
    _add_given_names(names, given, entry_point)
    _add_program_names(names, tests.entry_point, tree, program)
    if "random" in tests.source:
        import random

        random.seed(0)  # tests that draw shall draw the same every time
    exec(compile(tree, _TESTS_FILE, "exec", dont_inherit=True), names)
    if leaves_check_uncalled(tree):
        if tests.entry_point is None:
            raise UnfitTestsError("they define check() but the row names no entry point to check")
        if tests.entry_point not in names:
            raise NameError(f"the program does not define {tests.entry_point}")
        names["check"](names[tests.entry_point])


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source, _TESTS_FILE)
    except (SyntaxError, ValueError) as error:
        raise UnfitTestsError(f"they are no Python: {error}") from error


def _add_given_names(names: dict[str, Any], given: ast.Module, entry_point: str | None) -> None:
    """The helpers of the benchmark's own code, taken from there: the program may have put others in their place."""
    given.body = [node for node in given.body if getattr(node, "name", None) != entry_point]
    exec(compile(given, "given", "exec", dont_inherit=True), names)


def _parsed_prompt(given: str) -> ast.Module:
    """The prompt's code, which mostly breaks off behind a function's head; empty where it is no code."""
    for ending in ("", "\n    pass\n"):
        with contextlib.suppress(SyntaxError, ValueError):
            return ast.parse(given + ending)
    return ast.parse("")


def _add_program_names(names: dict[str, Any], entry_point: str | None, tree: ast.Module, program: Program) -> None:
    for name in tested_names(tree, entry_point):
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
    # Where it arose, for an exception of the program.
    text += "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    if not lines:
        return text
    line = source.split("\n")[lines[-1] - 1].strip()
    return f"{text} at test line {lines[-1]}: {line[:300]}"
