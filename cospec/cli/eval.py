"""`cospec eval`: several methods on the same problems, scored and compared with the target alone."""

from __future__ import annotations

from inspect import signature
from typing import Any

import typer

from cospec.cli import eval_options as own
from cospec.cli import problem_options as problems
from cospec.cli.decode_option import DecodeFileOption, settings_from_file
from cospec.cli.isolation import IsolationOption
from cospec.cli.options import (
    AttnOption,
    BatchSizeOption,
    BonusOption,
    CostRatioOption,
    DeviceOption,
    DrafterOption,
    DraftOption,
    DtypeOption,
    EosOption,
    JsonOption,
    MaxNewTokensOption,
    MinPOption,
    NumDraftTokensOption,
    PackedOption,
    PairOption,
    PenaltyOption,
    PromptsOption,
    RawOption,
    ScorerOption,
    SeedOption,
    StopOption,
    TargetOption,
    TemperatureOption,
    ThresholdOption,
    TopKOption,
    TopPOption,
    written,
)


def command(
    context: typer.Context,
    prompts: PromptsOption = None,
    task: problems.TaskOption = None,
    data: problems.DataOption = None,
    num: problems.NumOption = None,
    shots: problems.ShotsOption = 0,
    system_prompt: problems.SystemPromptOption = None,
    raw: RawOption = False,
    scorer: ScorerOption = None,
    train_prompts: own.TrainPromptsOption = None,
    methods: own.MethodsOption = "target,draft,strict",
    arbiter: own.ArbitersOption = None,
    decode: DecodeFileOption = None,
    threshold: ThresholdOption = 0.5,
    repeats: own.RepeatsOption = 1,
    workers: problems.WorkersOption = 1,
    confirm_run_unsafe_code: problems.ConsentOption = False,
    minimum_isolation: IsolationOption = None,
    max_failed_share: problems.FailedShareOption = 0.05,
    margin: own.MarginOption = 0.02,
    oracle_branch: own.OracleOption = 0,
    spot_check: own.SpotCheckOption = 0,
    out: own.OutOption = None,
    rescore: own.RescoreOption = False,
    keep_rollouts: own.RolloutsOption = False,
    against: own.AgainstOption = None,
    plot: own.PlotOption = None,
    pair: PairOption = None,
    draft: DraftOption = None,
    target: TargetOption = None,
    bonus: BonusOption = None,
    drafter: DrafterOption = None,
    num_draft_tokens: NumDraftTokensOption = 5,
    cost_ratio: CostRatioOption = None,
    max_new_tokens: MaxNewTokensOption = 512,
    eos_token_id: EosOption = None,
    stop: StopOption = None,
    batch_size: BatchSizeOption = 8,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    repetition_penalty: PenaltyOption = 1.0,
    seed: SeedOption = 0,
    packed: PackedOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    attn: AttnOption = None,
    json: JsonOption = False,
) -> None:
    """Compare methods on the same problems: accuracy, tokens per round, speed. docs/evaluation.md says how.

    The target alone is always measured, as every other number is read against it. With --out, samples are written as
    they end and are not decoded again by a later run with the same settings.
    """
    _run({name: value for name, value in locals().items() if name != "context"}, written(context))


def _run(given: dict[str, Any], written: frozenset[str]) -> None:
    """The command, of its parameters by name and those that the user wrote."""
    if given["decode"] is not None:
        given = settings_from_file(given["decode"], given, written)
    options = own.EvalOptions(**given)
    if options.against is not None and options.prompts is None and not options.task:
        _compare_finished(options)
        return
    from cospec.cli.eval_run import run_evaluation

    run_evaluation(options)


def _compare_finished(options: own.EvalOptions) -> None:
    from cospec.cli.eval_report import compare_finished

    _refuse_all_but(options, ("out", "against", "margin", "json"))
    problems.check_margin(options.margin)
    assert options.against
    compare_finished(options.out, options.against, options.margin, options.json)


def _refuse_all_but(options: own.EvalOptions, allowed: tuple[str, ...]) -> None:
    """ValueError for options that comparing two finished runs would ignore."""
    for name, parameter in signature(command).parameters.items():
        if name not in (*allowed, "context") and getattr(options, name) != parameter.default:
            raise ValueError(
                f"--{name.replace('_', '-')} has no place in a comparison of two finished runs: name problems with "
                "--prompts or --task to evaluate first, or drop it"
            )
