"""A summary as tables for people: one per task, one over tasks, and sentences for what tables cannot show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

_COLUMNS = (
    "method",
    "right/n",
    "accuracy, %\n[95 % CI]",
    "p vs\ntarget",
    "p adj.",
    "tokens\n/round",
    "passes\n/token",
    "tokens/s ratio\n[95 % CI]",
    "length\nratio",
    "keep\nrate",
    "mean\nreward",
)
_MACRO_COLUMNS = (
    "method",
    "accuracy, %\n[95 % CI]",
    "minus target, points\n[95 % CI]",
    "p",
    "tokens/s ratio\n[95 % CI]",
    "length ratio\n[95 % CI]",
)
_AGAINST_COLUMNS = (
    "method",
    "gained, lost",
    "new minus old, points\n[95 % CI]",
    "p",
    "p adj.",
    "tokens/s ratio\n[95 % CI]",
    "length ratio\n[95 % CI]",
)
#: Names longer than this are folded; nothing else is, and nothing is cut.
_NAME_WIDTH = 56
#: The directory that a spec names, and its last part: `judge:/runs/a/judge,threshold=0.5`.
_DIRECTORY = re.compile(r"(?<=:)(?:[^,]*/)?([^,/]+)")
#: Processor time over wall time, below which other processes must have had the core.
STARVED = 0.93


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print the methods of every task side by side with what must be known beside them, and the means over tasks."""
    console = wide_console()
    tasks = summary["tasks"]
    for name, task in tasks.items():
        _print_task(name, task, len(tasks), console)
    if len(tasks) > 1:
        _print_macro(summary["macro"], console)


def is_starved(cpu_share: float | None) -> bool:
    """Whether a process had so little of a core that its seconds say little; not where no share is known."""
    return cpu_share is not None and cpu_share < STARVED


def wide_console() -> Console:
    """A console as wide as any table that prints names as they are: they are the user's, and may look like markup.

    On a narrower terminal, or in a pipe, lines that the terminal folds are easier to read than cut numbers.
    """
    return Console(markup=False, emoji=False, width=1000)


def shown_names(names: Iterable[str]) -> dict[str, str]:
    """What tables and plots call methods: a directory in a spec by its last part, where no other one has that part."""
    found = {name: _DIRECTORY.search(name) for name in names}
    last_parts = Counter(last for _, last in {match.group(0, 1) for match in found.values() if match})
    return {
        name: name.replace(match[0], match[1], 1) if match and last_parts[match[1]] == 1 else name
        for name, match in found.items()
    }


def _print_task(name: str, task: Mapping[str, Any], num_tasks: int, console: Console) -> None:
    title = f"{name}: {task['n']} problems, {task['k']} draft tokens a round"
    shown = table(title, [column for column in _COLUMNS if num_tasks > 1 or column != "p adj."])
    names = shown_names(task["methods"])
    for method_name, method in task["methods"].items():
        cells = _row(names[method_name], method)
        shown.add_row(
            *(cell for column, cell in zip(_COLUMNS, cells, strict=True) if num_tasks > 1 or column != "p adj.")
        )
    console.print(shown)
    for line in lines(task):
        console.print(line, highlight=False, soft_wrap=True)


def _print_macro(macro: Mapping[str, Any], console: Console) -> None:
    shown = table(f"mean of {macro['num_tasks']} tasks (ratios: geometric mean)", _MACRO_COLUMNS)
    names = shown_names(macro["methods"])
    for name, method in macro["methods"].items():
        shown.add_row(
            names[name],
            percent(method["accuracy"], method["ci95"]),
            percent(method["difference"], method["difference_ci95"], signed=True),
            p_value(method["p"]),
            number(method["timing"]["speed_ratio"], interval=method["timing"]["speed_ratio_ci95"]),
            number(method["length_ratio"], interval=method["length_ratio_ci95"]),
        )
    console.print(shown)


def print_against(compared: Mapping[str, Any]) -> None:
    """Print two runs side by side: what the new one gains or loses, by task and method."""
    console = wide_console()
    for task, methods in compared["tasks"].items():
        shown = table(f"{task}: {compared['new']} against {compared['old']}", _AGAINST_COLUMNS)
        names = shown_names(methods)
        for name, method in methods.items():
            timing = method["timing"] or {"speed_ratio": None, "speed_ratio_ci95": None}
            shown.add_row(
                names[name],
                f"+{method['gained']} -{method['lost']} of {method['num_problems']}",
                percent(method["difference"], method["ci95"], signed=True),
                p_value(method["p"]),
                p_value(method["p_adjusted"]),
                number(timing["speed_ratio"], interval=timing["speed_ratio_ci95"]),
                number(method["length_ratio"], interval=method["length_ratio_ci95"]),
            )
        console.print(shown)
    for line in [*compared["differences"], *(f"only in one run: {name}" for name in compared["left_out"])]:
        console.print(line, highlight=False, soft_wrap=True)


