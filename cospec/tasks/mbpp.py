"""MBPP (Austin et al. 2021): short Python tasks. `mbpp` is the sanitized set, `mbpp:full` all 974.

Rows {"task_id", "prompt" | "text", "code", "test_list", "test_imports" | "test_setup_code"}. Local files hold all
splits, told apart by task id: prompt 1-10, test 11-510, validation 511-600, train 601-974. Many rows of the full set
have CRLF line ends, which are read as line ends. `challenge_test_list` is not used, as in the paper.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable

from cospec.tasks.base import Problem, RawRow, SplitShots, Task, UnusableRow
from cospec.tasks.registry import choose_variant
from cospec.tasks.source import Part, Published

SPLITS = {"test": range(11, 511), "validation": range(511, 601), "train": range(601, 975), "prompt": range(1, 11)}


def read(row: RawRow) -> Problem:
    """`tests` is set-up and assertions as one program; `test_list` the assertions, which the prompt shows."""
    task_id = _task_id(row)
    asserts = [_unix(line).strip() for line in row.optional_list("test_list", str)]
    if not any(asserts):
        raise UnusableRow("no tests: nothing can be checked")
    code = _unix(row.text("code")).strip("\n") + "\n"
    set_up = [_unix(line) for line in (row.optional_text("test_setup_code"), *row.optional_list("test_imports", str))]
    extra = {
        "task_id": task_id,
        "code_prompt": "",
        "tests": "\n".join([*(line for line in set_up if line.strip()), *asserts]) + "\n",
        "test_list": asserts,
    }
    try:
        name = entry_point(code, asserts)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnusableRow(f"the reference or its tests are no Python of today: {error}") from error
    if name is not None:
        extra["entry_point"] = name
    question = _unix(row.text("prompt", "text")).strip()
    return Problem(f"mbpp/{task_id}", question, code, f"```python\n{code}```", extra)


def entry_point(code: str, asserts: list[str]) -> str | None:
    """The function or class of the reference that the assertions call first, None if they call none."""
    defined = {node.name for node in _parsed(code).body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for line in asserts:
        calls = (node.func for node in ast.walk(_parsed(line)) if isinstance(node, ast.Call))
        names = [call.id for call in calls if isinstance(call, ast.Name) and call.id in defined]
        if names:
            return names[-1]
    return None


def _parsed(code: str) -> ast.Module:
    with warnings.catch_warnings():
        # Some references write regular expressions without the r.
        warnings.simplefilter("ignore")
        return ast.parse(code)


def ask(problem: Problem) -> str:
    """The task, the assertions to pass and the form of the reply."""
    reply = "Reply with the whole code, its imports included, in one code block that begins with ```python."
    return f"{ask_plain(problem)}\n{reply}"


def ask_plain(problem: Problem) -> str:
    """The task and the assertions."""
    asserts = "\n".join(problem.extra["test_list"])
    return f"{problem.question}\nThe code must pass these tests:\n{asserts}\n"


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _task_id(row: RawRow) -> int:
    value = row.value("task_id")
    if isinstance(value, bool) or not isinstance(value, int) or not any(value in ids for ids in SPLITS.values()):
        raise row.misfit("task_id", f"is {str(value)[:40]!r}: it must be a number of 1 to 974, not this task's format")
    return value


def _belongs(ids: range) -> Callable[[RawRow], bool]:
    return lambda row: _task_id(row) in ids


def _task(name: str, config: str, file: str) -> Task:
    return Task(
        name=name,
        licence="CC-BY-4.0",
        source=Published(
            repo="google-research-datasets/mbpp",
            revision="4bb6404fdc6cacfda99d4ac4205087b89d32030c",
            config=config,
            variants=("sanitized-mbpp", "mbpp"),
            parts={split: (Part((file,), split, keep=_belongs(ids)),) for split, ids in SPLITS.items()},
        ),
        scorer="code",
        instruction=ask,
        plain=ask_plain,
        read=read,
        shots=SplitShots("prompt"),
    )


TASK = _task("mbpp", "sanitized", "sanitized-mbpp")
_VARIANTS = {
    "sanitized": _task("mbpp:sanitized", "sanitized", "sanitized-mbpp"),
    "full": _task("mbpp:full", "full", "mbpp"),
}


def variant(name: str) -> Task:
    """The sanitized or the full set."""
    return choose_variant("mbpp", name, _VARIANTS)
