"""The benchmarks' own solutions pass in the sandbox, and fail the tests of the next row, under any name."""

import ast
import gzip
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cospec.jsonl import read_jsonl
from cospec.scoring.code import Run, code_job, run_many, verdict_of

# Rows of the same task: (program, tests).
SAME_TASK = {
    (row["program"], row["tests"])
    for row in read_jsonl(Path(__file__).parent.parent / "data" / "scoring" / "code_same_task.jsonl")
}
BENCHMARKS = {"humaneval": 164, "mbpp": 974, "sanitized-mbpp": 427}
NUM_SAMPLED = 40


@dataclass(frozen=True, slots=True)
class Reference:
    """A benchmark's row as the scorer gets it, its solution as a model would write it, and its function's name."""

    row: dict[str, Any]
    text: str
    module: str
    name: str

    @property
    def id(self) -> str:
        return str(self.row["id"])


def rows(path: str) -> Iterator[dict[str, Any]]:
    folder = os.environ.get("COSPEC_DATA")
    if not folder:
        pytest.skip("COSPEC_DATA does not name the folder of the benchmark data")
    with gzip.open(Path(folder) / path, "rt", encoding="utf-8", newline="\n") as lines:
        yield from map(json.loads, lines)


def humaneval(row: dict[str, Any]) -> Reference:
    unified = {
        "id": row["task_id"],
        "code_prompt": row["prompt"],
        "entry_point": row["entry_point"],
        "tests": row["test"],
    }
    solution = row["canonical_solution"]
    return Reference(unified, solution, row["prompt"] + solution, row["entry_point"])


def mbpp(row: dict[str, Any], benchmark: str) -> Reference:
    lines = [*row.get("test_imports", ()), row.get("test_setup_code", ""), *row["test_list"]]
    tests = "\n".join([*lines, *row.get("challenge_test_list", ())])
    text = f"Here is the function:\r\n```python\r\n{row['code']}\r\n```\r\n"
    unified = {"id": f"{benchmark}/{row['task_id']}", "code_prompt": "", "tests": tests}
    return Reference(
        unified, text, row["code"].replace("\r\n", "\n"), called_name(tests.replace("\r\n", "\n"), row["code"])
    )


def called_name(tests: str, code: str) -> str:
    """The function of the program that the tests call, the last one defined where they call several."""
    called = {node.func.id for node in ast.walk(ast.parse(tests)) if is_named_call(node)}
    defined = re.findall(r"^def (\w+)", code, re.MULTILINE)
    return [name for name in defined if name in called][-1]


def is_named_call(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name)


def references(benchmark: str) -> list[Reference]:
    if benchmark == "humaneval":
        found = [humaneval(row) for row in rows("humaneval/HumanEval.jsonl.gz")]
    else:
        found = [mbpp(row, benchmark) for row in rows(f"mbpp/{benchmark}.jsonl.gz")]
    assert len(found) == BENCHMARKS[benchmark]
    return found


def run_all(texts: list[tuple[str, dict[str, Any]]]) -> list[Run]:
    jobs = []
    for text, row in texts:
        job, _ = code_job(text, row)
        assert job, row["id"]
        jobs.append(job)
    return run_many(jobs, 2, allow_code_execution=True)


def check_that_they_pass(chosen: list[Reference]) -> None:
    runs = run_all([(one.text, one.row) for one in chosen])
    failed = [
        (one.id, run.outcome, run.reason) for one, run in zip(chosen, runs, strict=True) if run.outcome != "passed"
    ]
    assert failed == []


def check_that_they_fail(pairs: list[tuple[Reference, Reference]]) -> None:
    """Each program under the name that the other row's tests call, so that no mere NameError decides."""
    texts = []
    for one, other in pairs:
        alias = f"{other.name} = {one.name}" if one.name != other.name else ""
        texts.append((f"```python\n{one.module}\n{alias}\n```", other.row))
    verdicts = [verdict_of(run, "") for run in run_all(texts)]
    assert not [verdict for verdict in verdicts if verdict.is_failure]
    passed = {(one.id, other.id) for (one, other), verdict in zip(pairs, verdicts, strict=True) if verdict.is_right}
    assert passed == SAME_TASK & {(one.id, other.id) for one, other in pairs}


def with_the_next(chosen: list[Reference]) -> list[tuple[Reference, Reference]]:
    return list(zip(chosen, [*chosen[1:], chosen[0]], strict=True))


@pytest.mark.parametrize("benchmark", ["humaneval", "mbpp"])
def test_a_sample_of_reference_solutions_passes(benchmark: str) -> None:
    found = references(benchmark)
    check_that_they_pass(found[:: len(found) // NUM_SAMPLED])


@pytest.mark.parametrize("benchmark", ["humaneval", "mbpp"])
def test_a_sample_of_reference_solutions_fails_the_next_tests(benchmark: str) -> None:
    found = with_the_next(references(benchmark))
    check_that_they_fail(found[:: len(found) // NUM_SAMPLED])


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_every_reference_solution_passes(benchmark: str) -> None:
    check_that_they_pass(references(benchmark))


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_every_reference_solution_fails_the_next_tests(benchmark: str) -> None:
    check_that_they_fail(with_the_next(references(benchmark)))
