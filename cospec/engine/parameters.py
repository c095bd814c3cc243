"""Parameters as specs spell them, `NAME:param=value,param=value`, whatever they belong to."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Value = float | int | str | None
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number or choice of a rule or drafter.

    ``low`` and ``high`` bound it, both allowed unless ``open_low`` or ``open_high``; ``choices`` are the words it may
    be instead of a number. ``source`` says where the default is from. ``grid`` are values worth comparing, from the
    strictest to the most relaxed. An ``int`` whose default is None may be `none`.
    """

    name: str
    default: Value
    meaning: str
    source: str
    kind: Literal["float", "int", "choice"] = "float"
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    choices: tuple[str, ...] = ()
    grid: tuple[Value, ...] = ()

    @property
    def range(self) -> str:
        """The values it may have, as mathematicians write them, or the choices."""
        if self.kind == "choice":
            return " or ".join(self.choices)
        low, high = show(self.low), show(self.high)
        return f"{'(' if self.open_low else '['}{low}, {high}{')' if self.open_high else ']'}"

    def read(self, text: str) -> Value:
        """The value that ``text`` stands for; ValueError if it is none."""
        if self.kind == "choice" or (self.default is None and text == "none"):
            return None if self.kind == "int" else text
        try:
            return int(text) if self.kind == "int" else float(text)
        except ValueError:
            kind = "a whole number" if self.kind == "int" else "a number"
            raise ValueError(f"{self.name}={text} is not {kind}") from None

    def check(self, value: Value) -> None:
        """ValueError for a value out of range."""
        if value is None and self.default is None:
            return
        if isinstance(value, str) or self.kind == "choice":
            good = value in self.choices
        else:
            assert value is not None
            above = value > self.low if self.open_low else value >= self.low
            good = above and (value < self.high if self.open_high else value <= self.high)
        if not good:
            raise ValueError(f"{self.name}={show(value)} is out of range: it must be in {self.range}")


def read_values(owner: str, known: Mapping[str, Parameter], parts: Iterable[str], form: str) -> dict[str, Value]:
    """What ``parts``, each `param=value`, say of the ``known`` parameters; ranges are for `filled` to check.

    ValueError for what is none of ``owner``'s; ``form`` is how one is written.
    """
    given: dict[str, str] = {}
    for part in parts:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not name or not equals or not value:
            raise ValueError(f"{owner}: {part!r} is no parameter: write {form}")
        if name in given:
            raise ValueError(f"{owner}: {name} is given twice: keep one")
        given[name] = value
    return {name: _asked(owner, known, name, Parameter.read, value) for name, value in given.items()}


def filled(owner: str, known: Mapping[str, Parameter], given: Mapping[str, Value]) -> dict[str, Value]:
    """All parameters, those ``given`` once they are checked and the others at their defaults."""
    for name, value in given.items():
        _asked(owner, known, name, Parameter.check, value)
    return {name: parameter.default for name, parameter in known.items()} | dict(given)


def _asked(
    owner: str, known: Mapping[str, Parameter], name: str, ask: Callable[[Parameter, Any], _Answer], value: Any
) -> _Answer:
    if name not in known:
        raise ValueError(f"{owner} has no parameter {name!r}: {offer(name, known, 'it takes')}")
    try:
        return ask(known[name], value)
    except ValueError as error:
        raise ValueError(f"{owner}: {error}") from None


def spec_of(name: str, parameters: Mapping[str, Value]) -> str:
    """The canonical spec: all parameters by name, numbers as short as they can be told apart."""
    shown = ",".join(f"{key}={show(value)}" for key, value in sorted(parameters.items()))
    return f"{name}:{shown}" if shown else name


def show(value: Value) -> str:
    """A parameter's value as specs have it: 0.25, 1, inf, none."""
    if value is None:
        return "none"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def offer(name: str, known: Iterable[str], verb: str) -> str:
    """What could have been meant, and all there is."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{meant}{verb} {', '.join(names)}" if names else "it takes none"
