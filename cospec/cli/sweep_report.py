"""What `cospec sweep` shows: the plan of a dry run, and the table in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cospec.cli.eval_tasks import LoadedTask
from cospec.cli.sweep_options import PICTURES, SweepOptions
from cospec.jsonl import dumps

if TYPE_CHECKING:
    from cospec.evaluation.sweep.grid import Group


def show_plan(options: SweepOptions, loaded: Sequence[LoadedTask], groups: Sequence[Group]) -> None:
    """Every cell with what is there already, and the work that is left; loads no models."""
    plan = plan_of(options, loaded, groups)
    if options.json:
        typer.echo(dumps(plan))
        return
    for cell in plan["cells"]:
        k = cell["num_draft_tokens"]
        have = f", {cell['num_done']} there already" if cell["num_done"] else ""
        typer.echo(
            f"{cell['sampling']}  K {'-' if k is None else k:>2}  {cell['task']}  {cell['method']}: "
            f"{cell['num_texts']} texts{have}"
        )
    typer.echo(
        f"{len(plan['cells'])} cells, {plan['num_texts']} texts, {plan['num_left']} to decode, "
        f"at most {plan['max_tokens_left']} tokens"
        + (f", about {plan['seconds_left']:.0f} s at the pace so far" if plan["seconds_left"] is not None else "")
    )


def plan_of(options: SweepOptions, loaded: Sequence[LoadedTask], groups: Sequence[Group]) -> dict[str, Any]:
    """The cells as JSON, and the estimate of the work left: by the mean text so far, if there is any."""
    from cospec.cli.sweep_run import repeats_of
    from cospec.evaluation.sweep.grid import sampling_name

    cells: list[dict[str, Any]] = []
    seconds: list[float] = []
    for group in groups:
        have = _have(options.out / group.folder, seconds) if options.out else Counter[tuple[str, str]]()
        for name in group.methods:
            for entry in loaded:
                cells.append(
                    {
                        "sampling": sampling_name(group.sampling),
                        "num_draft_tokens": group.num_draft_tokens,
                        "task": entry.task.name,
                        "method": name,
                        "num_texts": len(entry.task.rows) * repeats_of(group, options),
                        "num_done": have[entry.task.name, name],
                    }
                )
    total, done = (sum(cell[name] for cell in cells) for name in ("num_texts", "num_done"))
    return {
        "cells": cells,
        "num_texts": total,
        "num_left": total - done,
        "max_tokens_left": (total - done) * options.max_new_tokens,
        "seconds_left": (total - done) * sum(seconds) / len(seconds) if seconds else None,
    }


def _have(directory: Path, seconds: list[float]) -> Counter[tuple[str, str]]:
    """Texts by task and method; their seconds are added to ``seconds``."""
    from cospec.evaluation.run import SAMPLES, read_samples

    samples = read_samples(directory / SAMPLES, torn=True)
    seconds += [sample.timing.active_s for sample in samples]
    return Counter((sample.task, sample.method) for sample in samples)


def report(rows: Sequence[Mapping[str, Any]], options: SweepOptions) -> None:
    """The table on stdout, as JSON where that is asked for; Parquet and pictures into the directory.

    Those of an earlier command are made anew, as they would lack the cells of this one.
    """
    from cospec.evaluation.sweep.store import PARQUET, TABLE, write_parquet
    from cospec.evaluation.sweep.table import print_cells, starved_note

    assert options.out is not None
    written = [TABLE]
    if options.makes_parquet:
        write_parquet(options.out / PARQUET, rows)
        written.append(PARQUET)
    if options.makes_plots:
        from cospec.evaluation.sweep.plots import plot_cells

        for speed, name in PICTURES.items():
            plot_cells(rows, speed, options.out / name)
            written.append(name)
    if options.json:
        typer.echo(dumps({"cells": list(rows)}))
    else:
        print_cells(rows)
    if starved_note(rows):
        typer.echo(f"cospec: warning: {starved_note(rows)}", err=True)
    typer.echo(f"sweep: done, {len(rows)} cells in {options.out}: {', '.join(written)}", err=True)
