"""The number scorer: the last word counts, exactly, in the digits and separators of its language."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cospec.scoring.amounts import LANGUAGES
from cospec.scoring.number import check_gold, read_gold, score_number
from cospec.scoring.score_file import read_task_answers

DIGITS = {"bn": "০১২৩৪৫৬৭৮৯", "te": "౦౧౨౩౪౫౬౭౮౯", "th": "๐๑๒๓๔๕๖๗๘๙", "hi": "०१२३४५६७८९"}
#: Separators of thousands and the decimal sign.
STYLES = {
    "de": [(".", ","), ("\u00a0", ",")],
    "es": [(".", ","), (" ", ","), ("\u202f", ",")],
    "fr": [(" ", ","), ("\u00a0", ","), ("\u202f", ",")],
    "ru": [(" ", ","), ("\u00a0", ",")],
}
SENTENCES = {
    "de": "Die Antwort ist {}.",
    "es": "La respuesta es {}.",
    "fr": "La réponse est {}.",
    "ru": "Ответ — {}.",
    "zh": "答案是 {}。",
    "ja": "答えは{}です。",
    "th": "คำตอบคือ {}",
    "sw": "Jibu ni {}.",
    "bn": "উত্তর হল {}।",
    "te": "సమాధానం {}.",
    "en": "The answer is {}.",
    "hi": "{}",
}


def spelled(cents: int, lang: str, group: str, decimal: str) -> str:
    """A number of hundredths in the style of a language."""
    whole, rest = divmod(abs(cents), 100)
    text = f"{whole:,}".replace(",", group) + (f"{decimal}{rest:02}" if rest else "")
    return ("-" if cents < 0 else "") + text.translate(
        {ord(str(i)): digit for i, digit in enumerate(DIGITS.get(lang, ""))}
    )


@pytest.mark.parametrize("lang", sorted(LANGUAGES))
@given(st.integers(-(10**9), 10**9))
@settings(max_examples=100, deadline=None)
def test_numbers_in_the_style_of_the_language_are_read(lang: str, cents: int) -> None:
    gold = f"{cents // 100:,}" if cents % 100 == 0 else str(Fraction(cents, 100))
    for group, decimal in STYLES.get(lang, [(",", ".")]):
        number = spelled(cents, lang, group, decimal)
        for text in (SENTENCES[lang].format(number), f"7 + 7 = 14\n\n{SENTENCES[lang].format(number)}", number):
            assert score_number(text, {"gold": gold, "lang": lang}).kind == "right"
            assert score_number(text, {"gold": str(Fraction(cents, 100) + 1), "lang": lang}).kind == "wrong"


@given(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30))
def test_numbers_are_compared_exactly(one: int, other: int) -> None:
    for text in (f"#### {one}", f"A: {one:,}", f"so it is ${one}.00.", f"\\boxed{{{one}}}"):
        assert score_number(text, {"gold": str(other)}).is_right == (one == other)


@pytest.mark.parametrize(
    "gold", ["", None, "five", "5 apples", "nan", "inf", "1/0", True, [5], "3 or 5", "--5", "5,00"]
)
def test_nothing_is_right_for_a_gold_answer_that_is_no_number(gold: object) -> None:
    for text in ("", str(gold), "5", "#### 0"):
        assert score_number(text, {"gold": gold}).kind == "error"
    with pytest.raises(ValueError, match="is not a number: drop the row"):
        check_gold(gold)


@pytest.mark.parametrize(
    ("gold", "value"), [(51.0, 51), ("2,125", 2125), ("-7", -7), ("1/2", Fraction(1, 2)), ("$5", 5)]
)
def test_golds_are_read_the_english_way(gold: object, value: object) -> None:
    assert read_gold(gold) == value
    check_gold(gold)


@pytest.mark.parametrize(
    "hedge", ["{} or {}", "{}, {}", "{} and {}", "either {} or maybe {}", "{} - {}", "{} + {}", "{} {}"]
)
@pytest.mark.parametrize("sentence", ["The answer is {}.", "#### {}", "A: {}", "\\boxed{{{}}}"])
def test_several_numbers_are_not_one(sentence: str, hedge: str) -> None:
    for gold in ("3", "5"):
        assert not score_number(sentence.format(hedge.format(3, 5)), {"gold": gold}).is_right


@pytest.mark.parametrize(
    "announced",
    [
        "#### {}",
        "####{}",
        "#### ${}",
        "#### €{}",
        "#### US${}",
        "#### Rs. {}",
        "#### x = {}",
        "#### **{}**",
        "#### $\\boxed{{{}}}$",
        "#### $ {}",
    ],
)
@pytest.mark.parametrize(
    "around",
    [
        "The answer is 7.\n{}",
        "A: first 5 + 3 = 8 eggs, then 2 dollars each.\n{}",
        "\\boxed{{7}}\n{}",
        "{}\n\nThat took 7 steps.",
        "{}\nThe answer is 7.",
    ],
)
@given(st.integers(10, 10**7), st.booleans(), st.booleans())
@settings(max_examples=20, deadline=None)
def test_what_hashes_announce_counts_with_sign_and_currency_whatever_stands_around(
    around: str, announced: str, number: int, is_negative: bool, has_cents: bool
) -> None:
    gold = f"{'-' * is_negative}{number}{'.25' * has_cents}"
    text = around.format(announced.format(gold))
    assert score_number(text, {"gold": gold}).is_right
    for other in ("7", "8", "2", gold[1:] if is_negative else f"-{gold}"):
        assert score_number(text, {"gold": other}).kind == "wrong"


def test_a_decimal_without_a_zero_is_found_behind_hashes() -> None:
    assert score_number("The answer is 7.\n#### .5", {"gold": "0.5"}).is_right
    assert score_number("The answer is 7.\n#### -.5", {"gold": "-0.5"}).is_right


@given(st.text(), st.sampled_from(sorted(LANGUAGES)))
@settings(max_examples=300, deadline=None)
def test_any_text_has_a_verdict(text: str, lang: str) -> None:
    assert score_number(text, {"gold": "5", "lang": lang}).kind in ("right", "wrong", "no_answer")
    assert score_number("5", {"gold": text, "lang": lang}).kind in ("right", "wrong", "error")


@given(st.text("0123456789.,  \u00a0/%-$ek#:", max_size=30), st.sampled_from(sorted(LANGUAGES)))
@settings(max_examples=1000, deadline=None)
def test_numbers_written_any_way_have_a_verdict_in_every_language(text: str, lang: str) -> None:
    for answer in (text, f"#### {text}"):
        assert score_number(answer, {"gold": "5", "lang": lang}).kind in ("right", "wrong", "no_answer")


@pytest.mark.parametrize("lang", sorted(LANGUAGES))
@given(st.integers(0, 10**12), st.integers(1, 99))
@settings(max_examples=30, deadline=None)
def test_english_groups_and_decimals_are_read_in_every_language(lang: str, number: int, cents: int) -> None:
    row = {"gold": f"{number}.{cents:02d}", "lang": lang}
    assert score_number(f"#### {number:,}.{cents:02d}", row).is_right
    assert score_number(f"#### {number:,}", row | {"gold": str(number)}).is_right


@pytest.mark.parametrize(
    "text", ["7" * 2_000_000, "1," * 500_000, "-" * 300_000, "answer is " * 100_000, "1 or " * 20_000]
)
def test_megabytes_of_text_are_read_in_no_time(text: str) -> None:
    assert score_number(text, {"gold": "5"}).kind in ("wrong", "no_answer")


def test_rows_in_a_language_that_the_task_has_not_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    for lang, name, message in (
        ("fr", "mgsm:de", "rows.jsonl:1: lang is 'fr', and task 'mgsm:de' has de:"),
        ("DE", "mgsm", "rows.jsonl:1: unknown lang 'DE': use one of bn, de"),
    ):
        file.write_text(json.dumps({"id": 1, "gold": "5", "lang": lang, "text": "5"}) + "\n")
        with pytest.raises(ValueError, match=message):
            read_task_answers(file, name, None)
    file.write_text(json.dumps({"id": 1, "gold": "5", "lang": "de", "text": "5"}) + "\n")
    assert read_task_answers(file, "mgsm:de", None) == read_task_answers(file, "mgsm", None)
