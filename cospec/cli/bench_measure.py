"""The measurements of `cospec bench`, with what is loaded: a comparison, or sweeps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from cospec.cli.bench_options import BenchOptions
from cospec.cli.options import on_interrupt
from cospec.cli.progress import progress
from cospec.cli.stopping import StopSignals

if TYPE_CHECKING:
    from cospec.engine.rules import ArbiterRule, Rule
    from cospec.evaluation.bench.cells import Contender
    from cospec.evaluation.bench.rounds import Probes, Repeat
    from cospec.evaluation.bench.store import BenchRun
    from cospec.evaluation.bench.vllm_engine import VllmContender
    from cospec.evaluation.bench.workload import Workload
    from cospec.pair import Pair


@dataclass(frozen=True, slots=True)
class Bench:
    """What is to be measured, loaded.

    ``ours`` is the pair as this package's engine runs it, ``run`` the directory that results are kept in, ``vllm`` the
    version that takes part.
    """

    options: BenchOptions
    pair: Pair
    ours: Pair
    work: Workload
    rules: Mapping[str, Rule]
    run: BenchRun | None
    vllm: str | None

    @property
    def arbiters(self) -> dict[str, ArbiterRule]:
        from cospec.engine.rules import ArbiterRule

        return {name: rule for name, rule in self.rules.items() if isinstance(rule, ArbiterRule)}


def comparison(bench: Bench, stop: StopSignals) -> dict[str, Any]:
    """All engines side by side."""
    from cospec.evaluation.bench.probe import EngineProbes
    from cospec.evaluation.bench.summary import results

    ours, left_out = _contenders(bench)
    with _vllm_contenders(bench) as (others, unable):
        contenders = [*ours, *others]
        probes = EngineProbes(bench.ours, bench.work, bench.arbiters)
        repeats = _measured(bench, stop, "cells", contenders, probes)
        return results(repeats, contenders) | {"sweeps": [], "left_out": [*left_out, *unable]}


def _contenders(bench: Bench) -> tuple[list[Contender], list[str]]:
    """This engine and transformers at every batch size, and what had to be left out."""
    from cospec.engine.rules import rule_named
    from cospec.evaluation.bench.ours import STRICT, OurContender
    from cospec.evaluation.bench.transformers_engine import GenerateContender, assisted_refusal

    pair, work, batches, strict = bench.pair, bench.work, bench.options.batches, rule_named(STRICT)
    found: list[Contender] = []
    for batch in batches:
        for mode in dict.fromkeys((None, bench.options.compile_mode)):
            found += [OurContender(bench.ours, work, name, rule, batch, mode) for name, rule in bench.rules.items()]
            found += [
                OurContender(bench.ours, work, f"{STRICT} {drafter.spec}", strict, batch, mode, drafter=drafter)
                for drafter in bench.options.drafters()
            ]
    found += [GenerateContender(pair, work, (batch,)) for batch in batches]
    refusal = assisted_refusal(pair)
    if refusal is None:
        found.append(GenerateContender(pair, work, batches, assisted=True))
    return found, [refusal] if refusal else []


@contextlib.contextmanager
def _vllm_contenders(bench: Bench) -> Iterator[tuple[list[VllmContender], list[str]]]:
    """vLLM's cells, where it is asked for, and what it cannot do; its processes end with the context."""
    if bench.options.vllm_python is None or bench.vllm is None:
        yield [], []
        return
    from cospec.evaluation.bench.vllm_engine import VllmContender, able, vllm_engines

    batches, extra = bench.options.batches, bench.options.extra_vllm()
    engines = vllm_engines(bench.options.vllm_python, bench.vllm, bench.pair, bench.work, batches, extra)
    try:
        yield able(
            [VllmContender(engine, bench.work, name, batch) for name, engine in engines.items() for batch in batches]
        )
    finally:
        for engine in engines.values():
            engine.close()


def sweeps(bench: Bench, stop: StopSignals) -> dict[str, Any]:
    """This engine's rules at growing contexts or batches."""
    from cospec.evaluation.bench.sweep import PlainProbes, points, sweep_contenders, sweep_results

    options, pair, work, rules = bench.options, bench.ours, bench.work, bench.rules
    every = [points(kind, options.sweep_to, pair, work, bool(bench.arbiters)) for kind in options.sweeps]
    found: list[dict[str, Any]] = []
    for places in every:
        contenders = sweep_contenders(places, pair, work, rules, options.batches[0])
        repeats = _measured(bench, stop, f"sweep_{places.kind}", contenders, PlainProbes(pair, work, rules))
        found.append(sweep_results(places, repeats, work.num_draft_tokens))
    return {"cells": [], "model_limit_share": None, "limits": [], "sweeps": found, "left_out": []}


def _measured(
    bench: Bench, stop: StopSignals, name: str, contenders: Sequence[Contender], probes: Probes
) -> list[Repeat]:
    """The repeats, those of an earlier run of the same command first."""
    from cospec.evaluation.bench.rounds import measure

    run, num, keys = bench.run, bench.options.repeats, [key for entry in contenders for key in entry.keys]
    kept = run.repeats(name, keys)[:num] if run else []
    if kept:
        typer.echo(f"cospec: {name}: {len(kept)} of {num} repeats are there already, not run again", err=True)
    where = f"all finished repeats in {run.directory}" if run else "nothing (no --out was given)"

    def on_repeat(repeat: Repeat) -> None:
        if run:
            with stop.held():
                run.add(name, repeat)

    total = (num - len(kept)) * len(contenders)
    with on_interrupt(lambda: where), progress(name.replace("_", " "), total, "runs") as step, _quiet():
        return measure(contenders, probes, num, kept=kept, on_repeat=on_repeat, on_run=step)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without transformers' remarks on generation configs, which name options nobody here has set."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)
