"""`cospec rollout`: decode a file of prompts into complete records for labelling and training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cospec.cli.lock import sole_appender
from cospec.cli.made_by import claim
from cospec.cli.methods import check_methods
from cospec.cli.options import (
    ArbiterOption,
    AttnOption,
    BatchSizeOption,
    BonusOption,
    CompileOption,
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
    OutOption,
    PackedOption,
    PairOption,
    PenaltyOption,
    PromptsOption,
    RawOption,
    RuleOption,
    SeedOption,
    StopOption,
    TargetOption,
    TemperatureOption,
    ThresholdOption,
    TopKOption,
    TopPOption,
    on_interrupt,
)
from cospec.cli.outgrown import Outgrown
from cospec.cli.outputs import check_output
from cospec.cli.rows_to_decode import rows_to_decode
from cospec.jsonl import dumps
from cospec.prompt_rows import PromptRow

if TYPE_CHECKING:
    from cospec.engine.decode import Engine
    from cospec.engine.record import Bonus, Rollout
    from cospec.engine.request import Request


def command(
    prompts: PromptsOption = None,
    out: OutOption = None,
    pair: PairOption = None,
    draft: DraftOption = None,
    target: TargetOption = None,
    rule: RuleOption = None,
    arbiter: ArbiterOption = None,
    threshold: ThresholdOption = 0.5,
    sampled: Annotated[
        bool, typer.Option("--sampled", help="Draw the arbiter's decisions from its probabilities, as in training.")
    ] = False,
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
    raw: RawOption = False,
    seed: SeedOption = 0,
    compile_mode: CompileOption = None,
    packed: PackedOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    attn: AttnOption = None,
    json: JsonOption = False,
) -> None:
    """Write complete rollout records of a file of prompts, one JSON line each, as they end.

    Prompts whose records are in the file are left out, so that an interrupted run goes on. The rule is `never` unless
    told otherwise: what the warm-up is trained on.
    """
    given, (rows, out) = locals(), _check_files(prompts, out)
    from cospec.cli import loading

    options = loading.decode_options_of(given)
    choice = loading.choose_rule(rule, arbiter, threshold, sampled=sampled, default="never")
    check_methods(options, {choice.name: choice})
    use = options.draft_use([choice])
    spec = loading.read_pair_spec(pair, draft, target, device, dtype, attn, draft_use=use)
    loading.check_passes(compile_mode, packed, spec)
    from cospec.engine.rollout_file import recorded_rollouts
    from cospec.evaluation.method import requests_of

    with sole_appender(out):
        loaded = loading.load_pair_from_options(pair, draft, target, device, dtype, attn, draft_use=use)
        engine = options.engine(loaded, loading.rule_from_options(choice, loaded))
        claim(out, loaded, arbiter, choice.name, options.drafter or "model")
        requests = requests_of(loaded, rows, raw=raw)
        kept = recorded_rollouts(out, requests, engine.settings)
        new, seconds = _decode(engine, requests, {rollout.id for rollout in kept}, out)
    Outgrown(loaded).say_of(new)
    report(_summary(out, kept, new, seconds, engine.settings.bonus), json)


def _check_files(prompts: Path | None, out: Path | None) -> tuple[list[PromptRow], Path]:
    if prompts is None:
        raise ValueError("no prompts given: use --prompts FILE.jsonl")
    if out is None:
        raise ValueError("no place for the records given: use --out ROLLOUTS.jsonl")
    check_output("--out", out, [prompts])
    return rows_to_decode(prompts), out


def _decode(
    engine: Engine, requests: Sequence[Request], done: set[str | int], out: Path
) -> tuple[list[Rollout], float]:
    """Decode what is not done, writing each record as it ends; the records and the seconds it took."""
    import time

    from cospec.cli.progress import progress
    from cospec.engine.rollout_file import decode_to_file

    requests = [request for request in requests if request.id not in done]
    new: list[Rollout] = []
    start = time.perf_counter()
    with on_interrupt(lambda: f"{len(new)} new records in {out}"), progress("rollout", len(requests)) as step:

        def on_rollout(rollout: Rollout) -> None:
            new.append(rollout)
            step()

        decode_to_file(engine, requests, out, on_rollout)
    return new, time.perf_counter() - start


def _summary(
    out: Path, kept: Sequence[Rollout], new: Sequence[Rollout], seconds: float, bonus: Bonus
) -> dict[str, Any]:
    """Acceptance over all records, speed of the new ones."""
    from cospec.engine.metrics import acceptance, ratio

    sums = acceptance([*kept, *new])
    return {
        "out": str(out),
        "num_new": len(new),
        "num_kept_from_before": len(kept),
        "num_tokens": sums.num_tokens,
        "num_rounds": sums.num_rounds,
        "tokens_per_round": sums.tokens_per_round,
        "num_drafted": sums.num_drafted,
        "num_accepted": sums.num_accepted,
        "acceptance_rate": sums.acceptance_rate,
        # One more than the accepted tokens is a length only where a bonus token follows.
        **({"mean_acceptance_length": sums.mean_acceptance_length} if bonus != "arbitrated" else {}),
        "acceptance_by_position": sums.acceptance_by_position,
        "num_mismatches": sums.num_mismatches,
        "num_kept": sums.num_kept,
        "keep_rate": sums.keep_rate,
        "num_truncated": sums.num_truncated,
        "seconds": seconds,
        "tokens_per_s": ratio(sum(len(rollout.output_ids) for rollout in new), seconds),
    }


def report(summary: dict[str, Any], as_json: bool) -> None:
    """One JSON line, or a table of names and values."""
    if as_json:
        typer.echo(dumps(summary))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("", "", show_header=False, title="rollouts")
    for name, value in summary.items():
        table.add_row(name.replace("_", " "), _shown(value))
    # Paths may hold what looks like markup.
    Console(markup=False, emoji=False).print(table)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "  ".join(_shown(item) for item in value)
    if isinstance(value, float):
        return f"{value:.3f}"
    return "-" if value is None else str(value)
