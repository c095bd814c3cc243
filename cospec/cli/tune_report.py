"""What `cospec tune` shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from cospec.cli.tune_options import TuneOptions
from cospec.jsonl import dumps

_LENGTH_COLUMNS = ("K", "tokens/round", "target pass\nover the block", "round\nin target steps", "gain\n[95 % CI]")
_RACE_COLUMNS = (
    "candidate",
    "outcome",
    "problems",
    "minus strict, points\n[always valid 95 %]",
    "p: loses\nthe budget\nor more",
    "speed-up\nover strict\n[95 % CI]",
    "tokens\n/round",
    "accepted\n%",
    "loops\n%",
)


def report(numbers: Mapping[str, Any], options: TuneOptions) -> None:
    """The choice and what it rests on, as tables or as JSON."""
    from cospec.evaluation.table import is_starved

    if options.json:
        typer.echo(dumps(numbers))
        return
    _show_lengths(numbers)
    if numbers["race"]:
        _show_race(numbers["race"])
    if numbers["confirm"]:
        _show_confirm(numbers["confirm"])
    texts, timed = numbers["num_texts"], numbers["num_texts"]["timing"]
    kept = f" in {options.out}" if options.out else ""
    length = (
        ", as nothing is faster"
        if numbers["rule"] == "target"
        else f", K = {numbers['num_draft_tokens']}, {numbers['gain_of_choice']:.2f} times as fast as the target alone"
    )
    busy = " (on a busy machine: its seconds say little)" if is_starved(numbers["lengths"]["cpu_share"]) else ""
    rest = f"from {sum(texts.values()) - timed} texts and {timed} beginnings of texts for the clock"
    typer.echo(f"chosen{kept}: {numbers['rule']}{length}{busy}, {rest}")


def _show_lengths(numbers: Mapping[str, Any]) -> None:
    from cospec.evaluation.table import number, table, wide_console

    found, console = numbers["lengths"], wide_console()
    shown = table(f"strict on {numbers['task']}: c_rel {number(found['c_rel'], 3)}", _LENGTH_COLUMNS)
    for row in found["lengths"]:
        shown.add_row(
            str(row["num_draft_tokens"]),
            number(row["tokens_per_round"]),
            number(row["verification"]),
            number(row["round_cost"]),
            number(row["gain"], interval=row["gain_ci95"]),
        )
    console.print(shown)
    near = ", ".join(map(str, found["near_best"]))
    console.print(f"best K: {numbers['num_draft_tokens']}; within 2 % of it: {near}", highlight=False)
    seen = found["acceptance"]
    places = " ".join(f"{share:.2f}" for share in seen["acceptance_by_position"])
    console.print(
        f"accepted at K = {seen['num_draft_tokens']}: rate {number(seen['acceptance_rate'])}, l_accept "
        f"{number(seen['l_accept'])}, by position {places}",
        highlight=False,
    )


def _show_race(race: Mapping[str, Any]) -> None:
    from cospec.evaluation.table import number, p_value, percent, table, wide_console

    title = f"budget {race['budget']:g} points at {race['confidence']:.0%}: {race['num_problems']} problems"
    shown = table(title, _RACE_COLUMNS)
    for row in race["candidates"]:
        shown.add_row(
            row["name"],
            row["outcome"],
            str(row["num_problems"]),
            percent(row["difference"], row["bounds"], signed=True),
            p_value(row["p_loses"]),
            number(row["speedup"], interval=row["speedup_ci95"]),
            number(row["tokens_per_round"]),
            percent(row["acceptance_rate"], None),
            percent(row["repetitive"], None),
        )
    wide_console().print(shown)


def _show_confirm(found: Mapping[str, Any]) -> None:
    from cospec.evaluation.summary import NON_INFERIOR_LEVEL
    from cospec.evaluation.table import p_value

    low, high = (100 * bound for bound in found["ci95"])
    verdict = "is ruled out" if found["p_inferior"] < NON_INFERIOR_LEVEL else "cannot be ruled out"
    typer.echo(
        f"on {found['num_problems']} fresh problems: {100 * found['difference']:+.1f} points against the target "
        f"[{low:+.1f}, {high:+.1f}]; a loss of {100 * found['margin']:g} points {verdict} "
        f"(p {p_value(found['p_inferior'])}, level {NON_INFERIOR_LEVEL})"
    )
