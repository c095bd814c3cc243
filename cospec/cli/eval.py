"""`cospec eval`: several methods on the same prompts, scored and compared with the target alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cospec.cli.options import (
    AttnOption,
    BatchSizeOption,
    BonusOption,
    DeviceOption,
    DraftOption,
    DtypeOption,
    EosOption,
    JsonOption,
    MaxNewTokensOption,
    NumDraftTokensOption,
    PairOption,
    PromptsOption,
    RawOption,
    ScorerOption,
    SeedOption,
    TargetOption,
    TemperatureOption,
    ThresholdOption,
    TopKOption,
    TopPOption,
    on_interrupt,
)
from cospec.jsonl import dumps
from cospec.prompt_rows import PromptRow, common_task, load_prompt_rows

if TYPE_CHECKING:
    from cospec.cli.loading import DecodeOptions
    from cospec.evaluation import Evaluation, Method
    from cospec.evaluation.run import EvalRun
    from cospec.pair import Pair
    from cospec.scoring import UserScorer


TaskOption = Annotated[
    Literal["word_problems"] | None, typer.Option("--task", help="Bundled problems instead of --prompts.")
]


def command(
    prompts: PromptsOption = None,
    task: TaskOption = None,
    num: Annotated[int | None, typer.Option("--num", help="How many problems of the task; 200 if left out.")] = None,
    methods: Annotated[
        str, typer.Option("--methods", help="Of target, draft and the rules without an arbiter, with commas.")
    ] = "target,draft,strict",
    arbiter: Annotated[
        list[str] | None,
        typer.Option("--arbiter", metavar="[NAME=]DIR", help="A trained arbiter as one more method; repeatable."),
    ] = None,
    threshold: ThresholdOption = 0.5,
    scorer: ScorerOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="RUN_DIR", help="Directory for results and samples; a stopped run goes on."),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE.png", help="Draw the results here.")] = None,
    pair: PairOption = None,
    draft: DraftOption = None,
    target: TargetOption = None,
    bonus: BonusOption = None,
    num_draft_tokens: NumDraftTokensOption = 5,
    max_new_tokens: MaxNewTokensOption = 512,
    eos_token_id: EosOption = None,
    batch_size: BatchSizeOption = 8,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    raw: RawOption = False,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    attn: AttnOption = None,
    json: JsonOption = False,
) -> None:
    """Compare methods on the same prompts: accuracy, tokens per round, speed.

    The target alone is always measured, as every other number is read against it. With --out, samples are written as
    they end and are not decoded again by a later run with the same settings.
    """
    from cospec.cli.loading import decode_options, load_pair_from_options, read_pair_spec
    from cospec.cli.methods import build_methods, choose_methods, describe

    _check_outputs(out, plot)
    problems = Problems(*_rows_and_scorer(prompts, task, num, seed, scorer), raw)
    read_pair_spec(pair, draft, target, device, dtype, attn)
    options = decode_options(
        temperature, top_k, top_p, eos_token_id, bonus, num_draft_tokens, max_new_tokens, batch_size, seed
    )
    choices = choose_methods(methods, arbiter or [], threshold)
    loaded = load_pair_from_options(pair, draft, target, device, dtype, attn)
    options.check_ids(loaded)
    built = build_methods(choices, loaded, options)
    settings = problems.describe() | describe(loaded, options, choices, built)
    run = _open_run(out, settings)
    evaluation = _evaluate(loaded, built, problems, options, run)
    _report(evaluation, settings, options.num_draft_tokens, run, plot, json)


def _check_outputs(out: Path | None, plot: Path | None) -> None:
    if out is not None and out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: name a directory")
    if plot is not None:
        from cospec.evaluation.plots import require_matplotlib

        require_matplotlib()


# --- what is asked for -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problems:
    """The rows, and how they are read and scored."""

    rows: list[PromptRow]
    scorer_name: str
    raw: bool

    def scorer(self) -> UserScorer:
        from cospec.scoring import scorer_for

        return scorer_for(self.scorer_name)

    def describe(self) -> dict[str, Any]:
        from cospec.cli.methods import describe_rows

        return describe_rows(self.rows) | {"scorer": self.scorer_name, "raw": self.raw}


def _rows_and_scorer(
    prompts: Path | None, task: str | None, num: int | None, seed: int, scorer: str | None
) -> tuple[list[PromptRow], str]:
    if (prompts is None) == (task is None):
        raise ValueError("problems come from --prompts FILE.jsonl or from --task word_problems: give one of the two")
    if task is None and num is not None:
        raise ValueError("--num counts generated problems and --prompts is a file: drop --num, or use --task")
    if num is not None and num < 1:
        raise ValueError(f"--num is {num}: it must be at least 1")
    rows = _generated(num or 200, seed) if prompts is None else load_prompt_rows(prompts, require_gold=True)
    name = scorer or common_task(rows)
    from cospec.scoring import scorer_for

    scorer_for(name)
    return rows, name


def _generated(num: int, seed: int) -> list[PromptRow]:
    from cospec.tasks.word_problems import generate

    problems = generate(num, seed, split="eval")
    return [PromptRow(id=p.id, prompt=p.prompt, gold=p.gold, task="word_problems") for p in problems]


# --- the run ---------------------------------------------------------------------------------------------------------


def _open_run(out: Path | None, settings: Mapping[str, Any]) -> EvalRun | None:
    from cospec.evaluation.run import EvalRun

    return EvalRun(out, settings) if out is not None else None


def _evaluate(
    pair: Pair, methods: Sequence[Method], problems: Problems, options: DecodeOptions, run: EvalRun | None
) -> Evaluation:
    from cospec.cli.progress import progress
    from cospec.evaluation import EvalSettings, Sample, evaluate

    settings = EvalSettings(
        num_draft_tokens=options.num_draft_tokens,
        max_new_tokens=options.max_new_tokens,
        sampling=options.sampling,
        eos_token_ids=options.eos_token_ids,
        batch_size=options.batch_size,
        seed=options.seed,
        raw=problems.raw,
    )
    kept = run.samples() if run else {}
    num_missing = _announce_kept(kept, methods, len(problems.rows))

    def on_sample(method: str, sample: Sample) -> None:
        if run:
            run.add(method, sample)
        step()

    kept_where = f"all finished samples in {run.directory}" if run else "nothing (no --out was given)"
    with on_interrupt(lambda: kept_where), progress("eval", num_missing, "samples") as step:
        return evaluate(pair, methods, problems.rows, problems.scorer(), settings, kept=kept, on_sample=on_sample)


def _announce_kept(kept: Mapping[str, Sequence[Any]], methods: Sequence[Method], num_rows: int) -> int:
    """Say which methods go on from an earlier run; the number of samples still to decode."""
    num_missing = 0
    for method in methods:
        have = len(kept.get(method.name, ()))
        num_missing += num_rows - have
        if have:
            state = "not run again" if have == num_rows else "goes on"
            typer.echo(f"cospec: {method.name}: {have} of {num_rows} samples are there already, {state}", err=True)
    return num_missing


def _report(
    evaluation: Evaluation, settings: Mapping[str, Any], k: int, run: EvalRun | None, plot: Path | None, as_json: bool
) -> None:
    from cospec.evaluation import summary
    from cospec.evaluation.table import print_summary

    numbers = summary(evaluation, k) | {"settings": settings}
    if run:
        run.finish(numbers)
    if plot is not None:
        from cospec.evaluation.plots import plot_summary

        plot_summary(numbers, plot)
    if as_json:
        typer.echo(dumps(numbers))
    else:
        print_summary(numbers)
