"""The record of a bench: all that decides its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cospec.cli.bench_options import BenchOptions

if TYPE_CHECKING:
    from cospec.cli.loading import RuleChoice
    from cospec.evaluation.bench.workload import Workload
    from cospec.pair import Pair


def bench_settings(
    options: BenchOptions,
    pair: Pair,
    work: Workload,
    choices: Mapping[str, RuleChoice],
    prompts: Mapping[str, Any],
    vllm: str | None,
) -> dict[str, Any]:
    """As JSON; ``prompts`` says where they come from, ``vllm`` is its version where it takes part."""
    from cospec.cli.methods import describe_pair, digest
    from cospec.evaluation.bench.machine import machine
    from cospec.evaluation.environment import environment

    return {
        **describe_pair(pair),
        "prompts": dict(prompts),
        "prompt_digest": digest(repr(prompt).encode() for prompt in work.prompts),
        "raw": options.raw,
        "max_new_tokens": work.max_new_tokens,
        "num_draft_tokens": work.num_draft_tokens,
        "cost_ratio": work.cost_ratio,
        "eos_token_ids": list(work.eos_token_ids),
        "batches": list(options.batches),
        "arbiters": _arbiters(choices),
        **({"drafters": [drafter.spec for drafter in options.drafters()]} if options.drafter else {}),
        "compile": options.compile_mode,
        "packed": options.packed,
        "sweep": list(options.sweeps),
        "sweep_to": options.sweep_to,
        "vllm": None if vllm is None else {"version": vllm, "options": options.extra_vllm()},
        **environment(pair.device),
        "machine": machine(pair.device),
    }


def _arbiters(choices: Mapping[str, RuleChoice]) -> dict[str, Any]:
    from cospec.cli.methods import arbiter_digest

    return {
        name: {"arbiter": str(choice.arbiter), "digest": arbiter_digest(choice.arbiter), "threshold": choice.threshold}
        for name, choice in choices.items()
        if choice.arbiter is not None
    }
