"""HumanEval (Chen et al. 2021): functions to complete, and HumanEval+ (Liu et al. 2023) as `humaneval:plus`.

Rows {"task_id", "prompt", "entry_point", "canonical_solution", "test"}; `test` defines `check(candidate)`. EvalPlus
publishes its rows in two forms: with such a `test` (on the Hub), or with `base_input`, `plus_input` and `atol`, whose
expected results are those of the canonical solution.
"""

from __future__ import annotations

import json
import math
from typing import Any

from cospec.tasks.base import Problem, RawRow, Task, UnusableRow
from cospec.tasks.checks import SAME
from cospec.tasks.registry import choose_variant
from cospec.tasks.source import Part, Published

ASK = (
    "Complete the following Python function. Reply with the whole function, its imports included, in one code block "
    "that begins with ```python.\n\n```python\n{question}\n```"
)


def read(row: RawRow) -> Problem:
    """`code_prompt` is the head of the function, `tests` the test program, `gold` the canonical body."""
    head, entry_point = _unix(row.text("prompt")), row.text("entry_point")
    if not entry_point.isidentifier():
        raise row.misfit("entry_point", f"is {entry_point[:40]!r}: it must be the name of a function")
    solution = _unix(row.text("canonical_solution"))
    extra = {
        "task_id": row.text("task_id"),
        "code_prompt": head,
        "entry_point": entry_point,
        "tests": _tests(row, head + solution, entry_point),
    }
    return Problem(row.text("task_id"), head.rstrip("\n"), solution, extra=extra)


def ask_plain(problem: Problem) -> str:
    """The head itself, to be completed."""
    return str(problem.extra["code_prompt"])


def _tests(row: RawRow, reference: str, entry_point: str) -> str:
    test = row.optional_text("test")
    if test.strip():
        return f"{_unix(test)}\n\ncheck({entry_point})\n"
    inputs = [*row.optional_list("base_input", list), *row.optional_list("plus_input", list)]
    if not inputs:
        raise UnusableRow("neither a test nor inputs: nothing can be checked")
    atol = row.get("atol") or 0
    if not isinstance(atol, int | float) or not 0 <= atol < math.inf:
        raise row.misfit("atol", f"is {str(atol)[:40]!r}: it must be a number of 0 or more")
    return against_reference(reference, entry_point, inputs, atol)


def against_reference(reference: str, entry_point: str, inputs: list[Any], atol: float) -> str:
    """A test program that compares the candidate with a reference solution on inputs (lists of arguments).

    Numbers are compared by value, all else by type, too; floats may differ by ``atol`` (1e-6 where it is 0). A root
    that `find_zero` returns is put into its polynomial instead, since a polynomial can have several.
    """
    compare = f"assert _same(found, expected, {atol!r})"
    if entry_point == "find_zero":
        compare = f"assert type(found) in (int, float) and abs(names['poly'](arguments[0], found)) <= {atol or 1e-4!r}"
    return f"""{SAME}

def check(candidate):
    import copy, json
    names = {{}}
    exec({reference!r}, names)
    for arguments in json.loads({json.dumps(inputs)!r}):
        expected = names[{entry_point!r}](*copy.deepcopy(arguments))
        found = candidate(*copy.deepcopy(arguments))
        {compare}


check({entry_point})
"""


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


_FILES = ("HumanEval", "HumanEvalPlus")


def _task(name: str, licence: str, source: Published) -> Task:
    return Task(name, licence, source, "code", ASK, read, plain=ask_plain)


TASK = _task(
    "humaneval",
    "MIT",
    Published(
        repo="openai/openai_humaneval",
        revision="7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544",
        parts={"test": (Part((_FILES[0], "test"), "test"),)},
        variants=_FILES,
    ),
)
_PLUS = _task(
    "humaneval:plus",
    "Apache-2.0",
    Published(
        repo="evalplus/humanevalplus",
        revision="d32357cf319e50e9c8d8dab5ea876c72b0fd321b",
        parts={"test": (Part((_FILES[1], "test"), "test"),)},
        variants=_FILES,
    ),
)


def variant(name: str) -> Task:
    """HumanEval+."""
    return choose_variant("humaneval", name, {"plus": _PLUS})
