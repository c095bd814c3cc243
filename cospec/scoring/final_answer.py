r"""The one final answer of a text, chosen by a fixed order; several answers side by side stay several.

1. The last balanced ``\boxed{}`` or ``\fbox{}``.
2. The last explicit statement: ``#### x``, ``Answer: x``, ``the (final) answer is x``.
3. The whole text, if it is one short line without prose.
4. The last formula or bare number.

Only what follows a reasoning section (``</think>``) is read, if there is one, and nothing behind the beginning of a
next problem. Neighbours joined by "or", "and" or a comma are one answer of several parts: to name three numbers must
not count as naming the right one.
"""

import re
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol, TypeVar

from cospec.scoring.spans import Span, all_spans, boxes, expressions, formulas, has_prose, without_open_boxes

#: Characters read from the end of a text; a longer one is a generation that never stopped.
WINDOW = 100_000
#: Answers side by side that are looked at on each side of one; more are a hedge anyway.
MAX_NEIGHBOURS = 32
_STATEMENT_LENGTH = 600
_MAX_STATEMENTS, _MAX_PROBLEMS = 20, 5
_BARE_LENGTH, _BARE_WORDS = 300, 4

#: An English announcement of an answer; "to answer this" announces none.
STATED = (
    r"(?<![a-z])answers?[*_ \t]*(?:[:=]|\n)[*_ \t:]*"
    r"|(?:^|\n|(?<![a-z])(?:the|final|correct|our|my|required|desired))[*_ \t]+answers?(?![a-z])"
    r"(?:[ \t]+(?:to|for|of)[ \t][^.\n:=$]{0,60}?)?"
    r"[*_ \t]*(?:\b(?:is|are|was|(?:would|should|will|must)[ \t]be)\b(?![ \t]+not\b))[*_ \t]*:?[*_ \t]*"
)
_REMARK = re.compile(
    r"\s*(?:(?:obtained|found|reached|derived|calculated|computed|given|expressed)(?!\s+(?:to|as|by\s*[:$\d])(?![a-z]))"
    r"|verified|confirmed|checked|correct|right|reasonable|consistent|sensible|plausible|supported"
    r"|known|well[- ]known)(?=[.,;!]|\W*(?:\n|$)"
    r"|[ \t]+(?:because|since|as|by|on|from|and|in|with|for|to|using|that)\b)"
    r"|\s*(?:based|in (?:agreement|line)|from(?!\s+\W?\d))\b",
    re.IGNORECASE,
)
_STATEMENT = re.compile(rf"####[ \t]*(?![a-z]{{3}})|{STATED}", re.IGNORECASE)
_FILLERS = re.compile(
    r"(?:as follows|the following|given by|equal to|therefore|thus|simply|just|indeed|clearly|that|about|approximately)"
    r"(?![a-z])[\s:,]*",
    re.IGNORECASE,
)
_TIGHT = re.compile(
    r"\s*(?P<link>,?\s*(?:or|and|,|;|&|/|\||\\(?:vee|lor|wedge|land))(?![a-z]))?\s*(?:[a-z]\w?\s*=\s*)?", re.IGNORECASE
)
_LOOSE = re.compile(
    r"[^.!?\n]{0,40}?(?:\.\s+)?(?<![a-z])(?:or|alternatively|oder|maybe|perhaps|possibly)(?![a-z]|\s+(?:more|less|fewer|greater|smaller|equal|about|approximately|roughly)\b)[^.!?\n]{0,30}",
    re.IGNORECASE,
)
_INVISIBLE = re.compile(r"\\[()\[\],;!: ]|\\q?quad(?![a-z])|[$*~]|\\text\s*\{|\}")
_CLAUSE_END = re.compile(
    r"\.(?=\s|$)(?!\s+or\s)|(?<!\\)[!?](?=\s|$)|\n(?!\s*or\s)"
    r"|\s\((?=[a-z]{2})(?!(?:or|oder|alternatively|maybe|perhaps|possibly)\s)|,?\s(?:because|since|which|where|so|when|for|if|as)\s|,\s(?:the|we|it)\s",
    re.IGNORECASE,
)
#: In front of a formula with a comma behind it: a condition of the next one. Two of "if" tell cases apart.
_CONDITION = re.compile(
    r"(?:^|[.!?;,\n]\s*)(?:(?P<reason>since|because|as|given)|if|when|for)(?:\s+that)?\s+$", re.IGNORECASE
)
_CONDITION_LENGTH = 25
#: What a tokenizer writes at the end of a turn, where special tokens were not left out.
_END_TOKEN = re.compile(r"(?:<[|｜][^<>\s]{1,40}[|｜]>|</s>|<eos>|<end_of_turn>)\Z")
_END_TOKEN_LENGTH = 50
_NEXT_PROBLEM = re.compile(
    r"\n[ \t*_#]*"
    r"(?:Q|Question|Problem|Exercise|Frage|Pregunta|Задача|Вопрос|Swali|问题|問題|โจทย์|প্রশ্ন|ప్రశ్న)"
    r"[ \t]*\d*[ \t]*[:.：]"
)


