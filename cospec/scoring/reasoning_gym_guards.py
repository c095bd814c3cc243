"""What the reasoning-gym library's scorers let through and must not: looked at before they are asked.

Some compare with a tolerance that a guess meets, drop a sign, or pass over what they cannot read or what stands behind
the right answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

Entry = Mapping[str, Any]

_NO_NUMBER = re.compile(r"(?<![a-z])[+-]?(?:nan|inf|infinity)[ij]?(?![a-z])", re.IGNORECASE)
_ARITHMETIC = re.compile(r"[\d\s+\-*/()]+")
_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,2})?")
_SIGNED = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?")
_WORDS = re.compile(r"[a-z]+", re.IGNORECASE)
_FRACTION_WORDS = {"frac", "dfrac"}
_EMPTY = ('""', "''")


def objection(dataset: str, answer: str, entry: Entry) -> str | None:
    """Why an answer is wrong whatever the library would say, None where it may be asked."""
    if answer == entry.get("answer"):
        return None
    if _NO_NUMBER.search(answer):
        return "nan and inf compare with nothing: the library's scorers take them for right"
    guard = _GUARDS.get(dataset)
    return guard(answer, entry) if guard is not None else None


def _number(text: str) -> Fraction | None:
    """The value of a plain number or of a fraction of two; bounded, since an exponent can make any number huge."""
    parts = text.strip().split("/")
    if len(parts) > 2 or not all(_NUMBER.fullmatch(part.strip()) for part in parts):
        return None
    values = [Fraction(part.strip()) for part in parts]
    if len(values) == 1:
        return values[0]
    return values[0] / values[1] if values[1] else None


def _formula(answer: str, entry: Entry) -> str | None:
    if not _ARITHMETIC.fullmatch(answer):
        return "only whole numbers, + - * / and parentheses make a formula here"
    return None


def _puzzle24(answer: str, entry: Entry) -> str | None:
    # The library looks at the value alone.
    used = sorted(int(digits) for digits in re.findall(r"\d+", answer))
    if used != sorted(entry["metadata"]["numbers"]):
        return _formula(answer, entry) or "the formula does not use each given number once"
    return _formula(answer, entry)


def _probability(answer: str, entry: Entry) -> str | None:
    # The library gives full credit to a number whose digits are the first ones of the right number.
    found, expected = _number(answer), _number(str(entry["answer"]))
    if found is None:
        return "one number or fraction is expected"
    if expected is not None and abs(found - expected) > min(Fraction(1, 10_000), abs(expected) / 20):
        return f"expected {entry['answer']}"
    return None


def _sorted_numbers(answer: str, entry: Entry) -> str | None:
    # The library takes each number that lies within 1 of the right one.
    expected = _list_of_numbers(str(entry["answer"]))
    found = _list_of_numbers(answer)
    if found is None:
        return "a list of plain numbers is expected"
    return None if found == expected else f"expected {entry['answer']}"


def _list_of_numbers(text: str) -> Sequence[Fraction | None] | None:
    try:
        listed = json.loads(text.replace("'", '"'))
    except (ValueError, RecursionError):
        return None
    if not isinstance(listed, list) or not all(type(item) in (str, int, float) for item in listed):
        return None
    numbers = [_number(str(item)) for item in listed]
    return None if None in numbers else numbers


def _roots(answer: str, entry: Entry) -> str | None:
    # The library passes over what is no number, so that any words are right where there is no root.
    if not str(entry["answer"]):
        return None if answer in _EMPTY else 'the equation has no root: an empty string, "", is expected'
    if any(_number(part) is None for part in answer.split(",")):
        return "plain numbers with commas between them are expected"
    return None


def _one_number(answer: str, entry: Entry) -> str | None:
    # The library reads the first number, without its sign.
    found = {_number(digits) for digits in _SIGNED.findall(answer)}
    return None if found == {_number(str(entry["answer"]))} else f"expected {entry['answer']} and no other number"


def _decimal(answer: str, entry: Entry) -> str | None:
    # The library accepts three decimals, though twelve digits are asked for. It rounds each step to twelve, which can
    # put its own answer off by 1e-10 and more.
    found, expected = _number(answer), _number(str(entry["answer"]))
    if found is None or expected is None or abs(found - expected) > abs(expected) / 10**9:
        return f"expected {entry['answer']}"
    return None


def _same_words(answer: str, entry: Entry) -> str | None:
    # The library adds up credit for each right word or letter, and passes over what follows.
    expected = str(entry["answer"])
    return None if _words(answer) == _words(expected) else f"expected {expected}"


def _words(text: str) -> list[str]:
    return text.casefold().replace(",", " ").split()


def _one_fraction(answer: str, entry: Entry) -> str | None:
    # The library reads a LaTeX fraction and passes over what follows.
    if len(re.findall(r"\d+", answer)) != 2 or not set(_WORDS.findall(answer)) <= _FRACTION_WORDS:
        return "one fraction and nothing else is expected"
    return None


def _one_point(answer: str, entry: Entry) -> str | None:
    # The library reads the first two numbers between commas.
    if answer.count(",") != str(entry["answer"]).count(","):
        return f"expected {entry['answer']} and nothing else"
    return None


_GUARDS: Mapping[str, Callable[[str, Entry], str | None]] = {
    "advanced_geometry": _one_point,
    "coin_flip": _probability,
    "countdown": _formula,
    "decimal_arithmetic": _decimal,
    "fraction_simplification": _one_fraction,
    "gsm_symbolic": _one_number,
    "letter_jumble": _same_words,
    "number_sorting": _sorted_numbers,
    "polynomial_equations": _roots,
    "puzzle24": _puzzle24,
    "spell_backward": _same_words,
    "word_sorting": _same_words,
}
GUARDED = frozenset(_GUARDS)
"""Data sets whose scorer is known to be lenient."""
