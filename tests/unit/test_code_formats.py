"""The benchmarks' own solutions are found whole in every form in which models write them down."""

import ast
import gzip
import json
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from benchmark_data import benchmark

from cospec.scoring.code import code_job, extract_code, run_many
from cospec.tasks.mbpp import entry_point

NUM_SAMPLED = 20


@dataclass(frozen=True, slots=True)
class Solution:
    """A function: the code that the prompt gives (nothing for MBPP), and the rest of it."""

    id: str
    name: str
    prompt: str
    rest: str
    tests: str

    @property
    def whole(self) -> str:
        return (self.prompt + self.rest).rstrip("\n") + "\n"

    @property
    def body(self) -> str:
        return self.rest.lstrip("\n").rstrip() + "\n"


def humaneval() -> list[Solution]:
    with gzip.open(benchmark("humaneval") / "HumanEval.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    assert len(rows) == 164
    return [
        Solution(row["task_id"], row["entry_point"], row["prompt"], row["canonical_solution"], row["test"])
        for row in rows
    ]


def mbpp() -> list[Solution]:
    with gzip.open(benchmark("mbpp") / "mbpp.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line.replace("\\r\\n", "\\n")) for line in lines]
    assert len(rows) == 974
    solutions = []
    for row in rows:
        name = entry_point(row["code"], row["test_list"])
        assert name, row["task_id"]
        tests = "\n".join([row["test_setup_code"], *row["test_list"]])
        solutions.append(Solution(f"mbpp/{row['task_id']}", name, "", row["code"].strip("\n"), tests))
    return solutions


def fenced(code: str, tag: str = "python") -> str:
    return f"```{tag}\n{code}```\n"


WHOLE: dict[str, Callable[[Solution], str]] = {
    "bare": lambda one: one.whole,
    "a blank before it": lambda one: f" {one.whole.lstrip()}",
    "prose before it": lambda one: f"Here is the solution:\n\n{one.whole}",
    "a blank and prose before it": lambda one: f" Here is the solution:\n\n{one.whole}",
    "a call in the prose before it": lambda one: f"{one.name}(x) does it:\n\n{one.whole}",
    "prose behind it": lambda one: f"{one.whole}\nThis function works: it loops.\n",
    "O(n) behind it": lambda one: f"{one.whole}\nO(n) time and O(1) space.\n",
    "a call in the prose behind it": lambda one: f"{one.whole}\n{one.name}(3) returns 4.\n",
    "an example behind it": lambda one: f"{one.whole}\nExample: {one.name}(3) = 4\n",
    "a fenced example behind it": lambda one: f"{one.whole}\nUsage:\n{fenced(f'print({one.name}(3))')}",
    "fenced": lambda one: fenced(one.whole),
    "fenced in a chat": lambda one: f"Sure! Here:\n\n{fenced(one.whole)}\nIt works as follows: x = 1.",
    "fenced without an end": lambda one: f"```python\n{one.whole}",
    "fenced, CRLF": lambda one: fenced(one.whole).replace("\n", "\r\n"),
    "fenced with a file name": lambda one: fenced(one.whole, "python title='solution.py'"),
    "fenced, then end of text": lambda one: fenced(one.whole).rstrip() + "<|endoftext|>",
    "fenced in a list": lambda one: f"1. Do:\n{textwrap.indent(fenced(one.whole), '   ', lambda line: True)}",
    "fenced behind reasoning": lambda one: f"<think>hm ```python\nx```</think>\n{fenced(one.whole)}",
    "fenced, then its import": lambda one: (
        fenced(one.whole) + fenced(f"from your_module import {one.name}\nprint({one.name}(3))\n")
    ),
    "fenced, then assertions": lambda one: fenced(one.whole) + fenced(f"assert {one.name}(3)\n"),
    "fenced, then wrapped": lambda one: (
        fenced(one.whole) + fenced(f"from functools import lru_cache\n{one.name} = lru_cache({one.name})\n")
    ),
    "fenced, then output": lambda one: fenced(one.whole) + fenced("3\n", ""),
    "fenced, then a method": lambda one: (
        fenced(one.whole) + fenced(f"class C:\n    def {one.name}(self):\n        pass\n")
    ),
    "[BEGIN]": lambda one: f"[BEGIN]\n{one.whole}[DONE]\n\nYou are an expert Python programmer",
    "[PYTHON]": lambda one: f"[PYTHON]\n{one.whole}[/PYTHON]\n[TESTS]\nassert 1\n[/TESTS]",
}
BODIES: dict[str, Callable[[Solution], str]] = {
    "body": lambda one: one.rest,
    "body, then prose": lambda one: f"{one.body}\n\nThis function does it.\n",
    "body, then a question": lambda one: f"{one.body}\n\nQuestion: next (x = 3)\n",
    "body, then a function": lambda one: f"{one.body}\n\ndef other():\n    pass\n",
    "body, then main": lambda one: (
        f"{one.body}\nif __name__ == '__main__':\n    import doctest\n    doctest.testmod()\n"
    ),
    "body, then a fence": lambda one: f"{one.body}```\nText",
    "body, then a fenced example": lambda one: f"{one.body}\nUsage:\n{fenced(f'print({one.name}(3))')}",
    "body, CRLF": lambda one: one.body.replace("\n", "\r\n"),
    "body, stripped": lambda one: one.body.strip(),
    "body without indentation": lambda one: textwrap.dedent(one.body),
    "body, fenced": lambda one: fenced(one.body),
    "body, fenced and stripped": lambda one: fenced(one.body.lstrip()),
    "body, fenced without indentation": lambda one: fenced(textwrap.dedent(one.body)),
}


def function(sources: tuple[str, ...], name: str) -> str:
    """The last definition of the name, as a syntax tree; with all sources, since each of them has to compile."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nodes = [node for source in sources for node in ast.parse(source).body]
    return [ast.dump(node) for node in nodes if getattr(node, "name", None) == name][-1]


def check_that_it_is_found(solutions: list[Solution], form: Callable[[Solution], str]) -> None:
    for one in solutions:
        found = extract_code(form(one), code_prompt=one.prompt, names=(one.name,))
        assert found, one.id
        assert function(found.sources, one.name) == function((one.whole,), one.name), one.id


@pytest.mark.parametrize("form", [*WHOLE, *BODIES])
def test_a_sample_of_humaneval_is_found_in_every_form(form: str) -> None:
    check_that_it_is_found(humaneval()[::NUM_SAMPLED], (WHOLE | BODIES)[form])


@pytest.mark.parametrize("form", WHOLE)
def test_a_sample_of_mbpp_is_found_in_every_form(form: str) -> None:
    check_that_it_is_found(mbpp()[:: 2 * NUM_SAMPLED], WHOLE[form])


@pytest.mark.slow
@pytest.mark.parametrize("form", [*WHOLE, *BODIES])
def test_all_of_humaneval_is_found_in_every_form(form: str) -> None:
    check_that_it_is_found(humaneval(), (WHOLE | BODIES)[form])


@pytest.mark.slow
@pytest.mark.parametrize("form", WHOLE)
def test_all_of_mbpp_is_found_in_every_form(form: str) -> None:
    check_that_it_is_found(mbpp(), WHOLE[form])


@pytest.mark.slow
@pytest.mark.parametrize("read", [humaneval, mbpp])
def test_every_solution_passes_with_a_block_behind_it_that_imports_it(read: Callable[[], list[Solution]]) -> None:
    jobs = []
    for one in read():
        row = {"id": one.id, "code_prompt": one.prompt, "entry_point": one.name, "tests": one.tests}
        job, _ = code_job(WHOLE["fenced, then its import"](one), row)
        assert job, one.id
        jobs.append(job)
    assert {run.outcome for run in run_many(jobs, 2, allow_code_execution=True)} == {"passed"}
