"""The options that `cospec eval`, `sweep` and `tune` share: which models, which problems, and how these are judged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from cospec.cli.isolation import Level

#: What `cospec.scoring.code` looks for before it runs anything.
CONSENT = "COSPEC_ALLOW_CODE_EXECUTION"

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """The options that name the pair."""

    pair: Path | None
    draft: str | None
    target: str | None
    device: str | None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None
    attn: Literal["sdpa", "eager"] | None

    @property
    def models(self) -> tuple[Path | None, str | None, str | None, str | None, str | None, str | None]:
        """These in the order of `read_pair_spec`."""
        return self.pair, self.draft, self.target, self.device, self.dtype, self.attn


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemOptions(ModelOptions):
    """Problems, from tasks or from one file of finished prompts, and their scorer."""

    prompts: Path | None
    task: list[str] | None
    data: list[str] | None
    num: list[str] | None
    shots: int
    system_prompt: str | None
    raw: bool
    scorer: str | None
    workers: int
    confirm_run_unsafe_code: bool
    minimum_isolation: Level | None
    max_failed_share: float
    seed: int

    def check_problems(self) -> None:
        """ValueError for options that contradict each other; tells the code scorer of the consent."""
        if (self.prompts is None) == (not self.task):
            raise ValueError("problems come from --prompts FILE.jsonl or from --task NAME: give one of the two")
        own = ("data", "num", "shots", "system_prompt")
        for name in own if self.prompts is not None else ():
            if getattr(self, name):
                raise ValueError(
                    f"--{name.replace('_', '-')} is for tasks and --prompts is a file of finished prompts: drop it, or "
                    "use --task"
                )
        tasks = self.task or []
        if twice := [name for name in tasks if tasks.count(name) > 1]:
            raise ValueError(f"task {twice[0]} is named twice: drop one")
        if self.scorer is not None and len(tasks) > 1:
            raise ValueError("--scorer replaces the scorer of one task and there are several: run them one by one")
        if self.confirm_run_unsafe_code:
            os.environ[CONSENT] = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions(ProblemOptions):
    """How texts are decoded, but for what a sweep or a tuner chooses itself; and how results are shown."""

    bonus: Literal["arbitrated", "target", "rule"] | None
    drafter: str | None
    max_new_tokens: int
    eos_token_id: list[int] | None
    stop: list[str] | None
    batch_size: int
    packed: bool
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    json: bool


def check_margin(margin: float) -> None:
    """ValueError for a margin that is no share."""
    if not 0 < margin < 1:
        raise ValueError(f"--margin is {margin}: it is a share of the problems, such as 0.02")
