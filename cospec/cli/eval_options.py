"""The options of `cospec eval`: how they are spelt, and which contradict each other."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cospec.cli.outputs import check_directory
from cospec.cli.problem_options import DecodingOptions, check_margin

if TYPE_CHECKING:
    from cospec.cli.loading import DecodeOptions

# --- problems --------------------------------------------------------------------------------------------------------

TrainPromptsOption = Annotated[
    list[Path] | None,
    typer.Option("--train-prompts", metavar="FILE.jsonl", help="Look for these in the problems; repeatable."),
]

# --- methods ---------------------------------------------------------------------------------------------------------

MethodsOption = Annotated[
    str,
    typer.Option(
        "--methods", help="Of target, draft and the rules, with commas: draft,strict,cactus:delta=0.25,fly:window=4."
    ),
]
ArbitersOption = Annotated[
    list[str] | None,
    typer.Option("--arbiter", metavar="[NAME=]DIR", help="A trained arbiter as one more method; repeatable."),
]

# --- judging and comparing -------------------------------------------------------------------------------------------

RepeatsOption = Annotated[int, typer.Option("--repeats", min=1, help="Texts a problem, pass@1 over them.")]
MarginOption = Annotated[
    float, typer.Option("--margin", help="Loss of accuracy that still counts as not inferior to the target.")
]
OracleOption = Annotated[
    int, typer.Option("--oracle-branch", metavar="N", min=0, help="Check arbiters' decisions on N problems a task.")
]
SpotCheckOption = Annotated[
    int, typer.Option("--spot-check", metavar="N", min=0, help="Decode N problems a task again at batch size 1.")
]
AgainstOption = Annotated[
    Path | None,
    typer.Option("--against", metavar="RUN", help="Compare with an earlier run; without problems, --out with it."),
]

# --- the run ---------------------------------------------------------------------------------------------------------

OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="RUN_DIR", help="Directory for results and samples; a stopped run goes on."),
]
RescoreOption = Annotated[bool, typer.Option("--rescore", help="Judge the texts that are in --out again.")]
RolloutsOption = Annotated[bool, typer.Option("--keep-rollouts", help="Complete records too, for `cospec report`.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the results here.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions(DecodingOptions):
    """All options of the command under the names of its parameters."""

    train_prompts: list[Path] | None
    methods: str
    arbiter: list[str] | None
    decode: Path | None
    threshold: float
    repeats: int
    margin: float
    oracle_branch: int
    spot_check: int
    out: Path | None
    rescore: bool
    keep_rollouts: bool
    against: Path | None
    plot: Path | None
    num_draft_tokens: int
    cost_ratio: float | None
    temperature: float

    def check(self) -> None:
        """ValueError for options that contradict each other; loads nothing."""
        self.check_problems()
        check_directory(self.out)
        for option, given in (("--rescore", self.rescore), ("--keep-rollouts", self.keep_rollouts)):
            if given and self.out is None:
                raise ValueError(f"{option} works on a run directory: add --out RUN_DIR")
        check_margin(self.margin)
        if self.repeats > 1 and self.temperature == 0:
            raise ValueError(f"--repeats {self.repeats} at temperature 0 repeats one text: add --temperature")

    def decoding(self) -> DecodeOptions:
        """The options that decide how texts are decoded."""
        from cospec.cli.loading import decode_options_of

        return decode_options_of({field.name: getattr(self, field.name) for field in fields(self)})
