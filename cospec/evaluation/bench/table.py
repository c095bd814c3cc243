"""What a bench found, for people: tables, and sentences for what they cannot show."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from cospec.evaluation.bench.cells import PARTS
from cospec.evaluation.table import STARVED, wide_console

_CELLS = (
    "engine",
    "method",
    "batch",
    "tokens/s",
    "tokens\n/round",
    "draft\n%",
    "target\n%",
    "arbiter\n%",
    "rest\n%",
    "over-\nhead",
    "peak\nMB",
    "same as\ntarget",
)
_SWEEP = (
    "method",
    "ms\n/round",
    "draft",
    "target",
    "arbiter",
    "rest",
    "bare\nmodels",
    "over\nbare",
    "tokens\n/round",
    "peak\nMB",
)


def print_results(found: Mapping[str, Any]) -> None:
    """Print a bench: the cells with the limit, or the sweeps."""
    console = wide_console()
    if found["cells"]:
        console.print(_cells(found))
    for sweep in found["sweeps"]:
        console.print(_sweep(sweep))
    for line in lines(found):
        console.print(line, highlight=False, soft_wrap=True)


def _cells(found: Mapping[str, Any]) -> Table:
    cells, settings = found["cells"], found["settings"]
    title = (
        f"{cells[0]['num_prompts']} prompts, {settings['max_new_tokens']} new tokens at most, "
        f"{settings['num_draft_tokens']} draft tokens a round, {len(cells[0]['tokens_per_s'])} repeats: medians"
    )
    others = [name for name in ("assisted", "vllm") if any(cell[f"ratio_to_{name}"] for cell in cells)]
    columns = [*_CELLS[:4], *(f"times\n{name}" for name in ("target-only", *others)), *_CELLS[4:]]
    table = _table(title, columns, num_left=2)
    for cell in cells:
        table.add_row(
            cell["engine"],
            cell["method"],
            str(cell["batch"]),
            _number(statistics.median(cell["tokens_per_s"]), 1),
            *(_ratio(cell[f"ratio_to_{name}"]) for name in ("target", *others)),
            _number(cell["tokens_per_round"], 2),
            *(_percent(cell["share"][part]) for part in (*PARTS, "rest")),
            _number(cell["overhead"], 3),
            _number(cell["peak_mb"], 0),
            "yes" if cell["identical_to_target"] else f"{cell['num_identical']} of {cell['num_prompts']}",
        )
    return table


def _sweep(sweep: Mapping[str, Any]) -> Table:
    table = _table(f"sweep of the {sweep['sweep']}: ms of a round", (sweep["sweep"], *_SWEEP), num_left=0)
    for point in sorted(sweep["points"], key=lambda point: point["method"]):
        table.add_row(
            str(point["at"]),
            point["method"],
            _ms(statistics.median(point["seconds_per_round"])),
            *(_ms(point["parts_s"][part]) for part in (*PARTS, "rest")),
            _ms(point["bare_s"]),
            _number(point["over_bare"], 2),
            _number(point["tokens_per_round"], 2),
            _number(point["peak_mb"], 0),
        )
    return table


def _table(title: str, columns: Sequence[str], num_left: int) -> Table:
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index < num_left else "right", no_wrap=True)
    return table


# --- sentences -------------------------------------------------------------------------------------------------------


def lines(found: Mapping[str, Any]) -> list[str]:
    """The limits, what the sweeps say, and what must be known beside the numbers."""
    said = [_limit(limit) for limit in found["limits"]]
    said += [
        f"{cell['engine']} {cell['method']}, batch {cell['batch']}: {cell['note']}"
        for cell in found["cells"]
        if cell["note"]
    ]
    for sweep in found["sweeps"]:
        if len({point["at"] for point in sweep["points"]}) > 1:
            said += [_growth(sweep, method) for method in dict.fromkeys(point["method"] for point in sweep["points"])]
        said += [f"sweep of the {sweep['sweep']}: {sweep['clipped']}"] if sweep["clipped"] else []
    return said + list(found["warnings"]) + list(found["left_out"])


def warnings(found: Mapping[str, Any]) -> list[str]:
    """What speaks against the seconds: the process did not have the core it needs at least."""
    entries = [*found["cells"], *(point for sweep in found["sweeps"] for point in sweep["points"])]
    shares = [entry["cpu_share"] for entry in entries if entry["cpu_share"] is not None]
    if found["settings"]["device"] != "cpu" or min(shares, default=1.0) >= STARVED:
        return []
    return [
        f"the machine was busy: in one place this process had {min(shares):.0%} of a core on median, so the seconds "
        "say little about an idle machine; repeat the bench there"
    ]


def _limit(limit: Mapping[str, Any]) -> str:
    arbiter = ""
    if limit["mismatch_share"]:
        arbiter = f" + {limit['mismatch_share']:.2f} x t_A {_ms(limit['arbiter_s'])}"
    low, high = min(limit["shares"]), max(limit["shares"])
    return (
        f"limit of {limit['method']} at batch {limit['batch']}: {limit['tokens_per_round']:.2f} tokens a round x "
        f"t_T(1) {_ms(limit['target_s'])} / (t_T(verify) {_ms(limit['verify_s'])} + {limit['num_drafts']:.2f} x t_D "
        f"{_ms(limit['draft_s'])}{arbiter} ms) = {limit['limit']:.2f} times target-only; measured, prompts apart, "
        f"{limit['measured']:.2f} times ({limit['relative_share']:.1%}, the repeats' median{_above(limit)}); the bare "
        f"passes are {limit['share']:.1%} of the rounds' time [{low:.1%}, {high:.1%}]"
    )


def _above(limit: Mapping[str, Any]) -> str:
    """Why it can be more than all of what is possible."""
    return ", as target-only loses even more beside its bare passes" if limit["relative_share"] > 1 else ""


def _growth(sweep: Mapping[str, Any], method: str) -> str:
    points = [point for point in sweep["points"] if point["method"] == method]
    first, last = points[0], points[-1]
    spent = [statistics.median(point["seconds_per_round"]) for point in (first, last)]
    return (
        f"{method}: from {sweep['sweep']} {first['at']} to {last['at']} a round takes {spent[1] / spent[0]:.2f} times "
        f"as long, the bare models' passes {last['bare_s'] / first['bare_s']:.2f} times"
    )


# --- numbers ---------------------------------------------------------------------------------------------------------


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2f}"


def _ratio(ratio: Mapping[str, float] | None) -> str:
    return "-" if ratio is None else f"{ratio['median']:.2f} [{ratio['min']:.2f}, {ratio['max']:.2f}]"
