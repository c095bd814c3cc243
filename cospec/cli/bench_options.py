"""The options of `cospec bench`: how they are spelt, and which contradict each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cospec.cli.options import one_of_several
from cospec.cli.outputs import check_directory

if TYPE_CHECKING:
    from cospec.cli.loading import DecodeOptions
    from cospec.engine.compiled import CompileMode
    from cospec.engine.drafters import Drafter

SweepKind = Literal["context", "batch"]
#: What a sweep can be over, as `cospec.evaluation.bench.sweep` has them.
SWEEPS: tuple[SweepKind, ...] = ("context", "batch")
DEFAULT_BATCHES = (1, 8)
DEFAULT_NUM = 8
_TINY_TASK = "word_problems"

NumOption = Annotated[
    list[str] | None,
    typer.Option("--num", metavar="[NAME=]N", help="How many problems of each or of one task; left out: 8."),
]
DraftersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--drafter",
        metavar="NAME[:PATH][:PARAM=VALUE,...]",
        help="Strict decoding with this drafter as one more method; repeatable.",
    ),
]
BatchOption = Annotated[
    list[int] | None,
    typer.Option(
        "--batch",
        metavar="N",
        parser=one_of_several,
        help="Texts in flight; repeatable; left out: 1 and 8 (in a sweep: 1).",
    ),
]
RepeatsOption = Annotated[int, typer.Option("--repeats", help="Runs of every cell; ratios are taken within a repeat.")]
VllmPythonOption = Annotated[
    Path | None,
    typer.Option("--vllm-python", metavar="PYTHON", help="Python of an environment with vLLM, to measure it too."),
]
VllmOption = Annotated[
    list[str] | None,
    typer.Option("--vllm-option", metavar="NAME=VALUE", help="Goes to vllm.LLM as it is; repeatable."),
]
SweepOption = Annotated[
    list[str] | None,
    typer.Option("--sweep", metavar="context|batch", help="How a round's cost grows with it; repeatable."),
]
SweepToOption = Annotated[int | None, typer.Option("--sweep-to", metavar="N", help="The last point of the sweep.")]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Directory for results, repeats and plots; a stopped bench goes on."),
]


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """All options of the command under the names of its parameters."""

    pair: Path | None
    draft: str | None
    target: str | None
    prompts: Path | None
    task: list[str] | None
    data: list[str] | None
    num: list[str] | None
    raw: bool
    arbiter: list[str] | None
    threshold: float
    drafter: list[str] | None
    batch: list[int] | None
    max_new_tokens: int
    num_draft_tokens: int
    cost_ratio: float | None
    eos_token_id: list[int] | None
    repeats: int
    vllm_python: Path | None
    vllm_option: list[str] | None
    sweep: list[str] | None
    sweep_to: int | None
    compile_mode: CompileMode | None
    packed: bool
    out: Path | None
    device: str | None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] | None
    attn: Literal["sdpa", "eager"] | None
    json: bool

    @property
    def models(self) -> tuple[Any, ...]:
        """What names and places the pair."""
        return self.pair, self.draft, self.target, self.device, self.dtype, self.attn

    @property
    def batches(self) -> tuple[int, ...]:
        if self.batch:
            return tuple(self.batch)
        return (1,) if self.sweep else DEFAULT_BATCHES

    def fitting(self, num_prompts: int) -> BenchOptions:
        """These options without the default batches that so few prompts would never fill."""
        if self.batch or self.sweep:
            return self
        return replace(self, batch=[batch for batch in DEFAULT_BATCHES if batch <= num_prompts])

    def drafters(self) -> list[Drafter]:
        """The drafters to measure beside the draft model; ValueError for a spec that names none, or one twice."""
        from cospec.engine.drafters import drafter_named

        found = [drafter_named(spec) for spec in self.drafter or ()]
        names = ["model", *(drafter.spec for drafter in found)]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"--drafter {name} is measured already: drop it")
        return found

    @property
    def sweeps(self) -> tuple[SweepKind, ...]:
        """The sweeps asked for, once checked."""
        return tuple(kind for kind in SWEEPS if kind in (self.sweep or ()))

    @property
    def tasks(self) -> list[str]:
        """The tasks that prompts come from: those named, else the bundled problems for the bundled pair."""
        from cospec.pair_file import TINY

        default = [_TINY_TASK] if self.prompts is None and str(self.pair) == TINY else []
        return self.task or default

    def check(self) -> None:
        """ValueError for options that cannot be followed or contradict each other; loads nothing."""
        if self.repeats < 1:
            raise ValueError(f"--repeats is {self.repeats}: it must be at least 1")
        for batch in self.batch or ():
            if batch < 1:
                raise ValueError(f"--batch is {batch}: it must be at least 1")
        if len(set(self.batches)) < len(self.batches):
            raise ValueError(f"--batch {' --batch '.join(map(str, self.batches))}: one of them is there twice, drop it")
        check_directory(self.out)
        self._check_prompts()
        self._check_sweep()
        if self.vllm_option and self.vllm_python is None:
            raise ValueError("--vllm-option is given without --vllm-python: add it, or drop the option")

    def _check_prompts(self) -> None:
        if self.prompts is not None and self.task:
            raise ValueError("prompts come from --prompts FILE.jsonl or from --task NAME: give one of the two")
        if self.prompts is None and not self.tasks:
            raise ValueError("no prompts given: use --prompts FILE.jsonl or --task NAME")
        for name in ("data", "num") if self.prompts is not None else ():
            if getattr(self, name):
                raise ValueError(f"--{name} is for tasks and --prompts is a file of prompts: drop it, or use --task")

    def _check_sweep(self) -> None:
        for kind in self.sweep or ():
            if kind not in SWEEPS:
                raise ValueError(f"there is no sweep {kind!r}: choose {' or '.join(SWEEPS)}")
        if len(set(self.sweep or ())) < len(self.sweep or ()):
            raise ValueError(f"--sweep {' --sweep '.join(self.sweep or ())}: one of them is there twice, drop it")
        if self.sweep_to is not None and len(self.sweep or ()) != 1:
            raise ValueError("--sweep-to ends one sweep: give exactly one --sweep with it")
        if self.sweep and self.drafter:
            raise ValueError("--sweep measures rounds with the draft model, and --drafter has no place in it: drop one")
        if self.sweep_to is not None and self.sweep_to < 1:
            raise ValueError(f"--sweep-to is {self.sweep_to}: it must be at least 1")
        if self.sweep and self.vllm_python is not None:
            raise ValueError("--sweep measures this engine's rounds, and --vllm-python has no place in it: drop one")
        if self.sweep and self.compile_mode is not None:
            raise ValueError("--sweep measures plain passes, and --compile has no place in it: drop one")
        if self.sweep and self.eos_token_id:
            raise ValueError("--sweep lets no text end before its cap, and --eos-token-id has no place in it: drop one")
        if self.sweep and self.batch and ("batch" in self.sweep or len(self.batch) > 1):
            raise ValueError(
                "a sweep of the batch takes no --batch and one of the context a single one: drop what is too much"
            )

    def extra_vllm(self) -> dict[str, Any]:
        """The options for vLLM, with their values read as YAML."""
        import yaml

        found: dict[str, Any] = {}
        for text in self.vllm_option or ():
            name, equals, value = text.partition("=")
            if not equals or not name.isidentifier():
                raise ValueError(f"--vllm-option {text!r}: write NAME=VALUE, such as gpu_memory_utilization=0.4")
            try:
                found[name] = yaml.safe_load(value)
            except yaml.YAMLError as error:
                raise ValueError(f"--vllm-option {text!r}: the value is no YAML ({error})") from error
        return found

    def decoding(self) -> DecodeOptions:
        """The options that decide how texts are decoded."""
        from cospec.cli.loading import DecodeOptions
        from cospec.engine.record import Sampling

        return DecodeOptions(
            sampling=Sampling(),
            num_draft_tokens=self.num_draft_tokens,
            cost_ratio=self.cost_ratio,
            max_new_tokens=self.max_new_tokens,
            eos_token_ids=tuple(self.eos_token_id) if self.eos_token_id else None,
            batch_size=max(self.batches),
            compile_mode=self.compile_mode,
            packed=self.packed,
        )
