"""Texts that go on with the function, or class, that a prompt left open."""

import itertools
import re
from collections.abc import Collection, Sequence

from cospec.scoring.code.bindings import bindings
from cospec.scoring.code.lines import Statement, margin_statements, statements

_STEP = 4
_IS_MAIN = re.compile(r"if\s+__name__\b")
_DEFINITION = re.compile(r"(?:async\s+)?(?:def|class)\s+(\w+)")


def goes_on(lines: Sequence[str], names: Collection[str], prompt: str) -> bool:
    """A text without fences is the rest of the prompt's function."""
    first = next(statements(lines), None)
    return first is not None and (first.indent >= _STEP or first.is_code) and is_body(lines, names, prompt)


def is_body(lines: Sequence[str], names: Collection[str], prompt: str) -> bool:
    """The code is the rest of the prompt's function, and no program of its own.

    It does not define the function anew, and is indented, or returns outside of any function, or begins with what
    hardly begins a program.
    """
    first, second = _first_two(lines)
    if first is None or _defines(first, names):
        return False
    if _lost_indentation(first, second, _width(prompt)):
        return True
    in_definition = False
    for statement in statements(lines):
        if statement.indent <= first.indent:
            in_definition = bool(_DEFINITION.match(statement.text))
        if _defines(statement, names) and statement.indent == first.indent:
            return False
        if _returns(statement) and not in_definition:
            return True
    return first.indent > 0 or not (first.starts_program or bindings(lines).all & set(names))


def body_of(lines: Sequence[str], prompt: str) -> str:
    """The part of the text that still belongs to the function, indented as the prompt's is."""
    lines = _as_body(lines, _width(prompt))
    # What base models write next is not the answer.
    end = next((statement.start for statement in margin_statements(lines)), len(lines))
    while end and (not lines[end - 1].strip() or lines[end - 1][0] == "#"):
        end -= 1
    return "\n".join(lines[:end]).rstrip() + "\n"


def before_last_definition(prompt: str) -> str:
    """The prompt's imports and helpers: all before the function that it leaves open."""
    lines = prompt.split("\n")
    starts = [one.start for one in margin_statements(lines) if _DEFINITION.match(one.text)]
    return "\n".join(lines[: starts[-1]]) + "\n" if starts else prompt


def dedented(lines: Sequence[str]) -> list[str]:
    """The lines without the indentation that all statements have; what stands in strings is kept where it has less."""
    prefixes = [lines[one.start].removesuffix(lines[one.start].lstrip()) for one in statements(lines)]
    shared = min(prefixes, key=len, default="")
    if not shared or not all(prefix.startswith(shared) for prefix in prefixes):
        return list(lines)
    return [line.removeprefix(shared) for line in lines]


def _as_body(lines: Sequence[str], width: int) -> list[str]:
    """The lines with the indentation of the function's body, where it was lost on the way."""
    first, second = _first_two(lines)
    if first is None or first.indent >= width:
        return list(lines)
    if second is None or _lost_indentation(first, second, width):
        return [*lines[: first.start], " " * width + lines[first.start].lstrip(), *lines[first.start + 1 :]]
    if first.indent:
        return list(lines)
    return [" " * width + line if line.strip() else line for line in lines[: _end_at_margin(lines)]]


def _end_at_margin(lines: Sequence[str]) -> int:
    """Where a body without indentation ends: behind its return, else before what cannot belong to it."""
    end: int | None = None
    in_definition = seen = False
    for statement in statements(lines):
        if statement.indent == 0:
            in_definition = bool(_DEFINITION.match(statement.text))
            if _returns(statement):
                return statement.stop
            if seen and end is None and _is_foreign(statement):
                end = statement.start
            seen = True
        elif _returns(statement) and not in_definition:
            # A body goes at least as far as what only a function may hold.
            end = None
    return len(lines) if end is None else end


def _is_foreign(statement: Statement) -> bool:
    return statement.starts_program or bool(_IS_MAIN.match(statement.text)) or not statement.is_code


def _returns(statement: Statement) -> bool:
    return statement.text.startswith("return") and statement.is_code


def _lost_indentation(first: Statement, second: Statement | None, width: int) -> bool:
    """Only the first line lost indentation: the second one stands where it could not below the first as it is."""
    return second is not None and first.indent < width and second.indent >= width + first.opens_block


def _width(prompt: str) -> int:
    *_, last = (None, *statements(prompt.split("\n")))
    return (last.indent + _STEP * last.opens_block if last else 0) or _STEP


def _first_two(lines: Sequence[str]) -> tuple[Statement | None, Statement | None]:
    first, second = itertools.islice(itertools.chain(statements(lines), (None, None)), 2)
    return first, second


def _defines(statement: Statement, names: Collection[str]) -> bool:
    found = _DEFINITION.match(statement.text)
    return bool(found and found[1] in names)
