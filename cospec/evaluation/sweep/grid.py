"""The grid of a sweep as a file or the command line spells it, and the cells it stands for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cospec.engine.parameters import show
from cospec.engine.record import Sampling
from cospec.engine.rules import RULES

#: The folder of the target alone, beside those of each K.
TARGET = "target"
#: The one parameter an arbiter has here.
THRESHOLD = "threshold"


@dataclass
class MethodGrid:
    """One rule, or one arbiter by its directory, with the values each of its parameters takes.

    ``name`` is what cells of an arbiter are called, its directory's name if left out.
    """

    rule: str | None = None
    arbiter: str | None = None
    name: str | None = None
    values: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.rule is None) == (self.arbiter is None):
            raise ValueError("a method of the grid is a rule or an arbiter: give `rule:` or `arbiter:`, one of them")
        if self.name is not None and self.arbiter is None:
            raise ValueError(f"method {self.rule!r} has a name: rules are called by their spec, so drop `name`")
        strange = [name for name in self.values if name != THRESHOLD] if self.arbiter else []
        if strange:
            raise ValueError(f"arbiter {self.arbiter!r} has no parameter {strange[0]!r}: it takes `{THRESHOLD}`")
        empty = [name for name, values in self.values.items() if not values]
        if empty:
            raise ValueError(f"method {self.rule or self.arbiter!r} has no value of {empty[0]}: give one or more")


@dataclass
class SamplingGrid:
    """How texts are sampled, and the rules this is for: all methods if ``only`` is empty, else those of these names.

    ``arbiter`` among the names stands for all arbiters.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    only: list[str] = field(default_factory=list)

    @property
    def sampling(self) -> Sampling:
        """ValueError for values out of range."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.min_p, self.repetition_penalty)


@dataclass
class Grid:
    """Every method with every value, every K and every sampling, on every task.

    ``tasks`` and ``num`` are as `--task` and `--num` have them. What a file leaves out is for the command line to say.
    """

    methods: list[MethodGrid] = field(default_factory=list)
    num_draft_tokens: list[int] = field(default_factory=lambda: [5])
    samplings: list[SamplingGrid] = field(default_factory=lambda: [SamplingGrid()])
    tasks: list[str] = field(default_factory=list)
    num: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("num_draft_tokens", "samplings"):
            if not getattr(self, name):
                raise ValueError(f"the grid has no {name}: give one or more")
        if min(self.num_draft_tokens) < 1:
            raise ValueError(f"num_draft_tokens holds {min(self.num_draft_tokens)}: each must be at least 1")
        _refuse_twice("num_draft_tokens", self.num_draft_tokens)
        _refuse_twice("samplings", [entry.sampling for entry in self.samplings])


def _refuse_twice(name: str, values: Sequence[Any]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"the grid's {name} hold {value} twice: drop one")


@dataclass(frozen=True, slots=True)
class Point:
    """One method of a grid with one value of each of its parameters; ``spec`` names a rule as `rule_named` takes it."""

    spec: str | None
    arbiter: str | None
    name: str | None
    parameters: tuple[tuple[str, Any], ...]


def points_of(methods: Sequence[MethodGrid]) -> Iterator[Point]:
    """Every method with every combination of its values, in the order of the grid."""
    for method in methods:
        for values in itertools.product(*method.values.values()):
            parameters = tuple(zip(method.values, values, strict=True))
            spec = None if method.rule is None else _spec(method.rule, parameters)
            yield Point(spec, method.arbiter, method.name, parameters)


def _spec(rule: str, parameters: Sequence[tuple[str, Any]]) -> str:
    added = ",".join(f"{name}={value}" for name, value in parameters)
    if not added:
        return rule
    return f"{rule},{added}" if ":" in rule else f"{rule}:{added}"


def parameters_of(spec: str) -> dict[str, Any]:
    """The parameters of a canonical spec by name."""
    name, colon, text = spec.partition(":")
    return dict(RULES[name].read(RULES[name].taken_apart(text)[1])) if colon else {}


@dataclass(frozen=True, slots=True)
class Group:
    """Cells decoded under the same settings: one sampling and one K, or no K for the target alone."""

    sampling: Sampling
    num_draft_tokens: int | None
    methods: tuple[str, ...]

    @property
    def folder(self) -> str:
        """The name of the group's directory."""
        last = TARGET if self.num_draft_tokens is None else f"k{self.num_draft_tokens}"
        return f"{sampling_name(self.sampling)}/{last}"


def sampling_name(sampling: Sampling) -> str:
    """`temperature=0.6,top_p=0.95`: what is not at its default, and always the temperature."""
    default = Sampling()
    names = [name for name in Sampling.__slots__ if getattr(sampling, name) != getattr(default, name)]
    return ",".join(f"{name}={show(getattr(sampling, name))}" for name in dict.fromkeys(("temperature", *names)))


def groups_of(grid: Grid, rules: dict[str, str]) -> list[Group]:
    """All cells, by sampling and then by K, the target alone first; ``rules`` maps names of methods to their rules'.

    ValueError for an ``only`` that names a rule which no method has.
    """
    groups = []
    for entry in grid.samplings:
        unknown = [name for name in entry.only if name not in rules.values()]
        if unknown:
            raise ValueError(
                f"the sampling at temperature {entry.temperature:g} is only for {unknown[0]!r}, which no "
                "method of the grid is: drop it there, or add the method"
            )
        methods = tuple(name for name, rule in rules.items() if not entry.only or rule in entry.only)
        groups.append(Group(entry.sampling, None, ("target",)))
        groups += [Group(entry.sampling, k, methods) for k in grid.num_draft_tokens]
    return groups
