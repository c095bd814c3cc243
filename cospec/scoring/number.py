"""Numeric answers (GSM8K, SVAMP, MGSM): the final number of a text against a gold number, compared exactly.

The final answer is, in this order: what the last ``####`` announces; what the last statement ("A: N", "the answer is
N", in the languages of MGSM too) or the last ``\\boxed{}`` says, whichever stands later; the last number of the text.
Text behind the beginning of a next problem is not read, and only what follows a reasoning section (``</think>``) is,
if there is one.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from cospec.scoring.amounts import LANGUAGES, Amount, amounts, plain
from cospec.scoring.compound import are_one
from cospec.scoring.final_answer import MAX_NEIGHBOURS, STATED, after_reasoning, is_remark, joined, neighbours, own_part
from cospec.scoring.fragments import is_fragment
from cospec.scoring.spans import boxes, without_open_boxes
from cospec.scoring.verdict import Verdict

_CLAUSE_LENGTH = 400
_MAX_STATEMENTS = 20
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
_OR = re.compile(r"[^.!?\n]{0,30}?(?:\b(?:oder|ou|или|au)\b|或|または|หรือ|অথবা|లేదా)[^.!?\n]{0,30}")
#: Between numbers, brackets closed and opened again; "1) 5" is an item of a list.
_NUMBERS_ONLY = re.compile(r"[\s,;|&$(\[{]*|[\s,;|&$]*[)\]}][\s,;|&$]*[(\[{][\s$]*")


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
    readable = without_open_boxes(own_part(plain(after_reasoning(text)), lambda part: _announces(part, lang)))
    answers = _final(readable, lang)
    if not answers:
        return Verdict("no_answer", reason="no number found in the text")
    extracted = readable[answers[0].start : answers[-1].end].strip()
    if is_fragment(readable, answers[0].start, answers[-1].end):
        return Verdict("wrong", extracted, f"expected {gold}: the number is denied, or part of an expression")
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
    for start, inside in _announced(text, everything):
        equals = text.rfind("=", start, everything[inside[-1]].start)
        chosen = next(index for index in inside if everything[index].start > equals)
        return neighbours(text, everything, chosen, _side_by_side)
    if not everything:
        return ()
    return _numbers_only(text, everything) or neighbours(text, everything, len(everything) - 1, _alternative)


def _announces(text: str, lang: str) -> bool:
    return next(_announced(text, amounts(text, lang)), None) is not None


def _announced(text: str, everything: Sequence[Amount]) -> Iterator[tuple[int, list[int]]]:
    """Where an announced answer begins and which numbers are in it, the most trusted first; one without is passed."""
    starts = [amount.start for amount in everything]
    for start, stop in _announcements(text):
        first = bisect_left(starts, start)
        inside = [index for index in range(first, bisect_left(starts, stop)) if everything[index].end <= stop]
        if inside:
            yield start, inside


def _announcements(text: str) -> Iterator[tuple[int, int]]:
    hashes = [(found.end(), found.end("lead")) for found in _HASHES.finditer(text)][-1:]
    said = [found for found in _STATEMENT.finditer(text) if not is_remark(text, found)][-_MAX_STATEMENTS:]
    spoken = [(_SKIPPED.match(text, found.end()).end(),) * 2 for found in said]  # type: ignore[union-attr]
    boxed = [(span.start, span.end) for span in boxes(text)][-1:]
    yield from ((start, _clause_end(text, lead)) for start, lead in hashes)
    for start, end in sorted([*spoken, *boxed], reverse=True):
        yield start, _clause_end(text, start) if start == end else end


def _clause_end(text: str, start: int) -> int:
    found = _CLAUSE_END.search(text, start, start + _CLAUSE_LENGTH)
    return found.start() if found else min(len(text), start + _CLAUSE_LENGTH)


def _numbers_only(text: str, everything: Sequence[Amount]) -> Sequence[Amount]:
    """All numbers of the last line with one, or of the brackets at its end, if nothing else stands between them."""
    start = text.rfind("\n", 0, everything[-1].start) + 1
    line = [amount for amount in everything[-MAX_NEIGHBOURS:] if amount.start >= start]
    opening = max(text.rfind(bracket, start, everything[-1].start) for bracket in "([{")
    for begin in {start, max(opening, start)}:
        inside = [amount for amount in line if amount.start >= begin]
        edges = [begin, *(amount.end for amount in inside)]
        gaps = [text[edge : amount.start] for edge, amount in zip(edges, inside, strict=False)]
        if len(inside) > 1 and all(map(_NUMBERS_ONLY.fullmatch, gaps)):
            return inside
    return ()


def _side_by_side(gap: str) -> bool:
    return joined(_BOX.sub(" ", gap)) or _OR.fullmatch(gap) is not None or are_one(gap)


def _alternative(gap: str) -> bool:
    # Without an announcement a comma or "and" may join anything: "In 2020, 18 people".
    return _OR.fullmatch(gap) is not None or (re.search(r"(?i)\bor\b", gap) is not None and _side_by_side(gap))
