"""The options of `cospec sweep`: how a grid is spelt on the command line, and which contradict a grid file."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cospec.cli.options import named_directory
from cospec.cli.outputs import check_directory, check_files_within
from cospec.cli.problem_options import DecodingOptions, check_margin

if TYPE_CHECKING:
    from cospec.cli.loading import DecodeOptions
    from cospec.evaluation.sweep.grid import Grid, MethodGrid, SamplingGrid
    from cospec.evaluation.sweep.plots import Speed

GridOption = Annotated[
    Path | None, typer.Option("--grid", metavar="GRID.yaml", help="The grid as a file: docs/sweep.md has its keys.")
]
RulesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--rule",
        "--methods",
        metavar="SPEC[ SPEC...]",
        help="Rules, such as strict or cactus:delta=0.25; several with spaces, or by repeating the option.",
    ),
]
ValuesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--values",
        metavar="RULE:PARAM=V,V,...",
        help="Values of a parameter of a rule of --rule, of an arbiter by name, or of all: `arbiter:threshold`.",
    ),
]
LengthsOption = Annotated[
    str, typer.Option("--num-draft-tokens", metavar="K,K,...", help="Draft tokens a round, with commas.")
]
TemperaturesOption = Annotated[
    str, typer.Option("--temperature", metavar="T,T,...", help="Temperatures, with commas; 0 is greedy.")
]
CRelOption = Annotated[
    float | None,
    typer.Option("--c-rel", metavar="RATIO", help="Model speeds at this cost of a draft step; left out: measure it."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show the cells and the work there is; decode nothing.")]
ParquetOption = Annotated[bool, typer.Option("--parquet", help="Write the table as Parquet too.")]
PlotOption = Annotated[bool, typer.Option("--plot", help="Draw accuracy against both speed-ups.")]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="RUN_DIR", help="Directory for table and samples; a stopped sweep goes on."),
]

#: The speed-ups that `--plot` draws, and the file of each.
PICTURES: Mapping[Speed, str] = {
    "modelled_speedup": "modelled_speedup.png",
    "clock_speedup": "clock_speedup.png",
}
#: What a grid file may hold, and the options that say the same.
_IN_FILE = {
    "methods": ("rule", "values", "arbiter"),
    "num_draft_tokens": ("num_draft_tokens",),
    "samplings": ("temperature", "top_k", "top_p", "min_p", "repetition_penalty"),
    "tasks": ("task",),
    "num": ("num",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions(DecodingOptions):
    """All options of the command under the names of its parameters; ``given`` are those that the user wrote."""

    grid: Path | None
    rule: list[str] | None
    values: list[str] | None
    arbiter: list[str] | None
    num_draft_tokens: str
    temperature: str
    repeats: int
    margin: float
    c_rel: float | None
    out: Path | None
    rescore: bool
    dry_run: bool
    parquet: bool
    plot: bool
    given: frozenset[str]

    def resolved(self) -> tuple[SweepOptions, Grid]:
        """The grid of the file, of the options where it is silent, and the options with the file's tasks.

        ValueError for contradictions.
        """
        from cospec.config import keys_of, load_config
        from cospec.evaluation.sweep.grid import Grid

        if self.grid is not None:
            refuse_both(self.grid, _IN_FILE, self.given)
        grid = load_config(Grid, self.grid, [])
        grid = replace(grid, **self._grid(() if self.grid is None else keys_of(self.grid)))
        return replace(self, task=grid.tasks or self.task, num=grid.num or self.num), grid

    @property
    def makes_parquet(self) -> bool:
        """Whether the table is written as Parquet: it is asked for, or there from before."""
        from cospec.evaluation.sweep.store import PARQUET

        return self.parquet or (self.out is not None and (self.out / PARQUET).exists())

    @property
    def makes_plots(self) -> bool:
        """Whether pictures are drawn: they are asked for, or there from before."""
        return self.plot or (self.out is not None and any((self.out / name).exists() for name in PICTURES.values()))

    def check(self) -> None:
        """ValueError for options that contradict each other; loads nothing."""
        from cospec.evaluation.sweep.store import COSTS, PARQUET, TABLE

        self.check_problems()
        if self.out is None and not self.dry_run:
            raise ValueError("a sweep is long work and writes as it goes: add --out RUN_DIR")
        check_directory(self.out)
        if self.out is not None:
            check_files_within(self.out, [TABLE, PARQUET, COSTS, *PICTURES.values()])
        if self.rescore and self.dry_run:
            raise ValueError("--rescore judges texts and --dry-run does nothing: drop one of the two")
        check_margin(self.margin)
        if self.c_rel is not None and not 0 < self.c_rel < float("inf"):
            raise ValueError(f"--c-rel is {self.c_rel}: it is a draft step's time by a target step's, above 0")

    def _grid(self, in_file: Collection[str]) -> dict[str, Any]:
        """What the options say of the grid, but for what a file says."""
        found: dict[str, Any] = {}
        if "methods" not in in_file:
            found["methods"] = methods_of(self.rule or [], self.values or [], self.arbiter or [])
        if "num_draft_tokens" not in in_file:
            found["num_draft_tokens"] = _numbers("--num-draft-tokens", self.num_draft_tokens, int)
        if "samplings" not in in_file:
            found["samplings"] = self._samplings()
        return found

    def _samplings(self) -> list[SamplingGrid]:
        from cospec.evaluation.sweep.grid import SamplingGrid

        samplings = []
        for temperature in _numbers("--temperature", self.temperature, float):
            # A greedy token is not drawn: what narrows the draw is for the temperatures above 0.
            drawn = {"top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p} if temperature else {}
            samplings.append(SamplingGrid(temperature, repetition_penalty=self.repetition_penalty, **drawn))  # type: ignore[arg-type]
        if not any(sampling.temperature for sampling in samplings):
            for name in ("top_k", "top_p", "min_p"):
                if name in self.given:
                    option = "--" + name.replace("_", "-")
                    raise ValueError(f"{option} is for temperatures above 0, and there is none: drop it, or add one")
        return samplings

    def decoding(self) -> DecodeOptions:
        """The options that all cells share; sampling and K are each group's own."""
        from cospec.cli.loading import decode_options_of

        values = {field.name: getattr(self, field.name) for field in fields(self)}
        own = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
        return decode_options_of(values | own | {"num_draft_tokens": 1, "cost_ratio": None})


