"""What the reasoning-gym library's scorers let through and must not: looked at before they are asked.

Some compare with a tolerance that a guess meets, drop a sign, or pass over what they cannot read.
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


_GUARDS: Mapping[str, Callable[[str, Entry], str | None]] = {
    "coin_flip": _probability,
    "countdown": _formula,
    "gsm_symbolic": _one_number,
    "number_sorting": _sorted_numbers,
    "polynomial_equations": _roots,
    "puzzle24": _puzzle24,
}
GUARDED = frozenset(_GUARDS)
"""Data sets whose scorer is known to be lenient."""
