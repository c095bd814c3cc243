"""Cutting a formula at its top level: nothing inside brackets or an environment is touched."""

import re
from functools import lru_cache
from itertools import pairwise

_OPEN = r"\\\{|\\langle(?![a-zA-Z])|\\lfloor(?![a-zA-Z])|\\lceil(?![a-zA-Z])|\\begin\{\w+\*?\}|[(\[{]"
_CLOSE = r"\\\}|\\rangle(?![a-zA-Z])|\\rfloor(?![a-zA-Z])|\\rceil(?![a-zA-Z])|\\end\{\w+\*?\}|[)\]}]"
_THOUSANDS_HEAD = re.compile(r"(?<![\w.])[1-9]\d{0,2}$")
_THOUSANDS_TAIL = re.compile(r"\d{3}(?!\d)")
_THOUSANDS_GROUP = re.compile(r"\d{3}$")


@lru_cache(maxsize=32)
def _scanner(separator: str) -> re.Pattern[str]:
    return re.compile(rf"(?P<separator>{separator})|(?P<open>{_OPEN})|(?P<close>{_CLOSE})|\\[a-zA-Z]+|\\.")


def split_top(text: str, separator: str) -> tuple[list[str], list[str]]:
    """The pieces of ``text`` between top-level matches of the pattern ``separator``, and these matches."""
    pieces, separators, depth, start = [], [], 0, 0
    for found in _scanner(separator).finditer(text):
        if found["separator"] is not None and not depth:
            pieces.append(text[start : found.start()])
            separators.append(found[0])
            start = found.end()
        elif found["open"] is not None:
            depth += 1
        elif found["close"] is not None:
            depth = max(depth - 1, 0)
    return [*pieces, text[start:]], separators


def split_commas(text: str, *, bracketed: bool) -> list[str]:
    r"""The items of a comma list. A comma is a thousands mark in ``\d{1,3}(,\d{3})+`` and nowhere else.

    Inside brackets, where ``(1,234)`` is a pair, it is one only if the items are set apart by comma and blank.
    """
    pieces, _ = split_top(text, ",")
    if bracketed and not any(piece.startswith(" ") for piece in pieces[1:]):
        return pieces
    items, grouped = pieces[:1], False
    for before, piece in pairwise(pieces):
        is_head = (_THOUSANDS_GROUP.fullmatch(before) if grouped else _THOUSANDS_HEAD.search(before)) is not None
        grouped = is_head and _THOUSANDS_TAIL.match(piece) is not None
        if grouped:
            items[-1] += piece
        else:
            items.append(piece)
    return items


def enclosed(text: str) -> tuple[str, str, str] | None:
    """Opening bracket, content and closing bracket, if one pair (of any two kinds) encloses all of ``text``."""
    depth, opening = 0, ""
    for found in _scanner("(?!)").finditer(text):
        if found["open"] is not None:
            if not depth and found.start():
                return None
            opening = opening or found[0]
            depth += 1
        elif found["close"] is not None:
            depth -= 1
            if depth <= 0:
                whole = depth == 0 and found.end() == len(text)
                return (opening, text[len(opening) : found.start()], found[0]) if whole else None
        elif not depth:
            return None
    return None
