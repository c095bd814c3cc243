"""A summary as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

_COLUMNS = (
    "method",
    "right/n",
    "accuracy, %\n[95 % CI]",
    "p vs\ntarget",
    "tokens\n/round",
    "passes\n/token",
    "tokens/s\nratio",
    "keep\nrate",
    "mean\nreward",
)
#: What the table needs: on a narrower terminal, or in a pipe, folded lines are easier to read than cut numbers.
_WIDTH = 106


def print_summary(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """Print the methods side by side, and below them how draft, target and the arbiters complement each other."""
    console = console or Console()
    console.width = max(console.width, _WIDTH)
    title = f"{summary['n']} problems, {summary['k']} draft tokens a round"
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for index, column in enumerate(_COLUMNS):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for name, method in summary["methods"].items():
        table.add_row(*_row(name, method))
    console.print(table)
    for line in lines(summary):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def lines(summary: Mapping[str, Any]) -> list[str]:
    """What the table cannot show, one sentence each."""
    found = []
    if summary["union_accuracy"] is not None:
        found.append(
            f"draft or target alone (oracle union): {summary['union_accuracy']:.1%}; only the draft solves "
            f"{summary['non_nested']}, neither solves {summary['num_neither_alone']}"
        )
    for name in summary["lost_share"]:
        found.append(
            f"{name}: recovers {_share(summary['recovered_share'][name])} of what only the draft solves, loses "
            f"{_share(summary['lost_share'][name])} of what the target solves, solves "
            f"{_share(summary['solved_by_neither_alone'][name])} of what neither solves alone"
        )
    for name, method in summary["methods"].items():
        if method["num_failed"]:
            found.append(f"{name}: the scorer failed on {method['num_failed']} samples, which count nowhere")
        if method["truncated"]:
            found.append(f"{name}: {method['truncated']:.1%} of the texts were cut by the length limit")
    return found


def _row(name: str, method: Mapping[str, Any]) -> list[str]:
    low, high = (100 * bound for bound in method["ci95"])
    accuracy = "-" if method["accuracy"] is None else f"{100 * method['accuracy']:.1f} [{low:.1f}, {high:.1f}]"
    p = method["p_vs_target"]
    return [
        name,
        f"{method['right']}/{method['num']}",
        accuracy,
        "-" if p is None else f"{p:.2g}",
        _number(method["tokens_per_round"]),
        _number(method["target_passes_per_token"], 3),
        _number(method["speed_ratio"]),
        _number(method["keep_rate"]),
        _number(method.get("mean_reward"), 3),
    ]


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"
