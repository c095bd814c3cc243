"""Markdown's fenced code blocks, as models write them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cospec.scoring.code.lines import State, after_line, indent_of, is_code

_FENCE = re.compile(r"\s*(?P<fence>`{3,}|~{3,})(?P<rest>.*)$")
_CLOSING_REST = re.compile(r"[\s`~]*(?:<[|\w/][^<>]{0,40}>\s*)*$")
_LANGUAGE = re.compile(r"\s*\{?\.?(?P<language>[\w+#-][\w+#.-]*)?(?P<more>.*)$")
_PYTHON = re.compile(r"(?:i?python|py)[\d.]*|sage|")
_ATTRIBUTE = re.compile(r"\w+=\S|#|\{")
_LONGEST_TAG = 200
_WORDS_OF_PYTHON = (
    "pass", "break", "continue", "return", "def", "class", "import", "from", "else", "try", "async", "if", "for"
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Block:
    """The lines of a block and its language in lower case."""

    lines: tuple[str, ...]
    language: str

    @property
    def is_python(self) -> bool:
        """Said to be Python, or not said to be anything."""
        return bool(_PYTHON.fullmatch(self.language))

    @property
    def is_tagged_python(self) -> bool:
        """Said to be Python."""
        return self.is_python and self.language != ""


def fenced_blocks(lines: Sequence[str]) -> tuple[list[Block], list[str]]:
    """The blocks in their order, and the lines outside. A fence with no opening one before it closes the beginning."""
    blocks: list[Block] = []
    outside: list[str] = []
    position, last = _beginning(lines)
    if _is_lone_closing(lines, position, last):
        blocks.append(Block((*lines[:position], *last), ""))
        position += 1
    else:
        outside += lines[:position]
    while position < len(lines):
        opening = _opening(lines[position])
        if opening is None:
            outside.append(lines[position])
            position += 1
            continue
        outside.append("")
        block, position = _block(lines, position, opening)
        blocks.append(block)
    return blocks, outside


def _opening(line: str) -> re.Match[str] | None:
    """The fence that the line begins with; one in the middle of a sentence opens nothing."""
    found = _FENCE.match(line)
    if not found or found["fence"][0] in found["rest"].rstrip(" \t`~"):
        return None
    return found


def _block(lines: Sequence[str], position: int, opening: re.Match[str]) -> tuple[Block, int]:
    fence, rest = opening["fence"], opening["rest"]
    if rest.rstrip().endswith(fence):
        _, first = _opening_parts(rest.rstrip().rstrip("`~"), is_whole=True)
        return Block(first, ""), position + 1
    language, first = _opening_parts(rest, is_whole=False)
    indent = indent_of(lines[position])
    end, last = _end(lines, position + 1, fence, indent, bool(_PYTHON.fullmatch(language)))
    body = [line[min(indent, len(line) - len(line.lstrip())) :] for line in lines[position + 1 : end]]
    return Block((*first, *body, *last), language), end + 1


def _opening_parts(rest: str, is_whole: bool) -> tuple[str, tuple[str, ...]]:
    """Language, and code on the fence's own line; ``is_whole`` if the block ends there, too."""
    found = _LANGUAGE.match(rest[:_LONGEST_TAG])
    assert found
    language, more = (found["language"] or "").lower(), rest[found.start("more") :]
    is_named = language != "" and bool(_PYTHON.fullmatch(language))
    if is_named and (is_whole or _is_code_behind_tag(more)):
        return language, (more.lstrip(),)
    if is_whole or language in _WORDS_OF_PYTHON or (not is_named and more.strip() and is_code(rest)):
        return "", (rest.lstrip(),)
    return language, ()


def _is_code_behind_tag(more: str) -> bool:
    return more[:1].isspace() and not _ATTRIBUTE.match(more.strip()) and is_code(more)


def _end(lines: Sequence[str], start: int, fence: str, indent: int, is_python: bool) -> tuple[int, tuple[str, ...]]:
    """Where the block ends, and code on the closing fence's own line.

    A fence inside a string of the program ends nothing, if that string ends before the text or the next block does.
    """
    state, inside = State(), None
    for position in range(start, len(lines)):
        line = lines[position]
        last = _before_closing(line, fence)
        if last is not None:
            if not state.quote:
                return position, last
            inside = inside or (position, last)
        elif inside and _opens_next(line, indent):
            return inside
        if is_python:
            quote, state = state.quote, after_line(line, state, [], [])
            inside = inside if state.quote == quote else None
    return inside or (len(lines), ())


def _before_closing(line: str, fence: str) -> tuple[str, ...] | None:
    """Code before the closing fence on its line (mostly none), None for a line without one."""
    code, found, rest = line.partition(fence)
    if not found or not _CLOSING_REST.match(rest):
        return None
    return (code,) if code.strip() else ()


def _opens_next(line: str, indent: int) -> bool:
    opening = _opening(line)
    return bool(opening and opening["rest"].strip()) and indent_of(line) <= indent


def _beginning(lines: Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """For a text that begins with code: where its first fence stands, and code before that on the same line."""
    first = next((line for line in lines if line.strip()), "")
    if _opening(first) or not is_code(first.partition("```")[0]):
        return 0, ()
    state = State()
    for position, line in enumerate(lines):
        if not state.quote and _opening(line):
            return position, ()
        last = None if state.quote else _before_closing(line, "```")
        if last is not None:
            return position, last
        state = after_line(line, state, [], [])
    return (0, ()) if state.quote else (len(lines), ())


def _is_lone_closing(lines: Sequence[str], position: int, last: tuple[str, ...]) -> bool:
    """The prompt opened the block: a bare fence behind code, and nothing that announces a block."""
    if not 0 < position < len(lines) or last:
        return bool(last)
    found = _FENCE.match(lines[position])
    before = next((line for line in reversed(lines[:position]) if line.strip()), ":")
    return bool(found and _CLOSING_REST.match(found["rest"])) and not before.rstrip().endswith(":")
