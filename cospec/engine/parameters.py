"""Specs, ``NAME[:PATH][:param=value,...]``: names with parameters that are typed, ranged and documented."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Value = int | float | str

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: a whole number, a number or one of ``choices``.

    ``about`` says what it does and where its default is from; ``default`` None: left out, it has no value. ``low`` and
    ``high`` belong to the range.
    """

    name: str
    kind: type[int] | type[float] | type[str]
    default: Value | None
    about: str
    low: float = float("-inf")
    high: float = float("inf")
    choices: tuple[str, ...] = ()

    @property
    def range(self) -> str:
        """The values it takes, in words."""
        if self.choices:
            return " or ".join(self.choices)
        kind = "a whole number" if self.kind is int else "a number"
        if self.high == float("inf"):
            return kind if self.low == float("-inf") else f"{kind} from {self.low:g} on"
        return f"{kind} in [{self.low:g}, {self.high:g}]"

    def read(self, text: str, where: str) -> Value:
        """The value that ``text`` spells; ``where`` opens the ValueError of one that does not fit."""
        try:
            value = self.kind(text)
        except ValueError:
            raise ValueError(f"{where} has {self.name}={text!r}: it must be {self.range}") from None
        self.check(value, where)
        return value

    def check(self, value: Value, where: str) -> None:
        """ValueError for a value outside the range."""
        fits = value in self.choices if isinstance(value, str) else self.low <= value <= self.high
        if not fits:
            raise ValueError(f"{where} has {self.name}={value}: it must be {self.range}")


@dataclass(frozen=True, slots=True)
class Spec:
    """A spec taken apart, its values still text."""

    name: str
    path: str | None
    values: Mapping[str, str]


def split_spec(text: str) -> Spec:
    """Take ``NAME``, ``NAME:PATH``, ``NAME:param=value,...`` or ``NAME:PATH,param=value,...`` apart.

    A path holds no comma. ValueError for what has none of these forms.
    """
    name, colon, rest = text.strip().partition(":")
    path, values = None, dict[str, str]()
    for place, piece in enumerate(rest.split(",") if colon else ()):
        found = _ASSIGNMENT.fullmatch(piece.strip())
        if found is None and place == 0 and piece.strip():
            path = piece.strip()
        elif found is None:
            raise ValueError(f"{text!r} has {piece!r} where a param=value should stand: write NAME:param=value,...")
        elif found[1] in values:
            raise ValueError(f"{text!r} sets {found[1]} twice: keep one of the two")
        else:
            values[found[1]] = found[2].strip()
    return Spec(name, path, values)


def read_values(spec: Spec, parameters: Sequence[Parameter], where: str) -> dict[str, Value]:
    """The values of all parameters that have one, defaults where none is given; ValueError names what does not fit."""
    known = {parameter.name: parameter for parameter in parameters}
    for name in spec.values:
        if name not in known:
            takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            raise ValueError(f"{where} has no parameter {name!r}: {takes}")
    given = {name: known[name].read(text, where) for name, text in spec.values.items()}
    defaults = {p.name: p.default for p in parameters if p.default is not None}
    return defaults | given


def canonical(name: str, path: str | None, values: Mapping[str, Value]) -> str:
    """The one spelling of a spec: the path, then all parameters by name, floats at their shortest."""
    pieces = [] if path is None else [path]
    pieces += [f"{key}={_shortest(value)}" for key, value in sorted(values.items())]
    return f"{name}:{','.join(pieces)}" if pieces else name


def _shortest(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
