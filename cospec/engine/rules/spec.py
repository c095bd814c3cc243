"""How rules are named with their parameters: `NAME` or `NAME:param=value,param=value`."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Literal, get_args

from cospec.engine.record import Bonus
from cospec.engine.rules.base import Greedy, Rule

Value = float | int | str | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number or choice of a rule.

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


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """All that is known of a rule without running it.

    ``make`` takes the parameters by name; None for a rule that needs a directory. ``open`` makes it of the directory
    that its spec names (`NAME:PATH,param=value`) and the parameters. The first parameter is the knob that trades
    exactness for speed, if there is one. ``strict_point`` is the spec at which it decides as strict does, token
    for token on the same draws; None where it has none. ``relaxed_point`` says where it accepts everything, ``greedy``
    what it does at temperature 0, ``drafters`` which drafters suit it.
    """

    name: str
    summary: str
    formula: str
    source: str
    greedy: str
    drafters: str
    make: Callable[..., Rule] | None
    parameters: tuple[Parameter, ...] = ()
    strict_point: str | None = None
    relaxed_point: str | None = None
    open: Callable[..., Rule] | None = None

    @property
    def default(self) -> Rule:
        """The rule with its default parameters."""
        return self.rule({})

    @property
    def greedy_kind(self) -> Greedy:
        """What it does at temperature 0 with its default parameters."""
        return "own" if self.make is None else self.default.greedy

    @property
    def leans_on_draft(self) -> bool:
        """Whether it reads the drafter's confidence."""
        return self.make is not None and self.default.leans_on_draft

    def rule(self, given: Mapping[str, Value], path: str | None = None) -> Rule:
        """The rule with these parameters, the others at their defaults; ValueError for what it cannot take.

        ``path`` is its directory, for one that is opened.
        """
        known = {parameter.name: parameter for parameter in self.parameters}
        for name, value in given.items():
            if name not in known:
                raise ValueError(f"rule {self.name!r} has no parameter {name!r}: {_offer(name, known, 'it takes')}")
            try:
                known[name].check(value)
            except ValueError as error:
                raise ValueError(f"rule {self.name!r}: {error}") from None
        values = {name: parameter.default for name, parameter in known.items()} | dict(given)
        if self.open is not None:
            if path is None:
                raise ValueError(f"rule {self.name!r} needs a trained {self.name}: write {self.name}:DIR")
            return self.open(path, **values)
        if self.make is None:
            raise ValueError(
                f"rule {self.name!r} needs a trained {self.name}: give its directory with --{self.name} DIR"
            )
        return self.make(**values)

    def taken_apart(self, text: str) -> tuple[str | None, str]:
        """The directory in ``text``, the part of a spec behind the colon, if it has one, and what names parameters."""
        path, _, rest = text.partition(",")
        if self.open is None or path.partition("=")[0].strip() in {parameter.name for parameter in self.parameters}:
            return None, text
        return path.strip() or None, rest

    def read(self, text: str) -> dict[str, Value]:
        """The parameters in ``text``, the part of a spec behind the colon."""
        known = {parameter.name: parameter for parameter in self.parameters}
        given: dict[str, Value] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if not name or not equals or not value:
                raise ValueError(f"rule {self.name!r}: {part!r} is no parameter: write {self.name}:param=value")
            if name in given:
                raise ValueError(f"rule {self.name!r}: {name} is given twice: keep one")
            if name not in known:
                raise ValueError(f"rule {self.name!r} has no parameter {name!r}: {_offer(name, known, 'it takes')}")
            try:
                given[name] = known[name].read(value)
            except ValueError as error:
                raise ValueError(f"rule {self.name!r}: {error}") from None
        return given


class ParametricRule(Rule):
    """A published rule whose dataclass fields are its parameters; `rule_named` checks their ranges."""

    default_bonus: Bonus = "target"

    @property
    def spec(self) -> str:
        return spec_of(self.name, {field.name: getattr(self, field.name) for field in fields(self)})  # type: ignore[arg-type]


def check_bonus(bonus: Bonus | None, rule: Rule) -> None:
    """ValueError for a bonus form that there is not, or that the rule does not have."""
    if bonus not in (None, *get_args(Bonus)):
        raise ValueError(f"bonus is {bonus!r}: choose 'arbitrated', 'target' or 'rule'")
    rule.check_bonus(bonus or rule.default_bonus)


def rule_of(rules: Mapping[str, RuleInfo], spec: str) -> Rule:
    """The rule of ``rules`` that ``spec`` names; ValueError says what is wrong with it and what there is."""
    name, colon, text = spec.strip().partition(":")
    if name not in rules:
        raise ValueError(f"there is no rule {name!r}: {_offer(name, rules, 'choose one of')}")
    info = rules[name]
    if colon and not text.strip() and info.open is None:
        raise ValueError(f"rule {spec!r} ends in a colon: write {name}:param=value, or {name} alone")
    path, given = info.taken_apart(text)
    return info.rule(info.read(given) if given.strip() else {}, path)


def spec_of(name: str, parameters: Mapping[str, Value]) -> str:
    """The canonical spec: all parameters by name, numbers as short as they can be told apart."""
    shown = ",".join(f"{key}={show(value)}" for key, value in sorted(parameters.items()))
    return f"{name}:{shown}" if shown else name


def split_specs(text: str) -> list[str]:
    """The specs of a list with commas: a part `param=value` belongs to the spec before it.

    Unambiguous, as no name holds an equals sign and every first parameter stands behind its rule's colon.
    """
    specs: list[str] = []
    for part in (part.strip() for part in text.split(",")):
        if specs and "=" in part and ":" not in part.partition("=")[0]:
            specs[-1] += f",{part}"
        else:
            specs.append(part)
    return specs


def show(value: Value) -> str:
    """A parameter's value as specs have it: 0.25, 1, inf, none."""
    if value is None:
        return "none"
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def _offer(name: str, known: Iterable[str], verb: str) -> str:
    """What could have been meant, and all there is."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"did you mean {near[0]!r}? " if near else ""
    return f"{meant}{verb} {', '.join(names)}" if names else "it takes none"
