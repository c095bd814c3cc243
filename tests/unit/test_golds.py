"""A gold answer that no scorer can read is found when rows are loaded, and never scores anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cospec.scoring.golds import require_readable_golds, unfit_reason
from cospec.task_set import load_task

UNREADABLE = [
    ("maths", {"gold": "\\frac{1}{\\foo}"}, "cannot be read"),
    ("maths", {"gold": " "}, "has no gold answer"),
    ("math500", {"gold": "x+"}, "x\\+"),
    ("number", {"gold": "Janet has #### 18"}, "is not a number"),
    ("number", {"gold": "18", "lang": "xx"}, "unknown language 'xx'"),
    ("gsm8k", {"gold": None}, "is not a number"),
    ("choice", {"gold": "E", "choices": ["a", "b", "c", "d"]}, "'E' is not one of ABCD"),
    ("open_qa", {"golds": [], "gold": "x"}, "has no 'golds'"),
    ("exact", {"gold": None}, "has no gold answer"),
    ("code", {"tests": "assert f(1) =="}, "its tests are no Python"),
    ("code", {"tests": ""}, "either tests or stdin_tests"),
    ("reasoning_gym", {"dataset": "chain_sum"}, "has no 'dataset' and 'entry'"),
]
READABLE: list[tuple[str, dict[str, Any]]] = [
    ("maths", {"gold": "\\frac{1}{2}"}),
    ("number", {"gold": "1,234.5", "lang": "de"}),
    ("gpqa", {"gold": "D", "choices": ["a", "b", "c", "d"]}),
    ("open_qa", {"golds": ["The The"]}),
    ("word_problems", {"gold": "5"}),
    ("code", {"tests": "assert f(1) == 1"}),
    ("code", {"stdin_tests": [{"input": "1", "output": "2"}]}),
    ("reasoning_gym", {"dataset": "chain_sum", "entry": {"answer": "5"}}),
    ("my_package:my_scorer", {}),
]


@pytest.mark.parametrize(("scorer", "row", "reason"), UNREADABLE)
def test_an_unreadable_gold_is_found_without_a_text(scorer: str, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        require_readable_golds([{"id": 7, **row}], scorer)


@pytest.mark.parametrize(("scorer", "row"), READABLE)
def test_a_readable_gold_passes(scorer: str, row: dict[str, Any]) -> None:
    assert unfit_reason(scorer, {"id": 7, **row}) is None


def test_the_first_unreadable_rows_are_named_and_the_others_counted() -> None:
    rows = [{"id": n, "gold": "five" if n % 2 else "5"} for n in range(20)]
    message = r"scorer 'number' cannot judge by these rows: 1 \(.*'five' is not a number\); 3 .*; 5 .* and 7 more: mend"
    with pytest.raises(ValueError, match=message):
        require_readable_golds(rows, "number")


def test_a_task_drops_and_lists_the_rows_that_its_scorer_cannot_judge_by(tmp_path: Path) -> None:
    answers = ("\\frac{1}{2}", "\\frac{1}{\\foo}", "x+", "7")
    rows = [{"problem": "P?", "answer": answer, "unique_id": str(n)} for n, answer in enumerate(answers)]
    file = tmp_path / "test.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    info = load_task("math500", path=file).info
    assert info.num_rows == 2
    assert [drop.id for drop in info.dropped] == [f"{file}:2", f"{file}:3"]
    assert all("the gold answer" in drop.reason for drop in info.dropped)
    file.write_text(json.dumps(rows[2]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"no usable row in test\.jsonl \(1 dropped, the first because .*x\+"):
        load_task("math500", path=file)
