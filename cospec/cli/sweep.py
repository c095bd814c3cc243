"""`cospec sweep`: rules, parameters, K, samplings and tasks as one table beside the target alone."""

from __future__ import annotations

import typer

from cospec.cli import problem_options as problems
from cospec.cli import sweep_options as own
from cospec.cli.eval_options import ArbitersOption, MarginOption, RepeatsOption, RescoreOption
from cospec.cli.isolation import IsolationOption
from cospec.cli.options import (
    AttnOption,
    BatchSizeOption,
    BonusOption,
    DeviceOption,
    DrafterOption,
    DraftOption,
    DtypeOption,
    EosOption,
    JsonOption,
    MaxNewTokensOption,
    MinPOption,
    PackedOption,
    PairOption,
    PenaltyOption,
    PromptsOption,
    RawOption,
    ScorerOption,
    SeedOption,
    StopOption,
    TargetOption,
    TopKOption,
    TopPOption,
    written,
)


def command(
    context: typer.Context,
    grid: own.GridOption = None,
    rule: own.RulesOption = None,
    values: own.ValuesOption = None,
    arbiter: ArbitersOption = None,
    num_draft_tokens: own.LengthsOption = "5",
    prompts: PromptsOption = None,
    task: problems.TaskOption = None,
    data: problems.DataOption = None,
    num: problems.NumOption = None,
    shots: problems.ShotsOption = 0,
    system_prompt: problems.SystemPromptOption = None,
    raw: RawOption = False,
    scorer: ScorerOption = None,
    repeats: RepeatsOption = 1,
    workers: problems.WorkersOption = 1,
    confirm_run_unsafe_code: problems.ConsentOption = False,
    minimum_isolation: IsolationOption = None,
    max_failed_share: problems.FailedShareOption = 0.05,
    margin: MarginOption = 0.02,
    c_rel: own.CRelOption = None,
    out: own.OutOption = None,
    rescore: RescoreOption = False,
    dry_run: own.DryRunOption = False,
    parquet: own.ParquetOption = False,
    plot: own.PlotOption = False,
    pair: PairOption = None,
    draft: DraftOption = None,
    target: TargetOption = None,
    bonus: BonusOption = None,
    drafter: DrafterOption = None,
    max_new_tokens: MaxNewTokensOption = 512,
    eos_token_id: EosOption = None,
    stop: StopOption = None,
    batch_size: BatchSizeOption = 8,
    packed: PackedOption = False,
    temperature: own.TemperaturesOption = "0",
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    repetition_penalty: PenaltyOption = 1.0,
    seed: SeedOption = 0,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    attn: AttnOption = None,
    json: JsonOption = False,
) -> None:
    """Sweep rules, their parameters, K and sampling over tasks: accuracy against speed-up. docs/sweep.md.

    Every cell is compared with the target alone on the same problems. The table, OUT/cells.jsonl, has one line a cell;
    a sweep that was stopped goes on with the same command.
    """
    given = {name: value for name, value in locals().items() if name != "context"}
    options = own.SweepOptions(**given, given=written(context))
    from cospec.cli.sweep_run import run_sweep

    run_sweep(options)
