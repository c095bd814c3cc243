"""Code tasks: the test programs pass the right solution and no other, and packed test cases are unpacked safely."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from benchmark_data import benchmark

from cospec.task_set import load_task
from cospec.tasks.mbpp import entry_point

ALWAYS_EQUAL = "class E:\n    def __eq__(self, other): return True\n    def __sub__(self, other): return 0\n"


def passes(extra: Mapping[str, Any], solution: str) -> bool:
    """Head, solution and tests as one program in a process of its own."""
    program = f"{extra['code_prompt']}{solution}\n{extra['tests']}\nprint('all passed')\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode == 0 and done.stdout.endswith("all passed\n")


# --- HumanEval and HumanEval+ ----------------------------------------------------------------------------------------

HEAD = 'def scale(values, factor):\n    """Each value times the factor."""\n'
BODY = "    return [value * factor for value in values]\n"
PLUS = {
    "task_id": "HumanEval/500",
    "prompt": HEAD,
    "entry_point": "scale",
    "canonical_solution": BODY,
    "contract": "",
    "base_input": [[[1, 2], 2]],
    "plus_input": [[[], 3], [[0.1, 0.2], 3], [["a"], 2]],
    "atol": 0,
}


def plus_row(tmp_path: Path, **changes: Any) -> Mapping[str, Any]:
    (tmp_path / "HumanEvalPlus.jsonl").write_text(json.dumps(PLUS | changes) + "\n", encoding="utf-8")
    row = load_task("humaneval:plus", path=tmp_path).rows[0]
    assert row.gold == changes.get("canonical_solution", BODY)
    return row.extra


def test_inputs_of_evalplus_are_checked_against_the_canonical_solution(tmp_path: Path) -> None:
    extra = plus_row(tmp_path)
    assert passes(extra, BODY)
    assert passes(extra, "    return [factor * value for value in values]\n")
    near = "    return [v * factor + 1e-9 if type(v) is float else v * factor for v in values]\n"
    assert passes(extra, near)
    assert not passes(extra, near.replace("1e-9", "1e-3"))
    assert not passes(extra, "    return [value * 2 for value in values]\n")
    assert not passes(extra, "    return tuple(value * factor for value in values)\n")
    assert not passes(extra, f"    return E()\n{ALWAYS_EQUAL}")
    assert not passes(extra, f"    return [E() for value in values]\n{ALWAYS_EQUAL}")
    assert not passes(extra, "    values.append(1)\n    return [value * factor for value in values]\n")
    assert not passes(extra, "    return None\n")


def test_inputs_are_fresh_for_every_call(tmp_path: Path) -> None:
    assert passes(
        plus_row(tmp_path), "    copy = list(values)\n    values.clear()\n    return [v * factor for v in copy]\n"
    )


def test_a_test_of_the_row_is_taken_as_it_is(tmp_path: Path) -> None:
    extra = plus_row(tmp_path, test="def check(candidate):\r\n    assert candidate([2], 2) == [4]\r\n")
    assert extra["tests"] == "def check(candidate):\n    assert candidate([2], 2) == [4]\n\n\ncheck(scale)\n"
    assert passes(extra, BODY)
    assert not passes(extra, "    return []\n")


def test_a_root_is_put_into_its_polynomial(tmp_path: Path) -> None:
    head = "def poly(xs, x):\n    return sum(c * x**i for i, c in enumerate(xs))\n\n\ndef find_zero(xs):\n"
    body = "    return (-xs[1] + (xs[1] ** 2 - 4 * xs[0] * xs[2]) ** 0.5) / (2 * xs[2])\n"
    extra = plus_row(
        tmp_path,
        prompt=head,
        entry_point="find_zero",
        canonical_solution=body,
        base_input=[[[-6.0, 1.0, 1.0]]],
        plus_input=[],
    )
    assert passes(extra, body)
    assert passes(extra, "    return -3.0\n")
    assert not passes(extra, "    return 3.0\n")


def test_a_row_without_tests_and_inputs_is_dropped(tmp_path: Path) -> None:
    rows = [PLUS, PLUS | {"task_id": "HumanEval/501", "base_input": [], "plus_input": []}]
    (tmp_path / "HumanEvalPlus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    info = load_task("humaneval:plus", path=tmp_path).info
    assert (info.num_rows, [drop.reason for drop in info.dropped]) == (
        1,
        ["neither a test nor inputs: nothing can be checked"],
    )


def test_references_pass_their_tests_and_not_the_next_rows() -> None:
    humaneval = load_task("humaneval", path=benchmark("humaneval"), num=6).rows
    mbpp = load_task("mbpp:full", path=benchmark("mbpp"), num=6).rows
    for rows in (humaneval, mbpp):
        for row, following in pairwise(rows):
            assert passes(row.extra, row.gold or "")
            assert not passes({**row.extra, "tests": following.extra["tests"]}, row.gold or "")


def test_prompts_of_code_tasks() -> None:
    chat = load_task("humaneval", path=benchmark("humaneval"), num=1).rows[0]
    plain = load_task("humaneval", path=benchmark("humaneval"), num=1, chat=False).rows[0]
    assert plain.prompt == plain.extra["code_prompt"]
    assert chat.prompt is not None
    assert "```python\nfrom typing import List" in chat.prompt
    mbpp = load_task("mbpp", path=benchmark("mbpp"), num=1).rows[0]
    assert mbpp.prompt is not None
    assert all(line in mbpp.prompt for line in mbpp.extra["test_list"])


@pytest.mark.parametrize(
    ("code", "asserts", "name"),
    [
        ("def f(x): return x", ["assert f(1) == 1"], "f"),
        ("def g(x): return x\ndef f(x): return g(x)", ["assert set(f(1)) == set((1,))"], "f"),
        ("class Pair: pass\ndef f(x): return x", ["assert f([Pair(1, 2)]) == 3"], "Pair"),
        ("x = 1", ["assert x == 1"], None),
    ],
)
def test_the_entry_point_is_what_the_assertions_call(code: str, asserts: list[str], name: str | None) -> None:
    assert entry_point(code, asserts) == name


# --- LiveCodeBench ---------------------------------------------------------------------------------------------------


def packed(value: object, protocol: int = 4) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


def case(given: str, expected: str, kind: str) -> dict[str, str]:
    return {"input": given, "output": expected, "testtype": kind}


STDIN = {
    "question_title": "Sum",
    "question_content": "Print the sum of the two numbers.",
    "platform": "atcoder",
    "question_id": "abc999_a",
    "contest_id": "abc999",
    "contest_date": "2024-01-01T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps([case("1 2\n", "3\n", "stdin")]),
    "private_test_cases": packed(json.dumps([case("5 7\n", "12\n", "stdin")])),
    "metadata": "{}",
}
FUNCTIONAL = STDIN | {
    "platform": "leetcode",
    "question_id": "3000",
    "starter_code": "class Solution:\n    def pairs(self, values: List[int], k: int) -> List[List[int]]:\n        ",
    "public_test_cases": json.dumps([case("[1, 2, 3]\n3", "[[1, 2]]", "functional")]),
    "private_test_cases": packed(
        json.dumps([case("[]\n1", "[]", "functional"), case("[2, 2]\n4", "[[2, 2]]", "functional")])
    ),
    "metadata": '{"func_name": "pairs"}',
}
SOLUTION = """class Solution:
    def pairs(self, values: List[int], k: int) -> List[List[int]]:
        return [{} for i, a in enumerate(values) for b in values[i + 1:] if a + b == k and pow(3, 2, 5) == 4]
