"""The scorer `code`: is the program in a text right? It is run, in the sandbox, against the row's tests."""

import ast
import math
from collections.abc import Collection, Mapping
from typing import Any

from cospec.scoring.code.consent import require_consent
from cospec.scoring.code.extract import Extraction, extract_code
from cospec.scoring.code.isolation import Level, isolation_here
from cospec.scoring.code.jail.names import is_standard_module, tested_names
from cospec.scoring.code.limits import Limits
from cospec.scoring.code.pool import CodeJob, run_job
from cospec.scoring.code.program import FunctionTests, Program, StdinTest
from cospec.scoring.code.run import Run
from cospec.scoring.verdict import Verdict

MINIMUM_ISOLATION: Level = "limits"


class UnfitRowError(ValueError):
    """A row from which no program can be judged: a failure of the data, not of the text."""


def score_code(
    text: str,
    row: Mapping[str, Any],
    *,
    allow_code_execution: bool = False,
    minimum_isolation: Level = MINIMUM_ISOLATION,
    limits: Limits | None = None,
) -> Verdict:
    """Run the program in ``text`` against the tests of ``row``; may be called from several threads.

    The row has ``tests`` (Python that raises unless the program is right; a function `check(candidate)` in it is
    called with ``entry_point``) or ``stdin_tests`` (a list of {"input", "output"} for a program that reads and
    prints), and optionally ``code_prompt`` (the code the text goes on with) and ``timeout_s`` (CPU seconds).

    A program that fails, crashes or uses up its time is "wrong"; "timeout" says that the machine was too busy, twice,
    to give it its time, and "error" that the row or the sandbox failed. ValueError, before anything runs, without
    consent (see `require_consent`) or where this machine's isolation is below ``minimum_isolation``.
    """
    require_consent(allow_code_execution)
    isolation = isolation_here()
    isolation.require(minimum_isolation)
    try:
        job, code = code_job(text, row, limits)
    except UnfitRowError as error:
        return Verdict("error", reason=f"row {row.get('id')!r}: {error}")
    if job is None:
        return Verdict("no_answer", reason="no program found in the text")
    return verdict_of(run_job(job, isolation), code)


def code_job(text: str, row: Mapping[str, Any], limits: Limits | None = None) -> tuple[CodeJob | None, str]:
    """The job that decides about ``text``, and the program found in it; (None, "") without a program.

    For scoring many texts with `run_many`. UnfitRowError where the row has no tests, or fields of another form.
    """
    prompt, entry_point = _text(row, "code_prompt"), _text(row, "entry_point") or None
    tests = _tests(row, prompt, entry_point)
    names = _names(tests) if isinstance(tests, FunctionTests) else ()
    found: Extraction | None = extract_code(text, code_prompt=prompt, names=names)
    if found is None:
        return None, ""
    return CodeJob(Program(found.sources), tests, _limits(row, limits)), found.code


def verdict_of(run: Run, code: str) -> Verdict:
    """What a run says about the program ``code``."""
    if run.outcome == "passed":
        return Verdict("right", extracted=code)
    if run.outcome == "starved":
        return Verdict("timeout", extracted=code, reason=run.reason)
    if run.outcome in ("unfit_tests", "broken"):
        return Verdict("error", extracted=code, reason=run.reason)
    return Verdict("wrong", extracted=code, reason=run.reason)


def _tests(row: Mapping[str, Any], prompt: str, entry_point: str | None) -> FunctionTests | tuple[StdinTest, ...]:
    source, stdin_tests = _text(row, "tests"), row.get("stdin_tests") or ()
    if bool(source.strip()) == bool(stdin_tests):
        raise UnfitRowError("it needs either tests or stdin_tests" + (", not both" if stdin_tests else ""))
    if source.strip():
        return FunctionTests(source.replace("\r\n", "\n"), prompt, entry_point)
    try:
        return tuple(StdinTest(_line_text(test["input"]), _line_text(test["output"])) for test in stdin_tests)
    except (TypeError, KeyError) as error:
        raise UnfitRowError('stdin_tests must be a list of {"input": text, "output": text}') from error


def _line_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a {type(value).__name__}")
    return value.replace("\r\n", "\n")


def _names(tests: FunctionTests) -> Collection[str]:
    """The names to look for in a text: the entry point, or else what the tests use and do not define."""
    try:
        tree = ast.parse(tests.source)
    except (SyntaxError, ValueError) as error:
        raise UnfitRowError(f"its tests are no Python: {error}") from error
    if tests.entry_point:
        return (tests.entry_point,)
    return [name for name in tested_names(tree, None) if not is_standard_module(name, tree)]


def _text(row: Mapping[str, Any], field: str) -> str:
    value = row.get(field)
    if value is not None and not isinstance(value, str):
        raise UnfitRowError(f"{field} is a {type(value).__name__}: it must be text")
    return (value or "").replace("\r\n", "\n")


def _limits(row: Mapping[str, Any], limits: Limits | None) -> Limits:
    given = row.get("timeout_s")
    if given is None:
        return limits or Limits()
    is_number = isinstance(given, int | float) and not isinstance(given, bool)
    if not is_number or not (0 < given < math.inf):
        raise UnfitRowError(f"timeout_s is {given!r}: it must be a positive number of seconds")
    return (limits or Limits()).with_cpu(float(given))
