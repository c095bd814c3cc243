"""Braces and parentheses: where a group ends, and braces around arguments that were written without."""

import re
from collections.abc import Mapping
from types import MappingProxyType

_ARGUMENTS: Mapping[str, int] = MappingProxyType({r"\frac": 2, r"\binom": 2, r"\sqrt": 1})
_WITH_ARGUMENTS = re.compile(r"\\(?:frac|binom|sqrt)(?![a-zA-Z])|\^(?=\s*\()")
_ROOT = re.compile(r"\s*\[[^\[\]]*\]")
_COMMAND = re.compile(r"\\[a-zA-Z]+")


def group_end(text: str, start: int) -> int:
    """The index behind the brace group that opens at ``start``, or -1 if it never closes."""
    depth, index = 0, start
    while index < len(text):
        character = text[index]
        if character == "\\":
            index += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if not depth:
                return index + 1
        index += 1
    return -1


def brace_arguments(text: str) -> str:
    r"""Braces around single-token arguments: ``\frac12``, ``\frac{1}2``, ``\sqrt2``, ``\sqrt(2)``, ``x^(n+1)``."""
    out, position = [], 0
    while found := _WITH_ARGUMENTS.search(text, position):
        out.append(text[position : found.start()])
        name, position = found[0], found.end()
        out.append(name)
        if name == r"\sqrt" and (root := _ROOT.match(text, position)):
            out.append(root[0].strip())
            position = root.end()
        for _ in range(_ARGUMENTS.get(name, 1)):
            argument, position = _argument(text, position, parentheses=name in (r"\sqrt", "^"))
            out.append(argument)
    return "".join(out) + text[position:]


def _argument(text: str, start: int, *, parentheses: bool) -> tuple[str, int]:
    while start < len(text) and text[start] == " ":
        start += 1
    if start == len(text):
        return "", start
    if text[start] == "{":
        end = group_end(text, start)
        return (text[start:], len(text)) if end < 0 else ("{" + brace_arguments(text[start + 1 : end - 1]) + "}", end)
    if text[start] == "(" and parentheses:
        end = _parenthesis_end(text, start)
        if end > 0:
            return "{" + brace_arguments(text[start + 1 : end - 1]) + "}", end
    command = _COMMAND.match(text, start)
    end = command.end() if command else start + 1
    return "{" + text[start:end] + "}", end


def _parenthesis_end(text: str, start: int) -> int:
    depth = 0
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return index + 1
    return -1
