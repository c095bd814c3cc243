"""Multiple choice: one letter is taken from the text, in a documented order.

The statement that is read is the first of these that is there:

1. the last `\\boxed{...}`;
2. what follows the last "answer is", "answer:", "choice is", "option is", "答案：", `<answer>` ... that names a letter
   and denies nothing: a later sentence about the answer ("the answer is based on ...") takes nothing back;
3. the only line of the text, or its last line, or its first, if that is a letter alone, a letter with the choice's
   text, or the text of exactly one choice.

A statement names a letter by itself, as `(C)`, `**C**`, `C.` or `C) text`, as `text (option C)` or `Thus, option C is
correct`, or by the text of one choice. One that names several letters ("A or B", "A. No, B."), a letter with the text
of another choice, or a letter that is no choice, is wrong; one that takes its letter back ("A is wrong") names none.
Letters count as named where they stand as answers, not as the subject of a sentence or in a sentence about what is
wrong.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from cospec.scoring.final_text import final_text, last_boxes, lines_of, without_text_commands
from cospec.scoring.verdict import Verdict

LETTERS = "ABCDEFGHIJ"
_MAX_CHARS = 1000
_MAX_MARKERS = 20

_MARKER = re.compile(
    r"<answer>|答案\s*(?:是|为|為|:)|\b(?:answers?|choice|option)\b[*_ \t]{0,4}(?:\([^()\n]{1,20}\)[ \t]{0,2})?"
    r"(?:(?:is|was|would be|must be|should be|has to be)\b[*_ \t]{0,4}[:=]?|[:=]|[-–—](?=\s))",
    re.IGNORECASE,
)
_DENIED = re.compile(r"[*_ \t]*(?:not|neither|n't|no longer|never)\b", re.IGNORECASE)
_NAMED = re.compile(
    r"""[\s*_`"'“”‘’$\\:(\[{<]*(?:(?:definitely|clearly|probably|most\ likely|likely|therefore|thus|simply|still)\s+)?
        (?:(?:option|choice|letter|answer)\s+)?(?P<open>[*_(\[{"'$]*)
        (?P<letter>[A-Ja-j])(?P<close>[*_)\]}"'$.:]*)(?![\w'’])""",
    re.VERBOSE | re.IGNORECASE,
)
_ALONE = re.compile(r"[\s*_`\"'“”‘’$(\[{]*([A-Ja-j])[\s*_`\"'“”‘’$)\]}.:,;!。]*")
_IS_RIGHT = re.compile(
    r"\s+(?:is|would be|must be)\s+(?:the\s+)?(?:most\s+)?(?:correct|right|best|answer)"
    r"(?:\s+(?:one|answer|choice|option))?[\s.!*]*"
)
#: "24 m/s (option B)", and "London (B)" where B is London.
_IN_BRACKETS = re.compile(
    r"(?P<text>[^()]{1,100}?)\s*,?\s*\((?P<word>(?:option|choice|answer)\s+)?(?P<letter>[A-J])\)[\s.!*_]*",
    re.IGNORECASE,
)
_LEAD = re.compile(r"[\s*_]*(?:therefore|thus|so|hence|consequently|finally|in conclusion)\b[\s,:]*", re.IGNORECASE)
#: A letter that stands as an answer: a lower-case word behind it makes it the subject of a sentence.
_LETTER = re.compile(
    r"(?<![\w'’])(?:([A-J])(?![\w'’])|[(\[]([a-j])[)\]])"
    r"(?![)\]]?(?:\s\([^()]*\))?\s+(?!or\b|and\b|as well|maybe|too\b|versus|vs\b"
    r"|is (?:also|equally|possible|another)|could|might|may\b)[a-z])"
)
#: What follows speaks of the other choices.
_REASON = re.compile(r"\b(?:because|since|whereas|while|unlike|due to|not|rather than|instead of)\b|,\s*(?:as|for)\b")
_OF_OTHERS = re.compile(
    r"\b(?:not|wrong|incorrect|false|eliminat\w+|ruled out|neither|nor|others?|unlike)\b|n['’]t\b", re.IGNORECASE
)
_RETRACTED = re.compile(
    r"[\s*_]*(?:is|was|seems|looks|would be)\s+(?:\w+ly\s+)?"
    r"(?:not|wrong|incorrect|false|impossible|eliminated|ruled out)\b|[\s*_]*(?:is|was|ca)n['’]t\b",
    re.IGNORECASE,
)
#: Of a line that nothing announces: prose whose first word is a letter, "I choose C".
_PROSE = re.compile(r"(?<![a-z])(?!maybe|perhaps|possibly)[a-z]{4}")
_JOINS = re.compile(r"[\s,;/&|]*(?:\b(?:or|and)\b)?[\s*_]*", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_EITHER = re.compile(r"[\s*_]*(?:either|both|one of|any of|all of)\b", re.IGNORECASE)
_TAIL = re.compile(
    r"\s*(?:$|[.,;:!?)\]}*_\-–—(\n]|(?:because|since|as|is|was|for|due|which|with|given|not|rather|instead)\b)",
    re.IGNORECASE,
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
    plain = without_text_commands(unicodedata.normalize("NFKC", text)).replace("</answer>", "\n")
    statement, named = _named(final_text(plain, lambda part: _named(part, choices)[1] is not None), choices)
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
    boxes = last_boxes(text)
    if boxes:
        letters = [_letters_of(box, choices) for box in boxes]
        return boxes[-1], set().union(*filter(None, letters)) if letters[-1] else None
    marked = _marked(text, choices)
    if marked is not None:
        return marked
    lines = lines_of(text)
    for line in dict.fromkeys([*lines[-1:], *lines[:1]]):
        lead = _LEAD.match(line)
        named = _letters_of(line[lead.end() :] if lead else line, choices, alone=True)
        if named is not None:
            return line, named
    return "", None


def _marked(text: str, choices: Sequence[str]) -> tuple[str, set[str]] | None:
    """The last marked statement that names letters, from the marker to the end of its line, or the line below it."""
    for match in list(_MARKER.finditer(text))[: -_MAX_MARKERS - 1 : -1]:
        rest = text[match.end() : match.end() + 2000]
        statement = next(iter(lines_of(rest)), "")
        named = None if _DENIED.match(rest) else _letters_of(statement, choices) or _in_brackets(statement, choices)
        if named is not None:
            return statement, named
    return None


def _in_brackets(statement: str, choices: Sequence[str]) -> set[str] | None:
    """The letter named in brackets behind an answer in words, and the letter of these words if they have one."""
    found = _IN_BRACKETS.fullmatch(statement)
    if found is None or _OF_OTHERS.search(found["text"]) or _LETTER.search(found["text"]):
        return None
    by_text = _by_text(found["text"], choices)
    # A letter alone may be a unit: "5 (A)".
    return {found["letter"].upper(), *(by_text or ())} if found["word"] or by_text else None


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
    if (letter.islower() and not marked) or _RETRACTED.match(rest):
        return None
    is_prose = alone and not marked and _PROSE.search(rest) is not None
    others = set() if is_prose else _others(letter.upper(), rest, choices)
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


def _others(letter: str, rest: str, choices: Sequence[str]) -> set[str]:
    """Other letters that are named besides ``letter``, and the letter of another choice's text joined to its own."""
    own = str(choices[LETTERS.index(letter)]) if LETTERS.index(letter) < len(choices) else ""
    bare = rest.lstrip(" .:)*_-–—")
    if own and bare.casefold().startswith(own.casefold()):
        rest = bare[len(own) :]
        joins = _JOINS.match(rest)
        other = _by_text(rest[joins.end() :], choices) if joins and joins[0].strip() else None
        if other:
            return other - {letter}
    named: set[str] = set()
    for sentence in _SENTENCE_END.split(rest):
        if not _OF_OTHERS.search(sentence):
            named |= {
                found[1] or found[2].upper() for found in _LETTER.finditer(_REASON.split(sentence, maxsplit=1)[0])
            }
    # A formula of the choice itself may hold letters.
    return named - {letter} - {found[1] for found in _LETTER.finditer(own)}


def _by_text(statement: str, choices: Sequence[str]) -> set[str] | None:
    key = _text_key(statement)
    named = {LETTERS[i] for i, choice in enumerate(choices) if key and _text_key(str(choice)) == key}
    return named if len(named) == 1 else None


def _text_key(text: str) -> str:
    # Signs and units stay: -5 and 5, 3 m and 3 s are different choices.
    text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split()).strip(" *_`\"'“”‘’$").rstrip(".").strip(" *_`\"'“”‘’$")
