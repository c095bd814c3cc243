"""The options of `cospec eval`: how they are spelt, and which contradict each other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from cospec.cli.loading import DecodeOptions

#: What `cospec.scoring.code` looks for before it runs anything.
CONSENT = "COSPEC_ALLOW_CODE_EXECUTION"

# --- problems --------------------------------------------------------------------------------------------------------

TaskOption = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="NAME[@SPLIT]", help="A benchmark, such as gsm8k or mgsm:de; repeatable."),
]
DataOption = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="[NAME=]PATH",
        help="Local data of a task, or a folder with one per task; else $COSPEC_DATA, the Hub.",
    ),
]
NumOption = Annotated[
    list[str] | None,
    typer.Option("--num", metavar="[NAME=]N", help="How many problems of each or of one task; left out: the task's."),
]
ShotsOption = Annotated[int, typer.Option("--shots", min=0, help="Worked examples before each question.")]
SystemPromptOption = Annotated[str | None, typer.Option("--system-prompt", help="Opens every chat of a task.")]
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
WorkersOption = Annotated[int, typer.Option("--workers", min=1, help="Programs of a code task run at once.")]
ConsentOption = Annotated[
    bool,
    typer.Option(
        "--confirm-run-unsafe-code", "--confirm_run_unsafe_code", help="Agree to run code that a model has written."
    ),
]
FailedShareOption = Annotated[
    float, typer.Option("--max-failed-share", min=0, max=1, help="Stop where scoring itself fails more often.")
]
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


@dataclass(frozen=True, slots=True)
class EvalOptions:
    """All options of the command under the names of its parameters."""

    prompts: Path | None
    task: list[str] | None
    data: list[str] | None
    num: list[str] | None
    shots: int
    system_prompt: str | None
    raw: bool
    scorer: str | None
    train_prompts: list[Path] | None
    methods: str
    arbiter: list[str] | None
    threshold: float
    repeats: int
    workers: int
    confirm_run_unsafe_code: bool
    max_failed_share: float
    margin: float
    oracle_branch: int
    spot_check: int
    out: Path | None
    rescore: bool
    keep_rollouts: bool
    against: Path | None
    plot: Path | None
    pair: Path | None
    draft: str | None
    target: str | None
    bonus: Literal["arbitrated", "target", "rule"] | None
    drafter: str | None
    num_draft_tokens: int
    cost_ratio: float | None
    max_new_tokens: int
    eos_token_id: list[int] | None
    stop: list[str] | None
    batch_size: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    seed: int
    packed: bool
    device: str | None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None
    attn: Literal["sdpa", "eager"] | None
    json: bool

    def check(self) -> None:
        """ValueError for options that contradict each other; loads nothing."""
        self._check_problems()
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise ValueError(f"--out {self.out} is a file: name a directory")
        for option, given in (("--rescore", self.rescore), ("--keep-rollouts", self.keep_rollouts)):
            if given and self.out is None:
                raise ValueError(f"{option} works on a run directory: add --out RUN_DIR")
        if self.oracle_branch and not self.arbiter:
            raise ValueError("--oracle-branch checks an arbiter's decisions, and there is none: add --arbiter DIR")
        self.check_margin()
        if self.repeats > 1 and self.temperature == 0:
            raise ValueError(f"--repeats {self.repeats} at temperature 0 repeats one text: add --temperature")
        if self.confirm_run_unsafe_code:
            os.environ[CONSENT] = "1"

    def check_margin(self) -> None:
        """ValueError for a margin that is no share."""
        if not 0 < self.margin < 1:
            raise ValueError(f"--margin is {self.margin}: it is a share of the problems, such as 0.02")

    def _check_problems(self) -> None:
        if (self.prompts is None) == (not self.task):
            raise ValueError("problems come from --prompts FILE.jsonl or from --task NAME: give one of the two")
        own = ("data", "num", "shots", "system_prompt")
        for name in own if self.prompts is not None else ():
            if getattr(self, name):
                raise ValueError(
                    f"--{name.replace('_', '-')} is for tasks and --prompts is a file of finished prompts: drop it, or "
                    "use --task"
                )
        if self.scorer is not None and len(self.task or []) > 1:
            raise ValueError("--scorer replaces the scorer of one task and there are several: run them one by one")

    @property
    def models(self) -> tuple[Path | None, str | None, str | None, str | None, str | None, str | None]:
        """The options that name the pair, in the order of `read_pair_spec`."""
        return self.pair, self.draft, self.target, self.device, self.dtype, self.attn

    def decoding(self) -> DecodeOptions:
        """The options that decide how texts are decoded."""
        from cospec.cli.loading import decode_options_of

        return decode_options_of({name: getattr(self, name) for name in self.__slots__})