"""


def lcb(tmp_path: Path, *rows: dict[str, Any]) -> Any:
    (tmp_path / "test6.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return load_task("livecodebench:v6", path=tmp_path)


def test_stdin_problems_carry_all_their_cases(tmp_path: Path) -> None:
    row = lcb(tmp_path, STDIN).rows[0]
    assert (row.id, row.extra["task_id"], row.gold) == ("livecodebench/abc999_a", "abc999_a", None)
    assert row.extra["stdin_tests"] == [{"input": "1 2\n", "output": "3\n"}, {"input": "5 7\n", "output": "12\n"}]
    assert "reads from standard input" in row.prompt


def test_functional_problems_are_tested_by_calls(tmp_path: Path) -> None:
    row = lcb(tmp_path, FUNCTIONAL).rows[0]
    assert "check(Solution().pairs)" in row.extra["tests"]
    assert "class Solution:\n    def pairs" in row.prompt
    assert passes(row.extra, SOLUTION.format("[a, b]"))
    assert passes(row.extra, SOLUTION.format("(a, b)"))
    assert not passes(row.extra, SOLUTION.format("[b, a + 1]"))
    assert passes(row.extra, SOLUTION.format("[float(a), b]"))
    assert not passes(row.extra, SOLUTION.format("[str(a), b]"))
    assert not passes(row.extra, f"{ALWAYS_EQUAL}class Solution:\n    def pairs(self, values, k): return E()\n")


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        ("2.00000", "2", True),
        ("2", "2.0", True),
        ("true", "1", True),
        ("[1, false]", "[True, 0.0]", True),
        ("2.5", "2.5000001", True),
        ("2", "2.0000001", False),
        ("2", "'2'", False),
        ("true", "'true'", False),
        ("[]", "False", False),
        ("0", "None", False),
        ("1e400", "10 ** 400", False),
        ("1e400", "5.0", False),
        ("1e400", "float('inf')", True),
    ],
)
def test_numbers_are_compared_by_value_whatever_their_type(
    tmp_path: Path, expected: str, found: str, same: bool
) -> None:
    cases = json.dumps([case("[1]\n3\n", expected, "functional")])
    row = lcb(tmp_path, FUNCTIONAL | {"public_test_cases": cases, "private_test_cases": ""}).rows[0]
    program = f"class Solution:\n    def pairs(self, values, k):\n        return {found} if k == 3 else None\n"
    assert passes(row.extra, program) is same


@pytest.mark.parametrize("protocol", range(6))
def test_hidden_cases_of_every_pickle_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    cases = [case("5 7\n", "12\n", "stdin")]
    for content in (json.dumps(cases), json.dumps(cases).encode() if protocol >= 3 else json.dumps(cases), cases):
        row = lcb(tmp_path, STDIN | {"private_test_cases": packed(content, protocol)}).rows[0]
        assert len(row.extra["stdin_tests"]) == 2
    assert len(lcb(tmp_path, STDIN | {"private_test_cases": json.dumps(cases)}).rows[0].extra["stdin_tests"]) == 2


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, (f"open({str(self.file)!r}, 'w')",))


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, protocol: int) -> None:
    for content in (Evil(tmp_path / "written"), [Evil(tmp_path / "written")], ("a", Path("b")), {1}, Evil):
        row = STDIN | {"private_test_cases": packed(content, protocol)}
        if content == {1} and protocol >= 4:
            # A set of numbers needs no class from protocol 4 on; it is no list of cases either.
            with pytest.raises(ValueError, match="holds no list"):
                lcb(tmp_path, row)
            continue
        with pytest.raises(ValueError, match=r"test6\.jsonl:1: field 'private_test_cases'.*UnpicklingError.*wants"):
            lcb(tmp_path, row)
    assert not (tmp_path / "written").exists()


@pytest.mark.parametrize(
    "text",
    ["not base64!", base64.b64encode(b"not zlib").decode(), packed("x")[:-9], packed("[1"), packed("{}"), "[1]", "{}"],
)
def test_damaged_cases_name_their_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"test6\.jsonl:2: field 'private_test_cases'"):
        lcb(tmp_path, STDIN, STDIN | {"question_id": "b", "private_test_cases": text})


def test_rows_that_cannot_be_tested_are_dropped(tmp_path: Path) -> None:
    mixed = json.dumps([case("1", "1", "functional")])
    found = lcb(
        tmp_path,
        STDIN,
        STDIN | {"public_test_cases": "[]", "private_test_cases": ""},
        STDIN | {"public_test_cases": mixed},
        FUNCTIONAL | {"metadata": "{}"},
    )
    assert found.info.num_rows == 1
    assert [drop.reason.split(":")[0] for drop in found.info.dropped] == [
        "no test cases",
        "test cases of the kinds ['functional', 'stdin']",
        "functional cases without a func_name in the metadata",
    ]


def test_a_release_is_all_its_files(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        name = "test.jsonl" if number == 1 else f"test{number}.jsonl"
        (tmp_path / name).write_text(json.dumps(STDIN | {"question_id": f"q{number}"}) + "\n", encoding="utf-8")
    assert [row.id for row in load_task("livecodebench:release_v2", path=tmp_path).rows] == [
        "livecodebench/q1",
        "livecodebench/q2",
    ]
    assert [row.id for row in load_task("livecodebench:v3", path=tmp_path).rows] == ["livecodebench/q3"]
    with pytest.raises(ValueError, match="no file for split 'test': looked for test4"):
        load_task("livecodebench", path=tmp_path)
