"""LiveCodeBench, code generation, lite (Jain et al. 2024): contest problems with public and hidden test cases.

`livecodebench` is release_v6, all six files (4.5 GB); `livecodebench:release_vN` the first N files, `livecodebench:vN`
the N-th alone. Rows {"question_id", "question_content", "starter_code", "public_test_cases", "private_test_cases",
"metadata", "platform", "difficulty", "contest_date"}. A case is {"input", "output", "testtype"}, of type stdin or
functional; hidden cases are JSON, or JSON that was pickled, compressed by zlib and written in base64.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from typing import Any

from cospec.jsonl import dumps
from cospec.tasks.base import Problem, RawRow, Task, UnusableRow
from cospec.tasks.checks import SAME
from cospec.tasks.registry import choose_variant
from cospec.tasks.source import Part, Published

# LeetCode's judge has these in scope, and its starter code uses them. Builtins come behind math, whose pow takes no
# modulus.
IMPORTS = """import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import *
from builtins import *
from typing import *
"""
_MAX_BYTES = 1 << 30
# What damaged data makes the decoders raise; an unpickler fails in many ways.
_UNPACKING = (
    binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, LookupError, ValueError, TypeError, AttributeError,
    OverflowError, RecursionError, MemoryError, ImportError,
)  # fmt: skip


def read(row: RawRow) -> Problem:
    """`stdin_tests` for programs, `tests` for a method of `Solution`; the public cases come first."""
    cases = [*_cases(row, "public_test_cases"), *_cases(row, "private_test_cases")]
    if not cases:
        raise UnusableRow("no test cases: nothing can be checked")
    kinds = {str(case.get("testtype")) for case in cases}
    if len(kinds) != 1 or not kinds <= {"stdin", "functional"}:
        raise UnusableRow(f"test cases of the kinds {sorted(kinds)}: one kind of stdin, functional is known")
    extra: dict[str, Any] = {"task_id": row.text("question_id"), "starter_code": row.optional_text("starter_code")}
    extra |= {key: str(row.get(key)) for key in ("platform", "difficulty", "contest_date") if row.get(key) is not None}
    if kinds == {"stdin"}:
        stdin_tests = [{"input": case["input"], "output": case["output"]} for case in cases]
        extra |= {"code_prompt": "", "tests": "", "stdin_tests": stdin_tests}
    else:
        name = _metadata(row).get("func_name")
        if not isinstance(name, str) or not name.isidentifier():
            raise UnusableRow("functional cases without a func_name in the metadata")
        extra |= {"code_prompt": IMPORTS, "tests": _functional_tests(name, cases)}
    return Problem(f"livecodebench/{extra['task_id']}", row.text("question_content").strip(), None, extra=extra)


def _cases(row: RawRow, name: str) -> list[dict[str, Any]]:
    value = row.get(name)
    if value is None or value == "":
        return []
    cases = _decoded(row, name, value) if isinstance(value, str) else value
    if not isinstance(cases, list) or not all(
        isinstance(case, dict) and all(isinstance(case.get(key), str) for key in ("input", "output")) for case in cases
    ):
        raise row.misfit(name, "holds no list of {'input', 'output', 'testtype'} objects with texts")
    return cases


def _decoded(row: RawRow, name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        packed = base64.b64decode(text, validate=True)
        inflate = zlib.decompressobj()
        plain = inflate.decompress(packed, _MAX_BYTES)
        if not inflate.eof:
            raise ValueError("cut off, or more than 1 GiB when unpacked")
        content = PlainUnpickler(io.BytesIO(plain)).load()
        return json.loads(content) if isinstance(content, str | bytes) else content
    except _UNPACKING as error:
        raise row.misfit(
            name, f"is neither JSON nor base64 of packed JSON ({type(error).__name__}: {error})"
        ) from error


class PlainUnpickler(pickle.Unpickler):
    """Loads strings, bytes, numbers, lists and dicts alone: a pickle that names any class or function is refused.

    What unpickling may do else is run code of whoever wrote the file.
    """

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every global."""
        raise pickle.UnpicklingError(f"the pickle wants {module}.{name}, and plain data needs nothing of the kind")

    def persistent_load(self, pid: Any) -> Any:
        """Refuse every reference outside the pickle."""
        raise pickle.UnpicklingError("the pickle refers to something outside it")


def _metadata(row: RawRow) -> dict[str, Any]:
    value = row.get("metadata")
    try:
        found = json.loads(value) if isinstance(value, str) and value.strip() else value
    except (ValueError, RecursionError) as error:
        raise row.misfit("metadata", f"is not JSON ({error})") from error
    return found if isinstance(found, dict) else {}


def _functional_tests(name: str, cases: list[dict[str, Any]]) -> str:
    """A program that calls the method; an input is one JSON value a line, a tuple counts as the list it stands for."""
    pairs = [[case["input"], case["output"]] for case in cases]
    return f"""{SAME}

def check(candidate):
    import json

    def listed(value):
        return [listed(item) for item in value] if type(value) in (list, tuple) else value

    for arguments, expected in json.loads({dumps(pairs)!r}):
        found = candidate(*(json.loads(line) for line in arguments.split("\\n") if line.strip()))
        assert _same(listed(found), json.loads(expected))


check(Solution().{name})
"""


def ask(problem: Problem) -> str:
    """The problem, the starter code if there is any, and the form of the reply."""
    starter = problem.extra["starter_code"].strip("\n")
    if starter:
        task = f"Complete this code, and keep its names:\n\n```python\n{starter}\n```"
    else:
        task = "Write a Python program that reads from standard input and writes to standard output."
    return f"{problem.question}\n\n{task}\n\nReply with the whole program in one code block that begins with ```python."


_FILES = ("test", *(f"test{number}" for number in range(2, 7)))


def _task(name: str, numbers: range) -> Task:
    files = [_FILES[number - 1] for number in numbers]
    return Task(
        name=name,
        licence="CC (the version is not stated); the problems are their contest platforms'",
        source=Published(
            repo="livecodebench/code_generation_lite",
            revision="0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
            plain_files=True,
            variants=_FILES,
            parts={"test": tuple(Part((file,), f"{file}.jsonl") for file in files)},
        ),
        scorer="code",
        instruction=ask,
        plain=ask,
        read=read,
    )


TASK = _task("livecodebench", range(1, 7))
_VARIANTS = {
    **{f"release_v{last}": _task(f"livecodebench:release_v{last}", range(1, last + 1)) for last in range(1, 7)},
    **{f"v{number}": _task(f"livecodebench:v{number}", range(number, number + 1)) for number in range(1, 7)},
}


def variant(name: str) -> Task:
    """A release, or the problems new in one."""
    return choose_variant("livecodebench", name, _VARIANTS)