def refuse_both(file: Path, keys: dict[str, tuple[str, ...]], given: Collection[str]) -> None:
    """ValueError naming both places of what is said by a key of the file and by an option."""
    from cospec.config import keys_of

    for key in keys_of(file):
        for name in keys.get(key, ()):
            if name in given:
                option = "--" + name.replace("_", "-")
                raise ValueError(f"{option} is given and {file} has `{key}`, which says the same: drop one of the two")


def methods_of(rules: Sequence[str], values: Sequence[str], arbiters: Sequence[str]) -> list[MethodGrid]:
    """The methods of a grid as the options spell them; ValueError for values of a method that is not there."""
    from cospec.evaluation.sweep.grid import MethodGrid

    specs = [spec for text in rules for spec in text.split()]
    for head in (spec.partition(":")[0] for spec in specs):
        if "," in head and "=" not in head:
            raise ValueError(f'--rule has {head!r}: several rules stand with spaces between, as in "strict cactus"')
    if not specs and not arbiters:
        raise ValueError("no methods: name rules with --rule, arbiters with --arbiter, or a grid with --grid")
    named = [named_directory(text) for text in arbiters]
    names = [name or directory.resolve().name for name, directory in named]
    found = {spec: dict[str, list[Any]]() for spec in (*specs, *names)}
    for text in values:
        spec, parameter, given = _split_values(text)
        for method in _meant(text, spec, specs, names):
            if parameter in found[method]:
                raise ValueError(f"--values {text}: {method} has values of {parameter} already: drop one of the two")
            found[method][parameter] = given
    grids = [MethodGrid(rule=spec, values=found[spec]) for spec in dict.fromkeys(specs)]
    if len(grids) < len(specs):
        twice = next(spec for spec in specs if specs.count(spec) > 1)
        raise ValueError(f"--rule names {twice} twice: drop one")
    for method, (name, directory) in zip(names, named, strict=True):
        grids.append(MethodGrid(arbiter=str(directory), name=name, values=found[method]))
    return grids


def _meant(text: str, spec: str, specs: Sequence[str], arbiters: Sequence[str]) -> list[str]:
    """The methods that `--values` of ``spec`` are for: one by its spec, name or rule alone, or all arbiters."""
    if spec in (*specs, *arbiters):
        return [spec]
    if spec == "arbiter" and arbiters:
        return list(dict.fromkeys(arbiters))
    of_rule = [one for one in specs if one.partition(":")[0] == spec]
    if len(of_rule) == 1:
        return of_rule
    known = ", ".join([*specs, *arbiters, *(["arbiter (all of them)"] if arbiters else [])])
    raise ValueError(f"--values {text}: no method is called {spec!r}; there are {known}")


def _split_values(text: str) -> tuple[str, str, list[Any]]:
    """`RULE:PARAM=V,V`; the rule may have parameters of its own before the last comma: `fly:window=6,theta=0.1,0.3`."""
    head, equals, given = text.rpartition("=")
    cut = max(head.rfind(":"), head.rfind(","))
    spec, parameter = head[:cut], head[cut + 1 :].strip()
    values = [value.strip() for value in given.split(",")]
    if not equals or cut < 1 or not parameter or not all(values):
        raise ValueError(f"--values {text!r}: write RULE:PARAM=V,V, such as cactus:delta=0.1,0.25,1")
    return spec, parameter, values


def _numbers(option: str, text: str, kind: type[Any]) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        what = "whole numbers" if kind is int else "numbers"
        raise ValueError(f"{option} is {text!r}: write {what} with commas, such as 3,5,10") from None
