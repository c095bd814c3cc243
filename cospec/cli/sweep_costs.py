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

COSTS = "costs.json"
#: The settings that decide what a pass costs.
_DECIDE = ("pair_digest", "device", "dtype", "attn", "batch_size", "packed", "drafter", "drafter_digest")


def c_rel_of(
    options: SweepOptions, pair: Pair, settings: Mapping[str, Any], groups: Sequence[Group], rows: Sequence[PromptRow]
) -> float:
    """A draft step's time by a target step's; measured anew where settings or machine are others than before."""
    from cospec.evaluation.run_settings import ENVIRONMENTS
    from cospec.evaluation.sweep.store import read_costs

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
    return float(found["c_rel"])


def _measured(options: SweepOptions, pair: Pair, groups: Sequence[Group], rows: Sequence[PromptRow]) -> dict[str, Any]:
    """c_rel, and target passes by width; a drafter that is no model of the pair's is timed within rounds."""
    from cospec.engine.cost import measure_passes
    from cospec.evaluation.method import requests_of
    from cospec.evaluation.tune.rounds import measure_rounds

    lengths = sorted({group.num_draft_tokens for group in groups if group.num_draft_tokens})
    rows = rows[: options.batch_size]
    costs = measure_passes(pair, len(rows), [1, *(k + 1 for k in lengths)])
    drafter = options.decoding().make_drafter()
    if drafter.runs_draft_model:
        c_rel = costs.c_rel
    else:
        requests = requests_of(pair, rows, raw=options.raw)
        sampling = groups[0].sampling
        c_rel = measure_rounds(pair, requests, lengths, sampling, batch_size=len(rows), drafter=drafter).c_rel
    return {
        "c_rel": c_rel,
        "draft_step_s": costs.draft_step_s,
        "target_s": {str(width): seconds for width, seconds in costs.target_s.items()},
    }
