"""How rules are named with their parameters: `NAME` or `NAME:param=value,param=value`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import get_args

from cospec.engine.parameters import Parameter, Value, filled, offer, read_values, spec_of
from cospec.engine.record import Bonus
from cospec.engine.rules.base import Greedy, Rule


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """All that is known of a rule without running it.

    ``make`` takes the parameters by name; None for a rule that needs a directory. ``open`` makes it of the directory
    that its spec names (`NAME:PATH,param=value`) and the parameters. The first parameter is the knob that trades
    exactness for speed, if there is one. ``strict_point`` is the spec (or option) at which it decides as strict
    does, token for token on the same draws; None where it has none. ``relaxed_point`` says where it accepts everything,
    ``greedy`` what it does at temperature 0, ``drafters`` which drafters suit it.
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
    def trusts_draft(self) -> bool:
        """Whether what it writes follows the drafter's beliefs, so that a weak drafter costs quality."""
        return self.make is not None and self.default.trusts_draft

    def rule(self, given: Mapping[str, Value], path: str | None = None) -> Rule:
        """The rule with these parameters, the others at their defaults; ValueError for what it cannot take.

        ``path`` is its directory, for one that is opened.
        """
        values = filled(f"rule {self.name!r}", self._known, given)
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
        if self.open is None or path.partition("=")[0].strip() in self._known:
            return None, text
        return path.strip() or None, rest

    def read(self, text: str) -> dict[str, Value]:
        """The parameters in ``text``, the part of a spec behind the colon."""
        return read_values(f"rule {self.name!r}", self._known, text.split(","), f"{self.name}:param=value")

    @property
    def _known(self) -> dict[str, Parameter]:
        return {parameter.name: parameter for parameter in self.parameters}


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
    first, comma, rest = name.partition(",")
    if comma and first in rules and "=" in rest:
        raise ValueError(f"rule {spec!r} has a comma before its parameters: write {first}:{rest.strip()}")
    if name not in rules:
        raise ValueError(f"there is no rule {name!r}: {offer(name, rules, 'choose one of')}")
    info = rules[name]
    if colon and not text.strip() and info.open is None:
        raise ValueError(f"rule {spec!r} ends in a colon: write {name}:param=value, or {name} alone")
    if info.make is None and info.open is None:
        return info.rule({})
    path, given = info.taken_apart(text)
    return info.rule(info.read(given) if given.strip() else {}, path)


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