def final_answer(text: str) -> tuple[str, ...]:
    """The final answer's parts, one unless several stand side by side; empty if there is no answer."""
    text = own_part(after_reasoning(text), lambda part: bool(_boxed(part) or _stated(part)))
    found = _boxed(text)
    if found:
        return found
    text = without_open_boxes(text)
    return _stated(text) or _bare(text) or _last(text)


def without_end_tokens(text: str) -> str:
    """``text`` without the end-of-turn tokens it ends with: ``<|im_end|>``, ``</s>`` and the like."""
    return text[: end_before(text, _END_TOKEN)].rstrip()


def end_before(text: str, token: re.Pattern[str]) -> int:
    """Where ``text`` ends in front of the run of tokens at its end, with blanks between and behind them.

    ``token`` ends with a backslash Z, and is at most 50 characters long. Without a token all blanks stay.
    """
    end = position = len(text)
    while position:
        if text[position - 1].isspace():
            position -= 1
        elif found := token.search(text, max(position - _END_TOKEN_LENGTH, 0), position):
            end = position = found.start()
        else:
            break
    return end


def after_reasoning(text: str) -> str:
    """The last `WINDOW` characters of what follows the last ``</think>``, or of the whole text if nothing does.

    End-of-turn tokens are no part of it.
    """
    text = without_end_tokens(text)
    answer = text.rpartition("</think>")[2]
    return (answer if answer.strip() else text)[-WINDOW:]


def is_remark(text: str, marker: re.Match[str]) -> bool:
    """Whether "the answer is" and the like says something about an answer given before: "... is correct"."""
    return marker[0].strip(" \t\n*_")[-1:] not in (":", "=") and _REMARK.match(text, marker.end()) is not None


def own_part(text: str, answers: Callable[[str], bool], begins: re.Pattern[str] = _NEXT_PROBLEM) -> str:
    """``text`` up to the first beginning of a problem in front of which it ``answers`` one.

    A model that was shown examples goes on with problems of its own when nothing stops it; another one repeats the
    question before it answers. ``begins`` finds the beginnings.
    """
    for found in islice(begins.finditer(text), _MAX_PROBLEMS):
        if answers(text[: found.start()]):
            return text[: found.start()]
    return text


def joined(gap: str) -> bool:
    """Whether the text between two answers makes them one answer of two parts."""
    visible = _INVISIBLE.sub(" ", gap)
    tight = _TIGHT.fullmatch(visible)
    if tight and (tight["link"] or "\n" not in gap):
        return True
    return _LOOSE.fullmatch(visible) is not None


