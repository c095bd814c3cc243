"""Multiple choice: one letter is taken from the text, in a documented order.

The statement that is read is the first of these that is there:

1. the last `\\boxed{...}`;
2. what follows the last "answer is", "answer:", "choice is", "option is" ... that does not deny something;
3. the only line of the text, or its last line, or its first, if that is a letter alone, a letter with the choice's
   text, or the text of exactly one choice.

A statement names a letter by itself, as `(C)`, `**C**`, `C.` or `C) text`, or by the text of one choice. One that names
several letters ("A or B"), a letter with the text of another choice, or a letter that is no choice, is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cospec.scoring.final_text import boxed, final_text, lines_of
from cospec.scoring.verdict import Verdict

LETTERS = "ABCDEFGHIJ"
_MAX_CHARS = 1000

_MARKER = re.compile(
    r"\b(?:answers?|choice|option)\b[*_ \t]{0,4}(?:\([^()\n]{1,20}\)[ \t]{0,2})?"
    r"(?:(?:is|was|would be|must be|should be|has to be)\b[*_ \t]{0,4}[:=]?|[:=])",
    re.IGNORECASE,
)
_DENIED = re.compile(r"[*_ \t]*(?:not|neither|n't|no longer|never)\b", re.IGNORECASE)
_NAMED = re.compile(
    r"""[\s*_`"'“”‘’$\\:(\[{<]*(?:(?:definitely|clearly|probably|most\ likely|likely|therefore|thus|simply|still)\s+)?
        (?:(?:option|choice|letter|answer)\s+)?(?P<open>[*_(\[{"'$]*)
        (?P<letter>[A-Ja-j])(?P<close>[*_)\]}"'$.:]*)(?![\w'’])""",
    re.VERBOSE | re.IGNORECASE,
)
_ALONE = re.compile(r"[\s*_`\"'“”‘’$(\[{]*([A-Ja-j])[\s*_`\"'“”‘’$)\]}.:,;!]*")
_IS_RIGHT = re.compile(
    r"\s+(?:is|would be|must be)\s+(?:the\s+)?(?:most\s+)?(?:correct|right|best|answer)"
    r"(?:\s+(?:one|answer|choice|option))?[\s.!*]*"
)
_OTHER = re.compile(
    r"(?:\s*(?:,|/|;|&|\||\+|\bor\b|\band\b|\bbut\s+(?:also|maybe|possibly)\b))+"
    r"(?:\s+(?:maybe|possibly|perhaps|even|also|option|choice|either|the)){0,3}"
    r"\s*[*_(\[\"']*(?P<letter>[A-J])(?![\w'’])"
)
_EITHER = re.compile(r"[\s*_]*(?:either|both|one of|any of|all of)\b", re.IGNORECASE)
_TAIL = re.compile(
    r"\s*(?:$|[.,;:!?)\]}*_\-–—(\n]|(?:because|since|as|is|was|for|due|which|with|given)\b)", re.IGNORECASE
)


def score_choice(text: str, row: Mapping[str, Any]) -> Verdict:
    """Right where the text's final statement names the letter ``row["gold"]``.

    ``row["choices"]``, the texts of the choices in order, lets an answer be given as text and limits the letters;
    without it the letters are A to J.
    """
    choices = row.get("choices") or []
    if not isinstance(choices, list | tuple) or len(choices) > len(LETTERS):
        return Verdict("error", reason=f"row {row.get('id')!r}: 'choices' is no list of at most {len(LETTERS)} texts")
    gold = str(row.get("gold") or "").strip().upper()
    letters = LETTERS[: len(choices)] if choices else LETTERS
    if len(gold) != 1 or gold not in letters:
        return Verdict("error", reason=f"row {row.get('id')!r}: gold {row.get('gold')!r} is not one of {letters}")
    statement, named = _named(final_text(text), choices)
    if named is None:
        return Verdict("no_answer", reason="no statement of one choice in the text")
    if len(named) > 1:
        return Verdict("wrong", statement, f"names several choices: {', '.join(sorted(named))}")
    letter = next(iter(named))
    if letter not in letters:
        return Verdict("wrong", letter, f"{letter} is not one of {letters}")
    return Verdict("right", letter) if letter == gold else Verdict("wrong", letter, f"expected {gold}")


