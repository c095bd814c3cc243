"""What a draft step costs a sweep: as the options say, or measured once for the directory and the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from cospec.cli.sweep_options import SweepOptions
from cospec.jsonl import write_json_atomic
from cospec.prompt_rows import PromptRow

if TYPE_CHECKING:
    from cospec.evaluation.sweep.grid import Group
    from cospec.pair import Pair

#: The settings that decide what a pass costs.
_DECIDE = ("pair_digest", "device", "dtype", "attn", "batch_size", "packed", "drafter", "drafter_digest")


def c_rel_of(
    options: SweepOptions, pair: Pair, settings: Mapping[str, Any], groups: Sequence[Group], rows: Sequence[PromptRow]
) -> float:
    """A draft step's time by a target step's; measured anew where settings or machine are others than before."""
    from cospec.evaluation.run_settings import ENVIRONMENTS
    from cospec.evaluation.sweep.store import COSTS, read_costs
    from cospec.evaluation.table import is_starved

    if options.c_rel is not None:
        return options.c_rel
    assert options.out is not None
    measured_with = {name: settings.get(name) for name in _DECIDE}
    measured_with["machine"] = settings[ENVIRONMENTS][0]["machine"]
    found = read_costs(options.out / COSTS)
    if found is not None and found.get("measured_with", measured_with) != measured_with:
        typer.echo(f"cospec: {options.out / COSTS} is of another machine or other settings: measuring anew", err=True)
        found = None
    if found is None:
        found = _measured(options, pair, groups, rows) | {"measured_with": measured_with}
        write_json_atomic(options.out / COSTS, found)
    share = found.get("cpu_share")
    if settings["device"] == "cpu" and is_starved(share):
        typer.echo(
            f"cospec: warning: c_rel {found['c_rel']:.3f} was measured with {share:.0%} of a core: the machine was "
            f"busy, and modelled speeds rest on it; remove {options.out / COSTS} to measure again, or give --c-rel",
            err=True,
        )
    return float(found["c_rel"])


def _measured(options: SweepOptions, pair: Pair, groups: Sequence[Group], rows: Sequence[PromptRow]) -> dict[str, Any]:
    """c_rel, and target passes by width; a drafter that is no model of the pair's is timed within rounds."""
    from cospec.engine.cost import measure_passes
    from cospec.evaluation.method import requests_of
    from cospec.evaluation.tune.rounds import measure_rounds

    # A block is never longer than the text may be.
    lengths = sorted(
        {min(group.num_draft_tokens, options.max_new_tokens) for group in groups if group.num_draft_tokens}
    )
    rows = rows[: options.batch_size]
    costs = measure_passes(pair, len(rows), [1, *(k + 1 for k in lengths)])
    drafter, cpu_share = options.decoding().make_drafter(), costs.cpu_share
    if drafter.runs_draft_model:
        c_rel = costs.c_rel
    else:
        requests = requests_of(pair, rows, raw=options.raw)
        sampling = groups[0].sampling
        rounds = measure_rounds(pair, requests, lengths, sampling, batch_size=len(rows), drafter=drafter)
        c_rel, cpu_share = rounds.c_rel, rounds.cpu_share
    return {
        "c_rel": c_rel,
        "cpu_share": cpu_share,
        "draft_step_s": costs.draft_step_s,
        "target_s": {str(width): seconds for width, seconds in costs.target_s.items()},
    }
