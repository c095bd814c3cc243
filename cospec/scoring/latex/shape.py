"""What kind of answer a text is: a value, words, a list, a tuple or interval, a matrix, a union, a relation.

Reading splits at the top level only and knows no algebra: the expressions inside stay text until they are compared.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from cospec.scoring.latex.clean import clean, strip_marks
from cospec.scoring.latex.literal import Literal, read_literal
from cospec.scoring.latex.split import enclosed, split_commas, split_top
from cospec.scoring.latex.units import split_percent, split_unit, with_powers
from cospec.scoring.latex.words import is_words, plain_words, without_text_commands

MAX_LENGTH = 2000
_MAX_DEPTH = 20
_MAX_NESTING = 40


class Unreadable(ValueError):
    """An answer that is no mathematics and no words either; the message says why."""


@dataclass(frozen=True, slots=True)
class Words:
    """A text answer, in lower case and without punctuation."""

    words: str


@dataclass(frozen=True, slots=True)
class Value:
    """One expression. ``literal`` is its exact value where it can be read off; ``base`` a subscript of its digits."""

    latex: str
    literal: Literal | None
    unit: str | None = None
    percent: bool = False
    base: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    r"""Several answers in brackets: ``(`` and ``[`` tuples and intervals, ``\{`` a set, no brackets for a bare list."""

    opening: str
    closing: str
    items: "tuple[Shape, ...]"


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix or column vector."""

    rows: "tuple[tuple[Shape, ...], ...]"


@dataclass(frozen=True, slots=True)
class Union:
    """A union of intervals or sets."""

    items: "tuple[Shape, ...]"


@dataclass(frozen=True, slots=True)
class Relation:
    r"""``parts`` joined by ``operators``: ``=``, ``<``, ``>``, ``\le``, ``\ge``, ``\ne``, ``\in``, ``\approx``."""

    parts: "tuple[Shape, ...]"
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Option:
    """An option's letter, in lower case, and the number or formula that it stands for: ``(C) 12``."""

    letter: str
    content: "Shape"


Shape = Words | Value | Group | Matrix | Union | Relation | Option

_LETTER_ENDS = "(?![a-zA-Z])"
_ALTERNATIVES = (
    r"\\text\{[\s,;]*(?i:or|and|&)[\s,;]*\}"
    rf"|(?<![a-zA-Z\\])(?i:or|and){_LETTER_ENDS}|\\(?:lor|vee|land|wedge){_LETTER_ENDS}|;|\\\\"
)
_RELATIONS = rf":=|[=<>]|\\(?:le|ge|ne|in|approx|equiv){_LETTER_ENDS}"
_PLUS_MINUS = re.compile(rf"\\(?:pm|mp){_LETTER_ENDS}")
_MATRIX = re.compile(
    r"(?P<factor>(?:(?!\\begin)[^(\[,=])*)[(\[]?\s*\\begin\{(?P<name>[pbB]?matrix|smallmatrix|array)\}(?:\{[lcr|\s]*\})?"
    r"(?P<rows>.*)\\end\{(?P=name)\}\s*[)\]]?",
    re.DOTALL,
)
_BASE = re.compile(
    r"\(?([0-9A-F]+)\)?_\{?\s*(?:\\text\{\s*(?:base\s*)?(\w+)\s*\}|(?:\\text\{\s*base\s*\}\s*)?\(?(\w+)\)?)\s*\}?"
)
_NUMERALS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
#: ISO style: a bracket turned away is an open end.
_REVERSED = re.compile(r"^([\[\]])([^\[\]]*,[^\[\]]*)([\[\]])$")
#: An option's letter in front of what it stands for.
_OPTION = re.compile(
    r"(?:\\text\{\s*)?(?:\(([A-E])\)\s*\}?\s*[:.]?\s*|([A-E])[).:]\s*\}?\s+)"
    r"(?=[^\s},;&])(?!\W*(?:or|and)\b)(?!.*\([A-E]\))(?!.*(?<![a-zA-Z])[A-E][).:]\s)"
)
_PREFIX = re.compile(
    r"^\\text\{(?:[^{}]*(?:\b(?:is|are|be)\b|[:=])[\s:]*|\s*(?:about|approximately|exactly)\s*)\}\s*(?=\S)"
)
_ANGLE = re.compile(r"(\d+(?:\.\d+)?)\s*°")
_SPECIAL = {
    r"\mathbb{R}": Group("(", ")", (Value(r"-\infty", None), Value(r"\infty", None))),
    r"\emptyset": Group(r"\{", r"\}", ()),
    r"\{\}": Group(r"\{", r"\}", ()),
}
_LEFTOVERS = re.compile(r"\\(?:text|boxed|fbox)(?![a-zA-Z])|[#&~@?]|\.\.\.|\\[lcd]?dots")


@lru_cache(maxsize=4096)
def read_shape(latex: str) -> Shape:
    """The shape of one answer; raises `Unreadable` for what is empty, too long, or neither mathematics nor words."""
    if len(latex) > MAX_LENGTH:
        raise Unreadable(f"{len(latex)} characters are too many for one answer")
    if _nesting(latex) > _MAX_NESTING:
        raise Unreadable("it is nested too deeply")
    return _read(clean(latex), _MAX_DEPTH)


def _nesting(latex: str) -> int:
    return max(accumulate((character in "([{") - (character in ")]}") for character in latex), default=0)


def join(shapes: Sequence[Shape]) -> Shape:
    """Several answers given side by side as one: their list, or the one shape if there is only one."""
    items = tuple(item for shape in shapes for item in alternatives(shape))
    return items[0] if len(items) == 1 else Group("", "", items)


def alternatives(shape: Shape) -> tuple[Shape, ...]:
    """The items of a bare list, or the shape itself."""
    return shape.items if isinstance(shape, Group) and not shape.opening else (shape,)


def values(shape: Shape) -> Iterator[Value]:
    """All expressions inside a shape."""
    if isinstance(shape, Value):
        yield shape
    elif isinstance(shape, Group | Union):
        for item in shape.items:
            yield from values(item)
    elif isinstance(shape, Relation):
        for part in shape.parts:
            yield from values(part)
    elif isinstance(shape, Option):
        yield from values(shape.content)
    elif isinstance(shape, Matrix):
        for row in shape.rows:
            for entry in row:
                yield from values(entry)


def _read(text: str, depth: int) -> Shape:
    text = strip_marks(text)
    if not text or not depth:
        raise Unreadable("it is nested too deeply" if text else "it is empty")
    if is_words(text):
        return Words(plain_words(text))
    if re.fullmatch(r"\\text\{[^{}]*\}", text):
        text = without_text_commands(text)
    text = _PREFIX.sub("", text)
    option = _OPTION.match(text)
    if option:
        return _read_option((option[1] or option[2]).lower(), text[option.end() :], depth - 1)
    text = _REVERSED.sub(_turned, text)
    if text in _SPECIAL:
        return _SPECIAL[text]
    for reader in (_read_list, _read_relation, _read_union, _read_matrix, _read_group, _read_plus_minus):
        shape = reader(text, depth - 1)
        if shape is not None:
            return shape
    return _read_value(text)


def _read_option(letter: str, text: str, depth: int) -> Option:
    content = _read(text, depth)
    if not isinstance(content, Value | Group | Matrix | Union) or re.fullmatch(r"\W*[A-Za-z]\W*", text):
        raise Unreadable("an option's letter stands in front of more than a number or formula")
    return Option(letter, content)


def _read_list(text: str, depth: int) -> Shape | None:
    parts, _ = split_top(text, _ALTERNATIVES)
    pieces = [piece for part in parts for piece in split_commas(part, bracketed=False) if piece.strip()]
    if not pieces:
        raise Unreadable("it has separators only")
    return None if pieces == [text] else join([_read(piece, depth) for piece in pieces])


def _read_relation(text: str, depth: int) -> Shape | None:
    parts, operators = split_top(text, _RELATIONS)
    if not operators:
        return None
    if not parts[0].strip():
        if operators[0] not in ("=", ":=", r"\approx"):
            raise Unreadable(f"nothing stands in front of {operators[0]}")
        return _read(
            "".join(piece for pair in zip(["", *operators[1:]], parts[1:], strict=True) for piece in pair), depth
        )
    named = operators[0] in ("=", ":=", r"\approx")
    first = _name(parts[0], depth) if named else _read(parts[0], depth)
    signs = tuple("=" if operator in (":=", r"\equiv") else operator for operator in operators)
    return Relation((first, *(_read(part, depth) for part in parts[1:])), signs)


def _name(text: str, depth: int) -> Shape:
    """What an equation gives a value to: anything, since names are written in any way."""
    try:
        return _read(text, depth)
    except Unreadable:
        return Words(plain_words(text))


def _read_union(text: str, depth: int) -> Shape | None:
    parts, operators = split_top(text, rf"\\cup{_LETTER_ENDS}")
    return Union(tuple(_read(part, depth) for part in parts)) if operators else None


def _read_matrix(text: str, depth: int) -> Shape | None:
    found = _MATRIX.fullmatch(text)
    if found is None:
        return None
    rows = [row for row in split_top(found["rows"], r"\\\\")[0] if row.strip(" &")]
    factor = found["factor"].strip().removesuffix(r"\cdot")
    entries = [
        [f"({factor}) \\cdot ({entry})" if factor else entry for entry in split_top(row, "&")[0]] for row in rows
    ]
    return Matrix(tuple(tuple(_read(entry, depth) for entry in row) for row in entries))


def _read_group(text: str, depth: int) -> Shape | None:
    whole = enclosed(text)
    if whole is None or whole[0].startswith((r"\begin", r"\lfloor", r"\lceil")):
        return None
    opening, content, closing = whole
    if opening == r"\langle":
        opening, closing = "(", ")"
    items = split_commas(content, bracketed=True)
    if opening == r"\{":
        return Group(opening, closing, alternatives(join([_read(item, depth) for item in items])))
    if len(items) > 1:
        return _as_matrix(Group(opening, closing, tuple(_read(item, depth) for item in items)))
    if (opening, closing) not in (("(", ")"), ("[", "]"), ("{", "}")):
        raise Unreadable(f"its brackets {opening} and {closing} do not match")
    return _read(content, depth)


def _turned(found: re.Match[str]) -> str:
    return ("(" if found[1] == "]" else "[") + found[2] + (")" if found[3] == "[" else "]")


def _as_matrix(group: Group) -> Shape:
    rows = [item.items for item in group.items if isinstance(item, Group) and item.opening == "["]
    if group.opening == "[" and len(rows) == len(group.items) and len({len(row) for row in rows}) == 1:
        return Matrix(tuple(rows))
    return group


def _read_plus_minus(text: str, depth: int) -> Shape | None:
    if not _PLUS_MINUS.search(text):
        return None
    signs = ({"pm": "+", "mp": "-"}, {"pm": "-", "mp": "+"})
    both = [text.replace(r"\pm", sign["pm"]).replace(r"\mp", sign["mp"]) for sign in signs]
    return join([_read(one, depth) for one in both])


def _read_value(text: str) -> Value:
    core, percent = split_percent(with_powers(text))
    core, unit = split_unit(core)
    base = _BASE.fullmatch(core)
    if base:
        name = (base[2] or base[3]).lower()
        number = str(_NUMERALS.index(name) + 2) if name in _NUMERALS else name
        if number.isdigit() and 2 <= int(number) <= 36 and number[0] != "0":
            return Value(base[1], read_literal(base[1]), unit, percent, number)
    if re.search(r"\d\s*_", core):
        raise Unreadable(f"{text[:80]!r} has a subscript that is no base")
    core = _ANGLE.sub(r"(\\frac{\1\\pi}{180})", core).replace("°", "")
    if not core or (_LEFTOVERS.search(core) and r"\begin{vmatrix}" not in core):
        raise Unreadable(f"{text[:80]!r} is no expression")
    return Value(core, read_literal(core), unit, percent)
