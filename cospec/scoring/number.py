"""Numeric answers (GSM8K, SVAMP, MGSM): the final number of a text against a gold number, compared exactly.

The final answer is, in this order: what the last ``####`` announces; what the last statement ("A: N", "the answer is
N", in the languages of MGSM too) or the last ``\\boxed{}`` says, whichever stands later; the last number of the text.
Text behind the beginning of a next problem is not read, and only what follows a reasoning section (``</think>``) is,
if there is one.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from cospec.scoring.amounts import LANGUAGES, Amount, amounts, plain
from cospec.scoring.final_answer import MAX_NEIGHBOURS, STATED, after_reasoning, joined, own_part
from cospec.scoring.spans import boxes, without_open_boxes
from cospec.scoring.verdict import Verdict

_CLAUSE_LENGTH = 400
#: In front of a number with its sign and currency, which are not part of the mark; "#### Step 1" is a heading.
_HASHES = re.compile(
    r"####(?=(?P<lead>[^\w\n]{0,6}(?:[a-zA-Z][ ]?=[^\w\n]{0,4})?(?:\\boxed\{)?[^\w\n]{0,4}(?:(?:US|R)(?=[$€£¥₹])|Rs\b)?"
    r"[^\w\n]{0,4})\d)",
    re.IGNORECASE,
)
_STATEMENT = re.compile(
    r"(?:^|\n)[ \t*_]*A[*_]*:"
    rf"|{STATED}"
    r"|\bAntwort\b[^.\n:]{0,30}?(?::|\b(?:ist|lautet|beträgt)\b)"
    r"|\brespuesta\b[^.\n:]{0,30}?(?::|\bes\b)"
    r"|\bréponse\b[^.\n:]{0,30}?(?::|\best\b)"
    r"|\bответ\b\s*(?::|—|–|-(?=\s)|это|равен)?"
    r"|\bjibu\b[^.\n:]{0,30}?(?::|\bni\b)"
    r"|答案\s*(?::|是|为|為)|答え\s*(?::|は)|คำตอบ\s*(?::|คือ)?|উত্তর\s*(?::|হল|হলো|হচ্ছে)?|సమాధానం\s*:?",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(
    r"\.(?=\s|$)|[!?](?=\s|$)|\n|[।。]|\s\((?=[a-z]{2})|,?\s(?:because|since|which|where|so|when|for|if|as)\s",
    re.IGNORECASE,
)
_SKIPPED = re.compile(r"[\s*_:]*")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
#: A number that goes on as a sum, product, power or range is no answer by itself.
_GOES_ON = re.compile(
    r"\s*[+×÷^*/]\s*[\d(]|\+\s*[A-Za-z]|\s?[-–]\s?[\d(]|\\sqrt|(?<=\d)[a-zA-Z](?![a-zA-Z])(?=\s*[-+*/^])"
)
_BEGINS_EARLIER = re.compile(r"[\d)]\s?[-–+×÷^*/]\s?$")
_OR = re.compile(r"[^.!?\n]{0,30}?(?:\b(?:oder|ou|или|au)\b|或|または|หรือ|অথবা|లేదా)[^.!?\n]{0,30}")


def score_number(text: str, row: Mapping[str, Any]) -> Verdict:
    """Right when the final number of ``text`` is exactly ``row["gold"]``; ``row["lang"]`` names the text's language.

    A per cent sign, a scale word and a decimal comma may give a number two readings (`cospec.scoring.amounts`). Several
    different numbers side by side are wrong. A gold answer that is no number, or an unknown language, is an "error".
    """
    lang = row.get("lang") or "en"
    if lang not in LANGUAGES:
        return Verdict("error", reason=f"unknown language {lang!r}: use one of {', '.join(sorted(LANGUAGES))}")
    gold = read_gold(row.get("gold"))
    if gold is None:
        return Verdict("error", reason=f"the gold answer {row.get('gold')!r} is not a number")
    readable = without_open_boxes(own_part(plain(after_reasoning(text)), _announces))
    answers = _final(readable, lang)
    if not answers:
        return Verdict("no_answer", reason="no number found in the text")
    extracted = readable[answers[0].start : answers[-1].end].strip()
    before = readable[max(answers[0].start - 4, 0) : answers[0].start]
    if _GOES_ON.match(readable, answers[-1].end) or _BEGINS_EARLIER.search(before):
        return Verdict("wrong", extracted, f"expected {gold}: the number is part of an expression")
    if all(gold in answer.values for answer in answers):
        return Verdict("right", extracted)
    return Verdict("wrong", extracted, f"expected {row.get('gold')!r}" + ": several numbers" * (len(answers) > 1))


def read_gold(gold: object) -> Fraction | None:
    """The value of a gold answer, a number or one written the English way (``1,234.5``, ``1/2``); else None."""
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        return None
    text = plain(str(gold)).strip()
    found = amounts(text)
    return found[0].values[0] if len(found) == 1 and (found[0].start, found[0].end) == (0, len(text)) else None


def check_gold(gold: object) -> None:
    """Raise ValueError for a gold answer that is no number; for use at data load."""
    if read_gold(gold) is None:
        raise ValueError(f"the gold answer {gold!r} is not a number: drop the row, or write it as 1,234.5 or 1/2")


def _final(text: str, lang: str) -> Sequence[Amount]:
    everything = amounts(text, lang)
    for start, stop in _announced(text):
        inside = [index for index, amount in enumerate(everything) if start <= amount.start and amount.end <= stop]
        if inside:
            equals = text.rfind("=", start, everything[inside[-1]].start)
            chosen = next(index for index in inside if everything[index].start > equals)
            return _neighbours(text, everything, chosen, _side_by_side)
    return _neighbours(text, everything, len(everything) - 1, _alternative) if everything else ()


def _announces(text: str) -> bool:
    return any(pattern.search(text) for pattern in (_HASHES, _STATEMENT, _BOX))


def _announced(text: str) -> list[tuple[int, int]]:
    """Where final answers stand, the most trusted first."""
    hashes = [(found.end(), _clause_end(text, found.end("lead"))) for found in _HASHES.finditer(text)]
    statements = [_SKIPPED.match(text, found.end()).end() for found in _STATEMENT.finditer(text)]  # type: ignore[union-attr]
    boxed = [(span.start, span.end) for span in boxes(text)]
    spoken = [(start, _clause_end(text, start)) for start in statements[-1:]]
    return hashes[-1:] + sorted([*spoken, *boxed[-1:]], reverse=True)


def _clause_end(text: str, start: int) -> int:
    found = _CLAUSE_END.search(text, start, start + _CLAUSE_LENGTH)
    return found.start() if found else min(len(text), start + _CLAUSE_LENGTH)


def _neighbours(
    text: str, everything: Sequence[Amount], chosen: int, linked: Callable[[str], bool]
) -> Sequence[Amount]:
    """The chosen number and those that are linked to it on either side."""
    first = last = chosen
    while (
        first > chosen - MAX_NEIGHBOURS and first and linked(text[everything[first - 1].end : everything[first].start])
    ):
        first -= 1
    while (
        last < chosen + MAX_NEIGHBOURS
        and last + 1 < len(everything)
        and linked(text[everything[last].end : everything[last + 1].start])
    ):
        last += 1
    return everything[first : last + 1]


def _side_by_side(gap: str) -> bool:
    return joined(_BOX.sub(" ", gap)) or _OR.fullmatch(gap) is not None


def _alternative(gap: str) -> bool:
    # Without an announcement a comma or "and" may join anything: "In 2020, 18 people".
    return _OR.fullmatch(gap) is not None or (re.search(r"(?i)\bor\b", gap) is not None and _side_by_side(gap))
