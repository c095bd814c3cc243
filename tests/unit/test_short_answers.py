"""Scorers of short answers, open and multiple choice: a table of cases each, and properties over any text."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cospec.jsonl import read_jsonl
from cospec.scoring import Verdict, scorer_for
from cospec.scoring.choice import score_choice
from cospec.scoring.final_text import closed_boxes, final_text
from cospec.scoring.open_qa import normalise, score_open_qa

TABLES = Path(__file__).parents[1] / "data" / "scoring"
SCORERS: dict[str, Callable[[str, Mapping[str, Any]], Verdict]] = {"open_qa": score_open_qa, "choice": score_choice}
CASES = [(name, case) for name in SCORERS for case in read_jsonl(TABLES / f"{name}.jsonl")]
ROW = {"id": 1, "golds": ["Mark Twain"], "gold": "C", "choices": ["Paris", "London", "Rome", "Berlin"]}

#: What the scorers look for, so that random texts come near it.
PIECES = [
    *(
        "answer",
        "Answer:",
        "The answer is",
        "is",
        "not",
        " or ",
        ",",
        "C",
        "(C)",
        "**",
        "\\boxed{",
        "}",
        "\n",
        ".",
        " ",
    ),
    *(
        "<think>",
        "</think>",
        "Mark Twain",
        "Rome",
        "London",
        "It was ",
        "Question:",
        "A",
        "B",
        "no",
        "because",
        "\u2028",
    ),
]
texts = st.text() | st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@pytest.mark.parametrize(("name", "case"), CASES, ids=lambda value: value if isinstance(value, str) else value["why"])
def test_the_tables(name: str, case: dict[str, Any]) -> None:
    verdict = SCORERS[name](case["text"], case)
    assert verdict.kind == case["verdict"], verdict
    assert (verdict.reason == "") == (verdict.kind == "right")


def test_the_tables_are_large_and_their_cases_differ() -> None:
    keys = [(name, str({key: case[key] for key in case if key not in ("why", "source")})) for name, case in CASES]
    assert len(set(keys)) == len(keys) >= 180
    assert all(case["why"] and case["source"] for _, case in CASES)
    assert 5 <= sum(bool(case.get("known_miss")) for _, case in CASES) <= 20


@settings(max_examples=300, deadline=None)
@given(texts)
def test_any_text_gets_a_verdict(text: str) -> None:
    for scorer in SCORERS.values():
        assert scorer(text, ROW).kind in ("right", "wrong", "no_answer")


@pytest.mark.slow
def test_a_hundred_thousand_texts_get_a_verdict() -> None:
    rng = random.Random(0)
    for _ in range(100_000):
        pieces = rng.choices(PIECES, k=rng.randrange(30))
        text = "".join(piece if rng.random() < 0.9 else chr(rng.randrange(0x110000)) for piece in pieces)
        for scorer in SCORERS.values():
            assert scorer(text, ROW).kind in ("right", "wrong", "no_answer")


@settings(deadline=None)
@given(texts)
def test_a_text_without_an_alias_in_it_is_never_right(text: str) -> None:
    plain = normalise(text, punctuation="")
    if "marktwain" not in plain.replace(" ", ""):
        assert not score_open_qa(text, ROW).is_right


@settings(deadline=None)
@given(st.text(min_size=1), st.sampled_from(["{}", "Answer: {}", "The answer is {}."]))
def test_every_answer_is_its_own_gold(answer: str, form: str) -> None:
    row = {"golds": [answer]}
    text = form.format(answer)
    if not answer.strip():
        assert score_open_qa(text, row).kind == "error"
    elif form == "{}":
        assert score_open_qa(text, row).is_right or final_text(text) != text.strip()
    elif answer.isalnum():
        assert score_open_qa(text, row).is_right


FORMS = ["{}", "({})", "Answer: {}", "**{}**", "\\boxed{{{}}}"]


@given(st.sampled_from("ABCD"), st.sampled_from("ABCD"), st.sampled_from(FORMS))
def test_a_letter_is_right_for_itself_alone(answer: str, gold: str, form: str) -> None:
    verdict = score_choice(form.format(answer), {"gold": gold, "choices": ROW["choices"]})
    assert verdict == Verdict("right", answer) if answer == gold else verdict.kind == "wrong"


@pytest.mark.parametrize("name", SCORERS)
def test_very_long_texts_take_no_long_time(name: str) -> None:
    # Each of these makes some pattern match again and again; a scorer of quadratic time would take hours.
    for piece in (
        "*",
        "(",
        "a. ",
        "answer is ",
        "\\boxed{",
        "\nQ:",
        "</think>",
        "Mark T. ",
        "A or ",
        "it is ",
        "C ",
        "</s>",
    ):
        assert SCORERS[name](piece * (300_000 // len(piece)), ROW).kind in ("wrong", "no_answer")


NO_GOLD: list[dict[str, Any]] = [{}, {"golds": []}, {"golds": [""]}, {"gold": None}, {"golds": "Mark"}]


@pytest.mark.parametrize("row", [*NO_GOLD, {"golds": [], "gold": "x"}])
def test_an_open_question_without_gold_is_an_error(row: dict[str, Any]) -> None:
    assert score_open_qa("", row).kind == score_open_qa("x", row).kind == "error"


@pytest.mark.parametrize("gold", [None, "", "E", "AB", "1", 0])
def test_a_choice_without_a_letter_as_gold_is_an_error(gold: object) -> None:
    assert score_choice("E", {"gold": gold, "choices": ROW["choices"]}).kind == "error"


@pytest.mark.parametrize("choices", ["ABCD", 4, ["x"] * 11])
def test_choices_that_are_no_list_of_texts_are_an_error(choices: object) -> None:
    assert score_choice("A", {"gold": "A", "choices": choices}).kind == "error"


def test_golds_come_before_gold() -> None:
    assert score_open_qa("Mark Twain", {"golds": ["Jane Austen"], "gold": "Mark Twain"}).kind == "wrong"
    assert score_open_qa("Mark Twain", {"gold": "Mark Twain"}).is_right


def test_what_is_extracted_is_what_was_compared() -> None:
    assert score_open_qa("I think.\nAnswer: **Jane Austen**.", ROW).extracted == "Jane Austen"
    assert score_open_qa("Answer: It is Mark Twain, who else.", ROW).extracted == "Mark Twain"
    assert score_choice("Answer: (B)", ROW) == Verdict("wrong", "B", "expected C")


def test_boxes_close_and_nest() -> None:
    found = closed_boxes("\\boxed{a{b}c} \\boxed {\\text{d}} \\boxed{e")
    assert [box.content for box in found] == ["a{b}c", "d"]


def test_shuffled_prose_is_no_answer_of_a_choice() -> None:
    words = ["the", "answer", "could", "lie", "in", "any", "of", "these", "cities", "and", "I", "cannot", "decide", "A"]
    rng = random.Random(0)
    for _ in range(200):
        rng.shuffle(words)
        assert score_choice(" ".join(words) + ", which is why", ROW).kind == "no_answer"


def test_the_scorers_are_found_by_name() -> None:
    assert scorer_for("open_qa") is score_open_qa
    assert scorer_for("choice") is score_choice
