"""The options of `cospec tune`: how they are spelt, and which contradict each other."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cospec.cli.problem_options import DecodingOptions

if TYPE_CHECKING:
    from cospec.cli.loading import DecodeOptions

LengthsOption = Annotated[
    str, typer.Option("--num-draft-tokens", metavar="K,K,...", help="The numbers of draft tokens to choose from.")
]
ProbeOption = Annotated[
    int, typer.Option("--probe", metavar="N", min=1, help="Problems from which K is chosen; strict decodes them once.")
]
BudgetOption = Annotated[
    float | None,
    typer.Option(
        "--budget",
        metavar="POINTS",
        help="Choose a rule too: the fastest that certainly loses less accuracy than this. Left out: K alone.",
    ),
]
ConfidenceOption = Annotated[
    float, typer.Option("--confidence", help="How certain, for all candidates together: 1 minus the error allowed.")
]
ConfirmOption = Annotated[
    int,
    typer.Option("--confirm", metavar="N", min=0, help="Compare the choice with the target on N problems kept back."),
]
OutOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE.yaml", help="Write the choice here, for --decode.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions(DecodingOptions):
    """All options of the command under the names of its parameters."""

    num_draft_tokens: str
    probe: int
    budget: float | None
    confidence: float
    rule: list[str] | None
    values: list[str] | None
    arbiter: list[str] | None
    confirm: int
    out: Path | None
    temperature: float

    @property
    def lengths(self) -> list[int]:
        """The numbers of draft tokens to choose from, ascending; ValueError for what is none."""
        try:
            found = sorted({int(part) for part in self.num_draft_tokens.split(",")})
        except ValueError:
            found = []
        if not found or found[0] < 1:
            raise ValueError(
                f"--num-draft-tokens is {self.num_draft_tokens!r}: write whole numbers from 1 on with commas, such as "
                "1,3,5"
            )
        return found

    def check(self) -> None:
        """ValueError for options that contradict each other; loads nothing."""
        from cospec.cli.outputs import check_output

        self.check_problems()
        if len(self.task or [""]) > 1:
            raise ValueError("--task is given twice: what is tuned on one task does not hold for another, so tune each")
        if self.budget is None:
            for name in ("rule", "values", "arbiter", "bonus", "confirm"):
                if getattr(self, name):
                    raise ValueError(f"--{name} is for choosing a rule: add --budget POINTS, or drop it")
        elif not 0 < self.budget < 100:
            raise ValueError(f"--budget is {self.budget}: it is in points of accuracy, above 0, such as 1.0")
        if not 0.5 <= self.confidence < 1:
            raise ValueError(f"--confidence is {self.confidence}: it lies in [0.5, 1), such as 0.95")
        if self.lengths[-1] > self.max_new_tokens:
            raise ValueError(
                f"--num-draft-tokens offers {self.lengths[-1]}, and texts end at {self.max_new_tokens} tokens: offer "
                "shorter blocks, or raise --max-new-tokens"
            )
        if self.out is not None:
            check_output("--out", self.out, [self.prompts])

    def decoding(self) -> DecodeOptions:
        """The options that decide how texts are decoded, at the largest K."""
        from cospec.cli.loading import decode_options_of

        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return decode_options_of(values | {"num_draft_tokens": self.lengths[-1], "cost_ratio": None})
