"""Which names a piece of Python defines, and which it takes from elsewhere: told by its statements, without parsing."""

import builtins
import keyword
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cospec.scoring.code.lines import Statement, statements

_DEFINITION = re.compile(r"(?:async\s+)?(def|class)\s+(\w+)")
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
    of functions and classes inside others; ``needed`` are those that it uses and does not bind anywhere.
    """

    defined: frozenset[str]
    imported: frozenset[str]
    nested: frozenset[str]
    needed: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """What other code can have from it."""
        return self.defined | self.imported


def bindings(lines: Sequence[str]) -> Bindings:
    """The names that the lines bind and need."""
    defined: set[str] = set()
    imported: set[str] = set()
    nested: set[str] = set()
    used: set[str] = set()
    bound: set[str] = set()
    scope: int | None = None
    for statement in statements(lines):
        if scope is not None and statement.indent <= scope:
            scope = None
        used.update(_NAME.findall(f"{statement.text} {statement.formatted}"))
        bound |= _bound(statement)
        if definition := _DEFINITION.match(statement.text):
            (defined if scope is None else nested).add(definition[2])
            scope = statement.indent if scope is None else scope
            continue
        for part in statement.text.split(";"):
            names = _imported(part.strip())
            bound |= names
            if scope is None:
                imported |= names
                defined |= _assigned(part.strip())
    bound |= defined | imported | nested
    return Bindings(*map(frozenset, (defined, imported, nested, used - bound - _NOT_NEEDED)))


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
