"""Where answers may stand in a text: boxes, formulas between dollars or brackets, bare expressions and numbers."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a text, with its delimiters, and the content between them."""

    start: int
    end: int
    content: str


_BOX_TOKEN = re.compile(r"\\(?:boxed|fbox)\s*\{|\\.|[{}]", re.DOTALL)
_BARE_BOX = re.compile(r"\\(?:boxed|fbox)\s*(-?\d+(?:\.\d+)?|[A-Za-z](?![A-Za-z]))")
_DELIMITER = re.compile(r"\\.|\$\$?", re.DOTALL)
_CLOSING = {"$": "$", "$$": "$$", r"\(": r"\)", r"\[": r"\]"}
_MARKS = frozenset([*_CLOSING, *_CLOSING.values()])
_COMMAND_WITH_TEXT = re.compile(r"\\(?:text\w*|mbox|math\w+|operatorname|begin|end)\s*\{[^{}]*\}|\\[a-zA-Z]+")
_PROSE = re.compile(r"[^\W\d_]{3,}")
_FUNCTIONS = frozenset(
    ("sin", "cos", "tan", "cot", "sec", "csc", "log", "exp", "sqrt", "mod", "and", "gcd", "lcm", "max", "min")
)
_MAX_FORMULA = 2000

# A run of mathematical tokens in plain text; no text is a run in two ways, so matching is linear.
_TOKEN = (
    r"(?:\\[a-zA-Z]+(?:\{[^{}\n]*\})*|\d+(?:,\d{3}(?!\d))*(?:\.\d+)?|\.\d+"
    r"|(?<![^\W_])(?:sqrt|pi|[b-zB-HJ-Z])(?![^\W_])|(?<=\d)[a-zA-Z](?![^\W_])|[-−+*/^=()×÷·<>≤≥%°!{}$€£_√π±²³½¼¾∞])"
)
_EXPRESSION = re.compile(rf"{_TOKEN}(?:[ \t]?{_TOKEN})*")
_TUPLE = re.compile(r"[(\[][^()\[\]\n,]{1,60}(?:,[^()\[\]\n,]{1,60}){1,9}[)\]]")


def boxes(text: str) -> list[Span]:
    r"""All balanced ``\boxed{...}`` and ``\fbox{...}`` that stand in no other, in order; blank ones are left out."""
    found = [*_braced_boxes(text)[0], *(Span(*bare.span(), bare[1]) for bare in _BARE_BOX.finditer(text))]
    return [span for span in _outermost(found) if span.content.strip()]


def without_open_boxes(text: str) -> str:
    r"""``text`` without boxes that say nothing: blank ones, and unclosed ones up to the end of their line.

    What an unclosed box holds may be half a number.
    """
    pieces, position = [], 0
    for start in _braced_boxes(text)[1]:
        if start >= position:
            pieces.append(text[position:start])
            line_end = text.find("\n", start)
            position = line_end if line_end >= 0 else len(text)
    return re.sub(r"\\(?:boxed|fbox)\s*(?:\{\s*\})?(?![{a-zA-Z])", " ", "".join(pieces) + text[position:])


def _braced_boxes(text: str) -> tuple[list[Span], list[int]]:
    """Balanced boxes, and where the unclosed ones begin."""
    found, opened = [], list[tuple[int, int] | None]()
    for token in _BOX_TOKEN.finditer(text):
        if token[0] == "{":
            opened.append(None)
        elif token[0].endswith("{") and len(token[0]) > 2:
            opened.append((token.start(), token.end()))
        elif token[0] == "}" and opened:
            box = opened.pop()
            if box is not None:
                found.append(Span(box[0], token.end(), text[box[1] : token.start()]))
    return found, [box[0] for box in opened if box is not None]


def _outermost(spans: Sequence[Span]) -> list[Span]:
    outer: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not outer or span.start >= outer[-1].end:
            outer.append(span)
    return outer


def has_prose(text: str) -> bool:
    """Whether a text holds words other than function names outside LaTeX commands."""
    words = _PROSE.findall(_COMMAND_WITH_TEXT.sub(" ", text))
    return any(word.lower() not in _FUNCTIONS for word in words)


def formulas(text: str) -> Iterator[Span]:
    r"""All of ``$...$``, ``$$...$$``, ``\(...\)`` and ``\[...\]``; a dollar that is a currency sign opens none."""
    delimiters = [token for token in _DELIMITER.finditer(text) if token[0] in _MARKS]
    positions: dict[str, list[int]] = {}
    for token in delimiters:
        positions.setdefault(token[0], []).append(token.start())
    end = 0
    for token in delimiters:
        closing = _CLOSING.get(token[0])
        if closing is None or token.start() < end:
            continue
        ends = positions.get(closing, [])
        index = bisect_left(ends, token.end())
        if index < len(ends):
            content = text[token.end() : ends[index]]
            if _is_formula(content, token[0]):
                end = ends[index] + len(closing)
                yield Span(token.start(), end, content)


def _is_formula(content: str, opening: str) -> bool:
    if not content.strip() or len(content) > _MAX_FORMULA:
        return False
    if opening != "$":
        return True
    # "$5 and $6", "$5, $6" and "$5-$10" are amounts of money.
    open_ended = content[-1] in "-–/" or (content[-1].isspace() and not content[0].isspace())
    return not open_ended and "\n\n" not in content and not has_prose(content)


def expressions(text: str) -> Iterator[Span]:
    """Bare tuples, and runs of mathematical tokens with a digit or a command in them, outside formulas."""
    masked, end = text, 0
    pieces = []
    for span in formulas(text):
        pieces += [text[end : span.start], "\n" * (span.end - span.start)]
        end = span.end
    masked = "".join(pieces) + text[end:]
    tuples = [Span(*found.span(), found[0]) for found in _TUPLE.finditer(masked) if not has_prose(found[0])]
    tuples = [span for span in tuples if re.search(r"\d", span.content)]
    runs = (_trimmed(found.start(), found[0]) for found in _EXPRESSION.finditer(masked))
    yield from _outermost([*tuples, *(run for run in runs if run is not None)])


def _trimmed(start: int, run: str) -> Span | None:
    """A run without what belongs to the sentence around it; None if nothing but signs is left."""
    content = run.rstrip(" \t=+*/<>-−(_{")
    front = re.match(r"(?:[-−] )?[\s=+*/<>)}_]*(?:[-−] )?", content)
    assert front is not None
    start, content = start + front.end(), content[front.end() :]
    unclosed = content.count("(") - content.count(")")
    leading = min(max(unclosed, 0), len(content) - len(content.lstrip("(")))
    trailing = min(max(-unclosed, 0), len(content) - len(content.rstrip(")")))
    start, content = start + leading, content[leading : len(content) - trailing]
    return Span(start, start + len(content), content) if re.search(r"[\dπ∞½¼¾]|\\[a-zA-Z]", content) else None


def all_spans(text: str) -> list[Span]:
    """Formulas and bare expressions, in order."""
    return sorted([*formulas(text), *expressions(text)], key=lambda span: span.start)