def table(title: str, columns: Sequence[str]) -> Table:
    """An empty table; the first column is of names."""
    empty = Table(title=title, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    empty.add_column(columns[0], overflow="fold", max_width=_NAME_WIDTH)
    for column in columns[1:]:
        empty.add_column(column, justify="right", no_wrap=True)
    return empty


def _row(name: str, method: Mapping[str, Any]) -> list[str]:
    timing, failed = method["timing"], method["num_failed"]
    return [
        name,
        f"{method['right']}/{method['num']}" + (f" ({failed} failed)" if failed else ""),
        percent(method["accuracy"], method["ci95"]),
        p_value(method["p_vs_target"]),
        p_value(method["p_adjusted"]),
        number(method["tokens_per_round"]),
        number(method["target_passes_per_token"], 3),
        number(timing["speed_ratio"], interval=None if method["rule"] == "target" else timing["speed_ratio_ci95"]),
        number(method["length_ratio"]),
        number(method["keep_rate"]),
        number(method.get("mean_reward"), 3),
    ]


# --- sentences -------------------------------------------------------------------------------------------------------


def lines(task: Mapping[str, Any]) -> list[str]:
    """What the table of a task cannot show, one sentence each."""
    found = _complementarity_lines(task)
    for name, method in task["methods"].items():
        found += [f"{name}: {line}" for line in (*_claims(method), *_troubles(method))]
    for name, agreement in task.get("oracle_branch", {}).items():
        found.append(f"{name}: {_agreement(agreement)}")
    for name, check in task.get("spot_check", {}).items():
        found.append(
            f"{name}: {check['num_equal']} of {check['num']} texts are the same token for token at batch size 1"
        )
    return found


def _complementarity_lines(task: Mapping[str, Any]) -> list[str]:
    found = []
    shares = task["complementarity"]
    if shares["union"] is not None:
        found.append(
            f"draft or target alone (oracle union): {_share(shares['union'])}; only the draft solves "
            f"{_share(shares['only_draft'])}, neither solves {task['num_neither_alone']}"
        )
    for name in task["lost_share"]:
        mine = shares["methods"][name]
        found.append(
            f"{name}: recovers {_share(mine['recovered'])} of what only the draft solves, loses {_share(mine['lost'])} "
            f"of what the target solves, solves {_share(mine['of_neither'])} of what neither solves alone"
        )
    return found


def _claims(method: Mapping[str, Any]) -> list[str]:
    """What the comparison with the target alone supports, and what it could have seen."""
    found = [_accuracy_claim(method["vs_target"])] if method["vs_target"] else []
    ratio, interval = method["timing"]["speed_ratio"], method["timing"]["speed_ratio_ci95"]
    if method["rule"] != "target" and ratio is not None and ratio <= 1:
        slower = "slower than" if interval and interval[1] < 1 else "no faster than"
        found.append(f"{slower} the target alone ({number(ratio, interval=interval)} times its tokens/s)")
    return found + _modelled(method["timing"])


def _modelled(timing: Mapping[str, Any]) -> list[str]:
    """The acceleration model beside the clock; records of earlier versions have none."""
    model = timing.get("model")
    if not model or model["c_rel"] is None:
        return []
    return [
        f"modelled speed-up {number(model['speedup'])} = length {number(model['length_factor'])} x rounds "
        f"{number(model['round_factor'])} at c_rel {number(model['c_rel'], 3)} in this run; by the clock "
        f"{number(timing['time_ratio'], interval=timing['time_ratio_ci95'])}"
    ]


def _accuracy_claim(compared: Mapping[str, Any]) -> str:
    low, high = (100 * bound for bound in compared["ci95"])
    shown = "" if compared["not_inferior"] else "not shown to be "
    seen = compared["min_detectable"]
    power = f"; 80 % power to find a difference of {100 * seen:.1f} points" if seen else ""
    return (
        f"{100 * compared['difference']:+.1f} points against the target [{low:+.1f}, {high:+.1f}], half-width "
        f"{100 * compared['half_width']:.1f} (+{compared['gained']} -{compared['lost']} on {compared['num_problems']} "
        f"problems); {shown}non-inferior at a margin of {100 * compared['margin']:g} points "
        f"(p {p_value(compared['p_inferior_adjusted'])}){power}"
    )


def _troubles(method: Mapping[str, Any]) -> list[str]:
    found = []
    if method["num_failed"]:
        late = f", {method['num_timeout']} of them timed out" if method["num_timeout"] else ""
        found.append(f"the scorer failed on {method['num_failed']} samples{late}, which count nowhere")
    if method["truncated"]:
        found.append(f"{method['truncated']:.1%} of the texts were cut by the length limit")
    if method["repetitive"]:
        found.append(f"{method['repetitive']:.1%} of the texts end in a loop")
    share = method["timing"].get("cpu_share")
    if is_starved(share):
        found.append(f"had {share:.0%} of a core while it decoded: the machine was busy, and its speed says little")
    return found


def _agreement(agreement: Mapping[str, Any]) -> str:
    return (
        f"agrees with the better branch in {_share(agreement['agreement'])} of the decisions where the branches differ "
        f"({agreement['num_decisions']} decisions in {agreement['num_problems']} problems)"
    )


# --- numbers ---------------------------------------------------------------------------------------------------------


def number(value: float | None, digits: int = 2, interval: Sequence[float] | None = None) -> str:
    """A number as a cell shows it, with its interval."""
    if value is None:
        return "-"
    return f"{value:.{digits}f}" + (f" [{interval[0]:.{digits}f}, {interval[1]:.{digits}f}]" if interval else "")


def percent(value: float | None, interval: Sequence[float] | None, signed: bool = False) -> str:
    """A share in percent, with its interval."""
    if value is None:
        return "-"
    sign = "+" if signed else ""
    bounds = f" [{100 * interval[0]:{sign}.1f}, {100 * interval[1]:{sign}.1f}]" if interval else ""
    return f"{100 * value:{sign}.1f}{bounds}"


def p_value(value: float | None) -> str:
    """A p-value."""
    return "-" if value is None else f"{value:.2g}"


def _share(share: Mapping[str, Any] | None) -> str:
    if share is None or share["share"] is None:
        return "-"
    low, high = (100 * bound for bound in share["ci95"])
    return f"{share['count']}/{share['num']} ({share['share']:.1%} [{low:.1f}, {high:.1f}])"
