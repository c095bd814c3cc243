"""What `cospec bench` does: check, load, measure, print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from cospec.cli.bench_measure import Bench, comparison, sweeps
from cospec.cli.bench_options import BenchOptions
from cospec.cli.bench_prompts import load_prompts
from cospec.cli.bench_settings import bench_settings
from cospec.cli.lock import sole_writer
from cospec.cli.stopping import StopSignals
from cospec.jsonl import dumps
from cospec.prompt_rows import PromptRow

if TYPE_CHECKING:
    from cospec.cli.loading import RuleChoice
    from cospec.evaluation.bench.workload import Workload
    from cospec.pair import Pair, PairSpec

#: Said before hours are spent, and kept with the results.
NO_PLOTS = "the plots of the sweeps are left out: add --out DIR"


def run_bench(options: BenchOptions) -> None:
    """The whole command; what can be refused is refused before models are loaded."""
    from cospec.cli.loading import check_passes, read_pair_spec
    from cospec.cli.methods import choose_methods

    options.check()
    spec = read_pair_spec(*options.models)
    check_passes(options.compile_mode, options.packed, spec)
    rows, prompts = load_prompts(options)
    options = options.fitting(len(rows))
    choices = choose_methods("strict", options.arbiter or [], options.threshold)
    vllm = _check_before_loading(options, spec, rows, choices)
    with sole_writer(options.out):
        _load_and_measure(options, rows, prompts, choices, vllm)


def _load_and_measure(
    options: BenchOptions,
    rows: Sequence[PromptRow],
    prompts: Mapping[str, Any],
    choices: Mapping[str, RuleChoice],
    vllm: str | None,
) -> None:
    from cospec.cli.loading import load_pair_from_options, rule_from_options
    from cospec.evaluation.bench.store import BenchRun

    pair = load_pair_from_options(*options.models)
    options.decoding().check_ids(pair)
    rules = {name: rule_from_options(choice, pair) for name, choice in choices.items()}
    work = _workload(options, pair, rows)
    settings = bench_settings(options, pair, work, choices, prompts, vllm)
    run = BenchRun(options.out, settings) if options.out else None
    bench = Bench(options, pair, options.decoding().over(pair), work, rules, run, vllm)
    if options.sweep and run is None:
        typer.echo(f"cospec: {NO_PLOTS}", err=True)
    with StopSignals() as stop:
        found = sweeps(bench, stop) if options.sweep else comparison(bench, stop)
    _report(bench, found | {"machine": settings["machine"], "settings": settings})


def _check_before_loading(
    options: BenchOptions, spec: PairSpec, rows: Sequence[PromptRow], choices: Mapping[str, RuleChoice]
) -> str | None:
    """ValueError for all that can be seen before weights are read; vLLM's version where it takes part."""
    from cospec.evaluation.bench.vllm_engine import check_models, vllm_version
    from cospec.evaluation.bench.workload import check_batches
    from cospec.evaluation.plots import require_matplotlib

    options.decoding()
    options.drafters()
    options.extra_vllm()
    if not options.sweep:
        check_batches(len(rows), options.batches)
    if options.out is not None:
        require_matplotlib()
    _check_arbiters(choices, spec)
    if options.vllm_python is None:
        return None
    check_models(spec)
    return vllm_version(options.vllm_python)


def _check_arbiters(choices: Mapping[str, RuleChoice], spec: PairSpec) -> None:
    """ValueError for an arbiter of another tokenizer; whether the weights fit is seen once they are loaded."""
    from cospec.arbiter.adapter import read_pins
    from cospec.pair import load_tokenizer, tokenizer_digest

    directories = [choice.arbiter for choice in choices.values() if choice.arbiter is not None]
    here = tokenizer_digest(load_tokenizer(spec)) if directories else ""
    for directory in directories:
        if read_pins(directory).tokenizer_digest != here:
            raise ValueError(
                f"the arbiter in {str(directory)!r} was made for another pair: it knows another tokenizer. Name the "
                "pair it was made for, or train an arbiter for this one"
            )


def _workload(options: BenchOptions, pair: Pair, rows: Sequence[PromptRow]) -> Workload:
    from cospec.evaluation.bench.forwards import can_time
    from cospec.evaluation.bench.workload import Workload, check_workload
    from cospec.evaluation.method import requests_of

    eos = pair.eos_token_ids if options.eos_token_id is None else tuple(options.eos_token_id)
    requests = tuple(requests_of(pair, rows, raw=options.raw))
    work = Workload(requests, options.max_new_tokens, options.num_draft_tokens, eos, options.cost_ratio)
    if not options.sweep:
        check_workload(work, pair, options.batches, arbiters=bool(options.arbiter))
    elif not can_time(pair.device):
        raise ValueError(f"--sweep times single passes, which cannot be done on {pair.device.type}: use cpu or cuda")
    return work


def _report(bench: Bench, found: dict[str, Any]) -> None:
    """Write, draw and print; one JSON object where that is asked for."""
    from cospec.evaluation.bench.plots import plot_cells, plot_sweep
    from cospec.evaluation.bench.table import print_results, warnings
    from cospec.evaluation.plots import plain_texts

    found["warnings"] = warnings(found)
    if bench.run:
        bench.run.finish(found)
        with plain_texts():
            if found["cells"]:
                plot_cells(found, bench.run.directory / "cells.png")
            for sweep in found["sweeps"]:
                plot_sweep(sweep, bench.run.directory / f"sweep_{sweep['sweep']}.png")
    elif found["sweeps"]:
        found["left_out"].append(NO_PLOTS)
    if bench.options.json:
        for warning in found["warnings"]:
            typer.echo(f"cospec: {warning}", err=True)
        typer.echo(dumps(found))
    else:
        print_results(found)