class Place(Protocol):
    """A piece of a text."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


PlaceT = TypeVar("PlaceT", bound=Place)


def neighbours(
    text: str, places: Sequence[PlaceT], chosen: int, linked: Callable[[str], bool] = joined
) -> Sequence[PlaceT]:
    """The place at ``chosen`` and all that are ``linked`` to it by the text between them, on both sides."""

    def are_linked(left: int) -> bool:
        return linked(text[places[left].end : places[left + 1].start])

    first = last = chosen
    while first > max(chosen - MAX_NEIGHBOURS, 0) and are_linked(first - 1):
        first -= 1
    while last < min(chosen + MAX_NEIGHBOURS, len(places) - 1) and are_linked(last):
        last += 1
    return places[first : last + 1]


def contents(spans: Sequence[Span]) -> tuple[str, ...]:
    """The different contents of the spans."""
    return tuple(dict.fromkeys(span.content.strip() for span in spans))


def _run(text: str, spans: Sequence[Span], index: int) -> tuple[str, ...]:
    """The contents of the span at ``index`` and of all that are joined to it, on both sides."""
    return contents(neighbours(text, spans, index))


def _boxed(text: str) -> tuple[str, ...]:
    found = boxes(text)
    return _run(text, found, len(found) - 1) if found else ()


def _stated(text: str) -> tuple[str, ...]:
    """What the last statement says that says something."""
    ends = [found.end() for found in _STATEMENT.finditer(text) if not is_remark(text, found)]
    return next(filter(None, (_said(text, end) for end in reversed(ends[-_MAX_STATEMENTS:]))), ())


def _said(text: str, start: int) -> tuple[str, ...]:
    rest = text[start : start + _STATEMENT_LENGTH].lstrip(" \t\n*_:")
    while filler := _FILLERS.match(rest):
        rest = rest[filler.end() :]
    spans = list(formulas(rest))
    clause = rest[: _clause_end(rest, spans)]
    spans = [span for span in spans if span.start < len(clause)]
    if spans:
        everything = all_spans(clause)
        return _run(clause, everything, everything.index(spans[0]))
    clause = clause.strip(" \t*_").rstrip(".,:;*_ ")
    bare = list(expressions(clause))
    if bare and has_prose(clause) and not _only_units(clause, bare):
        return _run(clause, bare, 0)
    return (clause,) if bare or (clause and len(clause.split()) <= _BARE_WORDS) else ()


def _clause_end(rest: str, spans: Sequence[Span]) -> int:
    for found in _CLAUSE_END.finditer(rest):
        if found.start() and not any(span.start <= found.start() < span.end for span in spans):
            return found.start()
    return len(rest)


def _only_units(clause: str, bare: Sequence[Span]) -> bool:
    """Whether the words of a clause follow one number, as units do."""
    return len(bare) == 1 and bare[0].start == 0


def _bare(text: str) -> tuple[str, ...]:
    text = text.strip()
    if not text or "\n" in text or len(text) > _BARE_LENGTH:
        return ()
    if not has_prose(text):
        return (text,) if re.search(r"\w", text) else ()
    is_short = len(text.split()) <= _BARE_WORDS
    return (text,) if is_short and not re.search(r"\d|\$", text) else ()


def _last(text: str) -> tuple[str, ...]:
    spans = all_spans(text)
    if not spans:
        return ()
    conditions = [*(_condition(text, span) for span in spans[:-1]), None]
    are_cases = sum(found is not None and not found["reason"] for found in conditions) > 1
    spans = [
        span
        for span, found in zip(spans, conditions, strict=True)
        if found is None or (are_cases and not found["reason"])
    ]
    return _run(text, spans, len(spans) - 1)


def _condition(text: str, span: Span) -> re.Match[str] | None:
    """What makes a formula the condition of what follows: "Since $x > 0$, "."""
    if not text[span.end : span.end + 5].lstrip().startswith(","):
        return None
    return _CONDITION.search(text, max(span.start - _CONDITION_LENGTH, 0), span.start)
