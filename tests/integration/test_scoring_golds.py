"""Every gold answer of the benchmarks' data files: right for itself, wrong for its neighbour."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from cospec.scoring.maths import check_gold, score_maths
from cospec.scoring.number import read_gold, score_number

pytestmark = pytest.mark.skipif(
    "COSPEC_DATA" not in os.environ, reason="COSPEC_DATA names no directory with the data files"
)

MGSM = ("bn", "de", "en", "es", "fr", "ja", "ru", "sw", "te", "th", "zh")
SENTENCES = [
    "{0}",
    r"Therefore we get $\boxed{{{0}}}$.",
    r"\[ \boxed{{{0}}} \]",
    "**Answer:** ${0}$",
    "The final answer is ${0}$.",
    "The final answer is {0}.",
    "#### {0}",
    r"There are 3 cases, so the value is \({0}\).",
    "**Final Answer**\n\n\\[{0}\\]",
]


def lines(name: str) -> Iterator[str]:
    with gzip.open(Path(os.environ["COSPEC_DATA"]) / name, "rt", encoding="utf-8") as file:
        yield from file


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(name)]


def numbers(name: str) -> list[object]:
    if name == "svamp":
        return [row["Answer"] for row in rows("svamp/SVAMP.jsonl.gz")]
    if name.startswith("mgsm"):
        return [line.rstrip("\n").split("\t")[1] for line in lines(f"mgsm/{name}.tsv.gz")]
    return [row["answer"].rpartition("####")[2].strip() for row in rows(f"gsm8k/{name}.jsonl.gz")]


def neighbours(golds: Sequence[object]) -> Iterator[tuple[object, object]]:
    yield from zip(golds, [*golds[1:], golds[0]], strict=True)


#: Neighbours in the file that are the same answer.
EQUAL_NEIGHBOURS = {("5", "x=5"), ("7", "7"), ("3", "3")}


def test_every_gold_of_math500_is_right_in_every_sentence_and_wrong_for_its_neighbour() -> None:
    golds = [row["answer"] for row in rows("math500/test.jsonl.gz")]
    assert len(golds) == 500
    for gold, other in neighbours(golds):
        check_gold(gold)
        kinds = [score_maths(sentence.format(gold), {"gold": gold}).kind for sentence in SENTENCES]
        assert kinds == ["right"] * len(SENTENCES), gold
        expected = "right" if (gold, other) in EQUAL_NEIGHBOURS else "wrong"
        assert score_maths(rf"\boxed{{{other}}}", {"gold": gold}).kind == expected, (gold, other)


def test_the_worked_solutions_of_math500_are_right() -> None:
    wrong = [
        row["answer"]
        for row in rows("math500/test.jsonl.gz")
        if not score_maths(row["solution"], {"gold": row["answer"]}).is_right
    ]
    assert not wrong


@pytest.mark.parametrize("name", ["train", "test", "svamp", *(f"mgsm_{lang}" for lang in MGSM)])
def test_every_number_is_right_in_every_sentence_and_wrong_for_its_neighbour(name: str) -> None:
    lang = name.removeprefix("mgsm_") if name.startswith("mgsm") else None
    golds = numbers(name)
    assert len(golds) == {"train": 7473, "test": 1319, "svamp": 1000}.get(name, 250)
    sentences = SENTENCES[:2] if name == "train" else [*SENTENCES, "A: {0}", "It costs ${0}."]
    for gold, other in neighbours(golds):
        row = {"gold": gold, "lang": lang}
        kinds = [score_number(sentence.format(gold), row).kind for sentence in sentences]
        assert kinds == ["right"] * len(sentences), gold
        assert score_number(f"#### {other}", row).is_right == (read_gold(gold) == read_gold(other)), (gold, other)


@pytest.mark.parametrize("name", [pytest.param("train", marks=pytest.mark.slow), "test"])
def test_the_worked_solutions_of_gsm8k_are_right(name: str) -> None:
    for row in rows(f"gsm8k/{name}.jsonl.gz"):
        gold = row["answer"].rpartition("####")[2].strip()
        assert score_number(row["answer"], {"gold": gold}).is_right, row


def test_verdicts_agree_with_the_published_ones_on_gsm8ks_model_solutions() -> None:
    """1319 problems, 4 models each: the ``is_correct`` flags of the GSM8K authors."""
    disagreements, num_solutions = [], 0
    for row in rows("gsm8k/example_model_solutions.jsonl.gz"):
        gold = row["ground_truth"].rpartition("A:")[2].strip()
        assert score_number(row["ground_truth"], {"gold": gold}).is_right
        for model in ("6b_finetuning", "6b_verification", "175b_finetuning", "175b_verification"):
            num_solutions += 1
            if score_number(row[model]["solution"], {"gold": gold}).is_right != row[model]["is_correct"]:
                disagreements.append((gold, row[model]))
    assert num_solutions == 5276
    assert not disagreements
