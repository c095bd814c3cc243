"""Markdown's fenced code blocks, as models write them."""

import re
from dataclasses import dataclass

from cospec.scoring.code.lines import is_code

_FENCE = re.compile(r"(?P<indent>\s*)(?P<fence>`{3,}|~{3,})(?P<rest>.*)$")
# A language, and whatever a renderer may be told about the block.
_TAG = re.compile(r"\s*(?P<language>[\w+#.-]*)\s*(?:\{.*\}|\w+=.*)?\s*$")
_TAG_AND_CODE = re.compile(r"\s*(?:python3?|py)[ \t]+(?P<code>(?:def|class|import|from|async|@).*)$")
_PYTHON = ("", "python", "python3", "py", "py3", "python2", "ipython", "sage")
_LONGEST_TAG = 200
_WORDS_OF_PYTHON = ("pass", "break", "continue", "return", "def", "class", "import", "from", "else", "try")


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of a block and its language in lower case; ``is_closed`` unless the text ended inside."""

    lines: tuple[str, ...]
    language: str
    is_closed: bool

    @property
    def is_python(self) -> bool:
        """Said to be Python, or not said to be anything."""
        return self.language in _PYTHON

    @property
    def is_tagged_python(self) -> bool:
        """Said to be Python."""
        return self.is_python and self.language != ""


def fenced_blocks(lines: list[str]) -> list[Block]:
    """The blocks in their order. A fence with no opening one before it closes the text's beginning."""
    blocks: list[Block] = []
    position = 0
    if _is_lone_closing_fence(lines):
        position = _next_fence(lines, 0)
        blocks.append(Block(tuple(lines[:position]), "", True))
        position += 1
    while (start := _next_fence(lines, position)) < len(lines):
        opening = _FENCE.match(lines[start])
        assert opening
        language, first = _opening_parts(opening["rest"])
        body, position, is_closed = _body(lines, start + 1, opening["fence"])
        indent = len(opening["indent"])
        body = [line[min(indent, len(line) - len(line.lstrip())) :] for line in body]
        blocks.append(Block((*first, *body), language, is_closed))
    return blocks


def _next_fence(lines: list[str], position: int) -> int:
    while position < len(lines) and not _FENCE.match(lines[position]):
        position += 1
    return position


def _opening_parts(rest: str) -> tuple[str, tuple[str, ...]]:
    """Language, and code that stands on the fence's own line: a tag is one only with nothing but a newline behind."""
    tag = _TAG.match(rest) if len(rest) <= _LONGEST_TAG else None
    if tag and tag["language"] not in _WORDS_OF_PYTHON:
        return tag["language"].lower(), ()
    both = _TAG_AND_CODE.match(rest)
    code = both["code"] if both else rest
    # A one-line block: the closing fence stands on the same line.
    return "", (code.rstrip().rstrip("`~"),)


def _body(lines: list[str], start: int, fence: str) -> tuple[list[str], int, bool]:
    body: list[str] = []
    for position in range(start, len(lines)):
        line = lines[position]
        closing = _FENCE.match(line)
        if closing and closing["fence"].startswith(fence) and not closing["rest"].strip(" \t`~"):
            return body, position + 1, True
        if line.rstrip().endswith(fence) and fence not in line.rstrip()[: -len(fence)]:
            return [*body, line.rstrip()[: -len(fence)]], position + 1, True
        body.append(line)
    return body, len(lines), False


def _is_lone_closing_fence(lines: list[str]) -> bool:
    """The prompt opened the block: the first fence is a bare one, with code from the text's beginning up to it."""
    first = _next_fence(lines, 0)
    if first == len(lines):
        return False
    found = _FENCE.match(lines[first])
    assert found
    before = [line for line in lines[:first] if line.strip()]
    return bool(not found["rest"].strip() and before and is_code(before[0]) and not before[-1].rstrip().endswith(":"))