def _named(text: str, choices: Sequence[str]) -> tuple[str, set[str] | None]:
    """The statement that counts, and the letters it names; None where no statement names one."""
    boxes = boxed(text)
    if boxes:
        return boxes[-1], _several_boxes(text, boxes) or _letters_of(boxes[-1], choices)
    marked = _marked(text)
    if marked is not None:
        # The last marker decides: an earlier one was taken back or spoke of something else.
        return marked, _letters_of(marked, choices)
    lines = lines_of(text)
    for line in dict.fromkeys([*lines[-1:], *lines[:1]]):
        named = _letters_of(line, choices, alone=True)
        if named is not None:
            return line, named
    return "", None


def _marked(text: str) -> str | None:
    """What follows the last marker that denies nothing, up to the end of the line; the next line if that is empty."""
    for match in reversed(list(_MARKER.finditer(text))):
        rest = text[match.end() : match.end() + 2000]
        if not _DENIED.match(rest):
            return next(iter(lines_of(rest)), None)
    return None


def _several_boxes(text: str, boxes: Sequence[str]) -> set[str] | None:
    """The letters of boxes that are joined by "or" and the like; a later box otherwise replaces an earlier one."""
    ends = re.search(r"\\boxed\s*\{[^{}]*\}\$?\s*(?:or|and|,|/)\s*\$?\\boxed\s*\{[^{}]*\}[$.\s]*$", text[-400:])
    if ends is None:
        return None
    letters = {box.strip("() .").upper() for box in boxes[-2:]}
    return letters if len(letters) > 1 else None


def _letters_of(statement: str, choices: Sequence[str], *, alone: bool = False) -> set[str] | None:
    """The letters a statement names; ``alone`` where nothing announced it, so that prose must not be misread."""
    by_text = _by_text(statement, choices)
    # A longer statement names nothing, and the patterns below take time that grows with the square of its marks.
    statement = statement[:_MAX_CHARS]
    letter_alone = _ALONE.fullmatch(statement)
    if letter_alone:
        return {letter_alone[1].upper()}
    if by_text is not None:
        return by_text
    either = _EITHER.match(statement)
    found = _NAMED.match(statement, either.end() if either else 0)
    if found is None:
        return None
    letter, rest = found["letter"], statement[found.end() :]
    marked = any(mark in found["open"] + found["close"] for mark in "([{*_)]}.:")
    if letter.islower() and not marked:
        return None
    others = _others(rest)
    if others:
        return {letter.upper(), *others}
    return None if either else _single(letter.upper(), rest, choices, marked, alone)


def _single(letter: str, rest: str, choices: Sequence[str], marked: bool, alone: bool) -> set[str] | None:
    named = _by_text(rest, choices) or _by_text(rest.lstrip(" -–—"), choices)
    if named is not None:
        # "B) Paris" where Paris is C: two choices at once.
        return {letter, *named}
    if _IS_RIGHT.fullmatch(rest):
        return {letter}
    if alone:
        return None
    # "A dog" and "I think" are no letters; "A, since ..." and "(A) a dog" are.
    return {letter} if marked or _TAIL.match(rest) else None


def _others(rest: str) -> set[str]:
    letters: set[str] = set()
    position = 0
    while found := _OTHER.match(rest, position):
        letters.add(found["letter"])
        position = found.end()
    return letters


def _by_text(statement: str, choices: Sequence[str]) -> set[str] | None:
    key = _text_key(statement)
    named = {LETTERS[i] for i, choice in enumerate(choices) if key and _text_key(str(choice)) == key}
    return named if len(named) == 1 else None


def _text_key(text: str) -> str:
    # Signs and units stay: -5 and 5, 3 m and 3 s are different choices.
    return " ".join(text.casefold().split()).strip(" *_`\"'“”‘’$").rstrip(".").strip(" *_`\"'“”‘’$")
