"""Known right and wrong answers, as data: one row, one verdict. Known misses are listed, so that an upgrade shows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from cospec.jsonl import read_numbered_jsonl
from cospec.scoring import safe_score, scorer_for

TABLES = Path(__file__).parents[1] / "data" / "scoring"
KINDS = {"right", "wrong", "no_answer", "timeout", "error"}


def table(name: str) -> list[Any]:
    return [
        pytest.param(row, id=f"{name}:{number}", marks=[pytest.mark.xfail(strict=True, reason=row["why"])] * miss)
        for number, row in read_numbered_jsonl(TABLES / f"{name}.jsonl")
        for miss in [int(row.get("known_miss", False))]
    ]


@pytest.mark.parametrize("row", table("maths"))
def test_maths(row: dict[str, Any]) -> None:
    verdict = safe_score(scorer_for("maths"), row["text"], row)
    assert verdict.kind == row["verdict"], verdict


@pytest.mark.parametrize("row", table("number"))
def test_number(row: dict[str, Any]) -> None:
    verdict = safe_score(scorer_for("number"), row["text"], row)
    assert verdict.kind == row["verdict"], verdict


@pytest.mark.parametrize("name", ["maths", "number"])
def test_the_tables_are_complete_and_have_no_row_twice(name: str) -> None:
    rows = [param.values[0] for param in table(name)]
    assert all(row["verdict"] in KINDS and row["why"] and row["source"] for row in rows)
    assert max(Counter((row["text"], row["gold"], row.get("lang")) for row in rows).values()) == 1
    sources = {row["source"] for row in rows}
    assert sources >= ({"R-56", *(f"R-{i}" for i in range(57, 67)), "R-88", "R-92"} if name == "maths" else {"R-68"})
    assert sum(row["source"] == "own" for row in rows) >= 60
