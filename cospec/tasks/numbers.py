"""Gold numbers of the grade-school tasks, and examples written for those without a training split."""

from __future__ import annotations

import re

from cospec.tasks.base import Problem, UnusableRow

_NUMBER = re.compile(r"[-−]?\$?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?")

ASK = (
    "{question}\n\nSolve the problem step by step. Put the final number alone on the last line, after the marker ####."
)


def plain_number(text: str) -> str:
    """A gold number in plain digits: the English thousands commas of the data would mean decimals elsewhere.

    UnusableRow where the text is no number.
    """
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        raise UnusableRow(f"gold {text.strip()[:40]!r} is not a number")
    digits = found.group().replace(",", "").replace("$", "").replace("−", "-")
    whole, _, decimals = digits.partition(".")
    return f"{whole}.{decimals.rstrip('0')}".rstrip(".") if decimals else whole


def _example(name: str, question: str, steps: str, gold: str) -> Problem:
    return Problem(f"example/{name}", question, gold, f"{steps}\n#### {gold}")


EXAMPLES = (
    _example(
        "ferry",
        "A ferry carries 46 passengers on each crossing and makes 5 crossings before lunch and 3 after it, always "
        "full. How many passengers does it carry that day?",
        "The ferry makes 5 + 3 = 8 crossings.\nEach carries 46 passengers, so it carries 8 * 46 = 368 passengers.",
        "368",
    ),
    _example(
        "tiles",
        "Mira needs 120 tiles for a floor. Tiles come in boxes of 16, and she already has 40 tiles. How many boxes "
        "must she buy?",
        "She still needs 120 - 40 = 80 tiles.\nThat is 80 / 16 = 5 boxes.",
        "5",
    ),
    _example(
        "tickets",
        "A cinema sells adult tickets for $9 and child tickets for $5. A family buys 2 adult and 3 child tickets and "
        "pays with $50. How many dollars do they get back?",
        "The adult tickets cost 2 * 9 = 18 dollars.\nThe child tickets cost 3 * 5 = 15 dollars.\n"
        "Together that is 18 + 15 = 33 dollars.\nThey get 50 - 33 = 17 dollars back.",
        "17",
    ),
    _example(
        "orchard",
        "An orchard has 14 rows of 12 trees. A storm fells a quarter of the trees. How many trees are left?",
        "There were 14 * 12 = 168 trees.\nThe storm felled 168 / 4 = 42 of them.\nThere are 168 - 42 = 126 trees left.",
        "126",
    ),
    _example(
        "runner",
        "Tomas runs 6 kilometres on Monday, half as far again on Tuesday, and twice Monday's distance on Wednesday. "
        "How many kilometres does he run in the three days?",
        "On Tuesday he runs 6 + 6 / 2 = 9 kilometres.\nOn Wednesday he runs 2 * 6 = 12 kilometres.\n"
        "In the three days he runs 6 + 9 + 12 = 27 kilometres.",
        "27",
    ),
)
"""Worked problems of our own, in the form that `ASK` asks for."""
