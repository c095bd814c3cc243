"""`cospec tune`: the K that pays, and the fastest rule that keeps an accuracy budget."""

from __future__ import annotations

from cospec.cli import problem_options as problems
from cospec.cli import tune_options as own
from cospec.cli.eval_options import ArbitersOption
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
    TemperatureOption,
    TopKOption,
    TopPOption,
)
from cospec.cli.sweep_options import RulesOption, ValuesOption


def command(
    prompts: PromptsOption = None,
    task: problems.TaskOption = None,
    data: problems.DataOption = None,
    num: problems.NumOption = None,
    shots: problems.ShotsOption = 0,
    system_prompt: problems.SystemPromptOption = None,
    raw: RawOption = False,
    scorer: ScorerOption = None,
    workers: problems.WorkersOption = 1,
    confirm_run_unsafe_code: problems.ConsentOption = False,
    minimum_isolation: IsolationOption = None,
    max_failed_share: problems.FailedShareOption = 0.05,
    num_draft_tokens: own.LengthsOption = "1,2,3,4,5,6,8,10",
    probe: own.ProbeOption = 16,
    budget: own.BudgetOption = None,
    confidence: own.ConfidenceOption = 0.95,
    rule: RulesOption = None,
    values: ValuesOption = None,
    arbiter: ArbitersOption = None,
    confirm: own.ConfirmOption = 0,
    out: own.OutOption = None,
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
    temperature: TemperatureOption = 0.0,
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
    """Choose K for strict, and with --budget the fastest rule that keeps it. docs/sweep.md says how.

    Measures what passes cost and what is accepted on a few problems of the task. With --budget, rules or arbiter
    thresholds are tried on further problems, each no longer than it takes to be certain.
    """
    options = own.TuneOptions(**locals())
    from cospec.cli.tune_run import run_tune

    run_tune(options)
