"""The table of a sweep for people, and its Pareto fronts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cospec.engine.record import Sampling
from cospec.evaluation.sweep.grid import sampling_name
from cospec.evaluation.sweep.pareto import pareto_front
from cospec.evaluation.table import is_starved, number, p_value, percent, shown_names, table, wide_console

_COLUMNS = (
    "method",
    "K",
    "right/n",
    "accuracy, %\n[95 % CI]",
    "minus target, points\n[95 % CI]",
    "p adj.",
    "l_accept",
    "tokens\n/round",
    "modelled speed-up =\nlength x rounds",
    "by the clock\n[95 % CI]",
    "loops,\n%",
    "rambles,\n%",
    "cut,\n%",
)

Rows = Sequence[Mapping[str, Any]]


def panels_of(rows: Rows) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
    """The rows by task and sampling, in their order."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        sampling = Sampling(**{name: row[name] for name in Sampling.__slots__})
        found.setdefault((row["task"], sampling_name(sampling)), []).append(row)
    return found


def front_of(rows: Rows, speed: str) -> list[Mapping[str, Any]]:
    """The rows that no other one beats in accuracy and ``speed`` (a name under "timing"), the slowest first."""
    known = [row for row in rows if row["accuracy"] is not None and row["timing"][speed] is not None]
    return [known[i] for i in pareto_front([(row["timing"][speed], row["accuracy"]) for row in known])]


def print_cells(rows: Rows) -> None:
    """One table per task and sampling, and who is on its fronts."""
    console = wide_console()
    for (task, sampling), cells in panels_of(rows).items():
        shown = table(f"{task}, {sampling}: c_rel {number(cells[0]['timing']['c_rel'], 3)}", _COLUMNS)
        names = shown_names(dict.fromkeys(row["method"] for row in cells))
        for row in cells:
            shown.add_row(names[row["method"]], *_cells(row))
        console.print(shown)
        for speed, name in (("modelled_speedup", "modelled speed-up"), ("clock_speedup", "speed-up by the clock")):
            front = ", ".join(label_of(row) for row in front_of(cells, speed))
            doubt = f" ({starved_note(cells)})" if speed == "clock_speedup" and starved_note(cells) else ""
            console.print(f"Pareto front of accuracy and {name}{doubt}: {front}", highlight=False, soft_wrap=True)


def starved_note(rows: Rows) -> str:
    """Why the clock says little of cells that had no whole core while they decoded; empty if all had."""
    starved = [row["timing"]["cpu_share"] for row in rows if is_starved(row["timing"]["cpu_share"])]
    if not starved:
        return ""
    return (
        f"{len(starved)} of {len(rows)} cells had {min(starved):.0%} to {max(starved):.0%} of a core: the machine was "
        "busy, and speeds by the clock say little"
    )


def label_of(row: Mapping[str, Any]) -> str:
    """The method and its K."""
    return row["method"] if row["num_draft_tokens"] is None else f"{row['method']} K={row['num_draft_tokens']}"


def _cells(row: Mapping[str, Any]) -> list[str]:
    timing = row["timing"]
    factors = f" = {number(timing['length_factor'])} x {number(timing['round_factor'])}"
    model = number(timing["modelled_speedup"]) + (factors if timing["modelled_speedup"] is not None else "")
    return [
        "-" if row["num_draft_tokens"] is None else str(row["num_draft_tokens"]),
        f"{row['right']}/{row['num']}" + (f" ({row['num_failed']} failed)" if row["num_failed"] else ""),
        percent(row["accuracy"], row["ci95"]),
        percent(row["difference"], row["difference_ci95"], signed=True),
        p_value(row["p_adjusted"]),
        number(row["l_accept"]),
        number(row["tokens_per_round"]),
        model,
        number(timing["clock_speedup"], interval=timing["clock_speedup_ci95"]),
        *(percent(row[name], None) for name in ("repetitive", "rambling", "truncated")),
    ]
