"""`cospec bench`: engines side by side on one pair: tokens/s, where the time goes, how near the models' own limit."""

from __future__ import annotations

from cospec.cli import bench_options as own
from cospec.cli.eval_options import ArbitersOption
from cospec.cli.options import (
    AttnOption,
    CompileOption,
    CostRatioOption,
    DeviceOption,
    DraftOption,
    DtypeOption,
    EosOption,
    JsonOption,
    MaxNewTokensOption,
    NumDraftTokensOption,
    PackedOption,
    PairOption,
    PromptsOption,
    RawOption,
    TargetOption,
    ThresholdOption,
)
from cospec.cli.problem_options import DataOption, TaskOption


def command(
    pair: PairOption = None,
    draft: DraftOption = None,
    target: TargetOption = None,
    prompts: PromptsOption = None,
    task: TaskOption = None,
    data: DataOption = None,
    num: own.NumOption = None,
    raw: RawOption = False,
    arbiter: ArbitersOption = None,
    threshold: ThresholdOption = 0.5,
    drafter: own.DraftersOption = None,
    batch: own.BatchOption = None,
    max_new_tokens: MaxNewTokensOption = 64,
    num_draft_tokens: NumDraftTokensOption = 5,
    cost_ratio: CostRatioOption = None,
    eos_token_id: EosOption = None,
    repeats: own.RepeatsOption = 5,
    vllm_python: own.VllmPythonOption = None,
    vllm_option: own.VllmOption = None,
    sweep: own.SweepOption = None,
    sweep_to: own.SweepToOption = None,
    compile_mode: CompileOption = None,
    packed: PackedOption = False,
    out: own.OutOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    attn: AttnOption = None,
    json: JsonOption = False,
) -> None:
    """Measure this engine beside transformers and vLLM, and against what the pair's models allow.

    Same pair, prompts, dtype, threads and ends for all, greedy; every repeat runs every cell once. With --sweep, how a
    round's cost grows instead. docs/benchmark.md defines every number.
    """
    options = own.BenchOptions(**locals())
    from cospec.cli.bench_run import run_bench

    run_bench(options)
