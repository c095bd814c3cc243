"""Which names a piece of Python defines, and which it takes from elsewhere: told by its statements, without parsing."""

import builtins
import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cospec.scoring.code.lines import Statement, statements

_DEFINITION = re.compile(r"(?:async\s+)?(def|class)\s+(\w+)")
# What stands in for a body that is still to be written, and where it stands behind a head on the same line.
_PLACEHOLDER = re.compile(r'(?:\.{3}|pass|""|raise\s+NotImplementedError\b.*)\s*;?$')
_PLACEHOLDER_BEHIND_HEAD = re.compile(rf":\s*{_PLACEHOLDER.pattern}")
_IMPORT = re.compile(r"(?:from\s+\S+\s+)?import\s+(.*)")
_ASSIGNMENT = re.compile(r"\(?([\w\s,*]{1,500}?)\)?\s{0,9}(?::[^=]{0,500})?=(?!=)")
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")
# Where a name gets its value inside a statement; the lengths keep long lines from taking long.
_BOUND = re.compile(
    r"(?<![\w.])(\w+)\s{0,9}(?::[\w\[\], .|]{0,99}|[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)"
    r"|\bas\s{1,9}(\w+)|\bfor\b([\w\s,*()]{1,200}?)\bin\b|\blambda\b([^:]{0,200}):"
)
_PARAMETER = re.compile(r"[(,*]\s{0,99}([^\W\d]\w*)")
_NOT_NEEDED = frozenset(dir(builtins)) | frozenset(keyword.kwlist)


@dataclass(frozen=True, slots=True)
class Bindings:
    """Names of a piece of code.

    ``defined`` are those of its functions, classes and variables, ``imported`` those of its imports, ``nested`` those
    of functions and classes inside others; ``stubs`` are functions and classes of which only heads and placeholders
    are there; ``needed`` are the names that it uses and does not bind anywhere.
    """

    defined: frozenset[str]
    imported: frozenset[str]
    nested: frozenset[str]
    stubs: frozenset[str]
    needed: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """What other code can have from it."""
        return self.defined | self.imported | self.stubs


def bindings(lines: Sequence[str]) -> Bindings:
    """The names that the lines bind and need."""
    defined: set[str] = set()
    imported: set[str] = set()
    nested: set[str] = set()
    begun: set[str] = set()
    used: set[str] = set()
    bound: set[str] = set()
    scope: int | None = None
    name = ""
    for statement in statements(lines):
        if scope is not None and statement.indent <= scope:
            scope = None
        used.update(_NAME.findall(f"{statement.text} {statement.formatted}"))
        bound |= _bound(statement)
        definition = _DEFINITION.match(statement.text)
        if definition and scope is None:
            name, scope = definition[2], statement.indent
            begun.add(name)
        elif definition:
            nested.add(definition[2])
        if scope is not None and not _is_stub_line(statement):
            defined.add(name)
        if definition:
            continue
        for part in statement.text.split(";"):
            names = _imported(part.strip())
            bound |= names
            if scope is None:
                imported |= names
                defined |= _assigned(part.strip())
    bound |= begun | defined | imported | nested
    return Bindings(*map(frozenset, (defined, imported, nested, begun - defined, used - bound - _NOT_NEEDED)))


def _is_stub_line(statement: Statement) -> bool:
    if _DEFINITION.match(statement.text):
        return statement.opens_block or bool(_PLACEHOLDER_BEHIND_HEAD.search(statement.text))
    return statement.text.startswith("@") or bool(_PLACEHOLDER.match(statement.text))


def _imported(statement: str) -> set[str]:
    found = _IMPORT.match(statement)
    parts = found[1].strip("() ").split(",") if found else []
    return {re.split(r"\W", part.split()[-1])[0] for part in parts if part.split()} - {""}


def _assigned(statement: str) -> set[str]:
    """Names that an assignment gives a value; one that only wraps what a name had before does not define it."""
    found = _ASSIGNMENT.match(statement)
    if not found:
        return set()
    value = statement[found.end() :]
    used = set() if re.search(r"\blambda\b", value) else set(_NAME.findall(value))
    return _words(found[1]) - used


def _bound(statement: Statement) -> set[str]:
    names = _words(" ".join(_flat(_BOUND.findall(statement.text))))
    if assignment := _ASSIGNMENT.match(statement.text):
        names |= _words(assignment[1])
    definition = _DEFINITION.match(statement.text)
    return names | set(_PARAMETER.findall(statement.text)) if definition and definition[1] == "def" else names


def _flat(groups: Iterable[tuple[str, ...]]) -> list[str]:
    return [name for group in groups for name in group if name]


def _words(text: str) -> set[str]:
    return set(_NAME.findall(text)) - frozenset(keyword.kwlist)
