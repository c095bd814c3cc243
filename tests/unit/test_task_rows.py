"""Rows of any shape: whatever a field holds, a task reads the row, drops it, or says which file, line and field."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cospec.jsonl import write_jsonl_atomic
from cospec.prompt_rows import load_prompt_rows
from cospec.task_set import load_task

CASES = json.dumps([{"input": "1", "output": "1", "testtype": "functional"}])
TEST = "def check(candidate):\n    assert candidate(1) == 1\n"
#: By task: the file's name, and a row with all fields the task knows.
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "gsm8k": ("test.jsonl", {"question": "Q?", "answer": "So\n#### 5"}),
    "svamp": ("SVAMP.jsonl", {"ID": "1", "Body": "B.", "Question": "Q?", "Answer": 5.0}),
    "mgsm:de": ("mgsm_de.jsonl", {"question": "Q?", "answer": "5"}),
    "math500": (
        "test.jsonl",
        {"problem": "P?", "answer": "5", "solution": "S", "unique_id": "a", "subject": "Algebra", "level": 3},
    ),
    "aime2024": ("test.jsonl", {"id": 60, "problem": "P?", "answer": "204", "solution": "S"}),
    "humaneval": (
        "HumanEval.jsonl",
        {
            "task_id": "a",
            "prompt": "def f(x):\n",
            "entry_point": "f",
            "canonical_solution": "    return x",
            "test": TEST,
        },
    ),
    "humaneval:plus": (
        "HumanEvalPlus.jsonl",
        {
            "task_id": "a",
            "prompt": "def f(x):\n",
            "entry_point": "f",
            "canonical_solution": "    return x",
            "base_input": [[1]],
            "plus_input": [[2]],
            "atol": 1e-6,
        },
    ),
    "mbpp": (
        "sanitized-mbpp.jsonl",
        {
            "task_id": 12,
            "prompt": "Write f.",
            "code": "def f(x): return x",
            "test_list": ["assert f(1) == 1"],
            "test_imports": ["import math"],
        },
    ),
    "mbpp:full": (
        "mbpp.jsonl",
        {
            "task_id": 12,
            "text": "Write f.",
            "code": "def f(x): return x",
            "test_list": ["assert f(1) == 1"],
            "test_setup_code": "",
            "challenge_test_list": [],
        },
    ),
    "livecodebench:v1": (
        "test.jsonl",
        {
            "question_id": "a",
            "question_content": "Q?",
            "starter_code": "class Solution: ...",
            "public_test_cases": CASES,
            "private_test_cases": CASES,
            "metadata": '{"func_name": "f"}',
            "platform": "leetcode",
            "difficulty": "easy",
            "contest_date": "2024-01-01",
        },
    ),
    "gpqa": (
        "gpqa_diamond.jsonl",
        {
            "Record ID": "a",
            "Question": "Q?",
            "Correct Answer": "w",
            "Incorrect Answer 1": "x",
            "Incorrect Answer 2": "y",
            "Incorrect Answer 3": "z",
        },
    ),
    "triviaqa": (
        "validation.jsonl",
        {
            "question_id": "a",
            "question": "Q?",
            "answer": {"value": "X", "aliases": ["X"], "normalized_aliases": ["x"]},
        },
    ),
    "nq_open": ("NQ-open.dev.jsonl", {"question": "Q?", "answer": ["X"]}),
    "mt_bench": ("question.jsonl", {"question_id": 81, "category": "writing", "turns": ["a"], "reference": ["b"]}),
}
DEEP = 700
VALUES = {
    "missing": None, "null": "null", "true": "true", "number": "15", "float": "1.5", "nan": "NaN", "huge": "9" * 400,
    "empty": '""', "blank": '" "', "text": '"x"', "zero byte": '"a\\u0000b"', "surrogate": '"\\ud800"',
    "digits": json.dumps("9" * 5000), "broken": '"(x"', "brackets": json.dumps("[" * 100_000), "base64": '"AAAA"',
    "list": "[]", "null list": "[null]", "number list": "[5]", "text list": '["x"]', "surrogates": '["\\ud800"]',
    "lists": "[[]]", "objects": "[{}]", "object": "{}", "odd object": '{"value": 5, "aliases": "x", "a": null}',
    "typed case": '[{"input": "1", "output": "1", "testtype": ["stdin"]}]',
    "case": '[{"input": null, "output": 5, "testtype": "stdin"}]', "deep": "[" * DEEP + "]" * DEEP,
}  # fmt: skip


def with_field(row: dict[str, Any], field: str, text: str | None) -> str:
    """The row as JSON, one field as this JSON text, None for a row without it."""
    parts = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in row.items() if name != field]
    return "{" + ", ".join(parts + ([f"{json.dumps(field)}: {text}"] if text is not None else [])) + "}"


@pytest.mark.parametrize("task", ROWS)
def test_any_field_is_read_or_dropped_or_named_with_its_line(task: str, tmp_path: Path) -> None:
    name, row = ROWS[task]
    good = {**row, **{key: 11 if task.startswith("mbpp") else "b" for key in IDS if key in row}}
    for field in row:
        for what, text in VALUES.items():
            file = tmp_path / name
            file.write_text(f"{json.dumps(good)}\n{with_field(row, field, text)}\n", encoding="utf-8")
            try:
                loaded = load_task(task, path=file)
            except ValueError as error:
                refusal = str(error)
            else:
                refusal = None
            if refusal is not None:
                assert refusal.startswith(f"{file}:2: "), (field, what, refusal)
                assert repr(field) in refusal, (field, what, refusal)
                continue
            assert loaded.info.num_rows + len(loaded.info.dropped) == 2, (field, what)
            write_jsonl_atomic(tmp_path / "rows.out", (found.to_json() for found in loaded.rows))
            assert load_prompt_rows(tmp_path / "rows.out", require_gold=task != "mt_bench") == loaded.rows, (
                field,
                what,
            )


IDS = ("ID", "unique_id", "id", "task_id", "question_id", "Record ID")


@pytest.mark.parametrize("task", [name for name, (_, row) in ROWS.items() if set(IDS) & set(row)])
def test_an_id_of_two_problems_is_refused_and_a_repeated_problem_is_dropped(task: str, tmp_path: Path) -> None:
    name, row = ROWS[task]
    question = next(
        key for key in ("question", "Question", "problem", "prompt", "text", "question_content", "turns") if key in row
    )
    other = {**row, question: ["Another?"] if question == "turns" else "def f(y):\n"}
    file = tmp_path / name
    file.write_text("".join(json.dumps(each) + "\n" for each in (row, other)), encoding="utf-8")
    with pytest.raises(ValueError, match=rf":2: id '.*' is already used in {re.escape(str(file))}:1: give"):
        load_task(task, path=file)
    file.write_text("".join(json.dumps(each) + "\n" for each in (row, row)), encoding="utf-8")
    info = load_task(task, path=file).info
    assert (info.num_rows, [drop.id for drop in info.dropped]) == (1, [f"{file}:2"])
    assert re.fullmatch(rf"the same problem '.*' as {re.escape(str(file))}:1", info.dropped[0].reason)


@pytest.mark.parametrize("line", ['{"a": ' + "[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_a_line_that_json_cannot_hold_is_named(tmp_path: Path, line: str) -> None:
    for file in (tmp_path / "test.jsonl", tmp_path / "test.json"):
        file.write_text(f"[{line}]" if file.suffix == ".json" else f"{{}}\n{line}\n", encoding="utf-8")
        with pytest.raises(ValueError, match=re.escape(str(file))):
            load_task("gsm8k", path=file)
        with pytest.raises(ValueError, match=re.escape(str(file))):
            load_prompt_rows(file, require_gold=False)
