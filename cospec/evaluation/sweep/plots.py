"""A sweep as a picture: accuracy against speed-up, a panel per K, the Pareto front of each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cospec.evaluation.plots import plain_texts, require_matplotlib
from cospec.evaluation.sweep.table import Rows, front_of, panels_of, starved_note
from cospec.evaluation.table import shown_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Speed = Literal["modelled_speedup", "clock_speedup"]
_AXIS = {"modelled_speedup": "modelled speed-up over the target alone", "clock_speedup": "speed-up by the clock"}
_MARKERS = "osD^vP*X<>hp"
#: Letters in a line of a label: half a panel.
_LABEL = 36
#: Points from a panel's lower to its upper end, about, and of a line of a label.
_PANEL, _LINE = 225.0, 9.0
_FRONT, _TARGET = "#3a3f47", "#8a8f98"


def plot_cells(rows: Rows, speed: Speed, path: Path) -> None:
    """Write a PNG: a row of panels per task and sampling, a panel per K, a colour and mark per rule."""
    require_matplotlib()
    with plain_texts():
        figure = _draw(rows, speed)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, format="png")


def _draw(rows: Rows, speed: Speed) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = panels_of(rows)
    lengths = sorted({row["num_draft_tokens"] for row in rows if row["num_draft_tokens"] is not None}) or [None]
    looks = _looks([row["rule"] for row in rows if row["rule"] != "target"])
    figure = Figure(figsize=(4.6 * len(lengths) + 2.4, 3.9 * len(panels) + 0.4), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(panels), len(lengths), squeeze=False, sharey="row")
    for axes_row, ((task, sampling), cells) in zip(grid, panels.items(), strict=True):
        for axes, k in zip(axes_row, lengths, strict=True):
            _panel(axes, [row for row in cells if row["num_draft_tokens"] in (None, k)], speed, looks)
            axes.set_title(f"{task}, {sampling}, K = {k}, n = {max(row['num'] for row in cells)}", fontsize=9)
            axes.set_xlabel(_AXIS[speed])
        axes_row[0].set_ylabel("accuracy, %")
    if speed == "clock_speedup" and starved_note(rows):
        figure.suptitle(starved_note(rows), fontsize=9, color="#b3261e")
    _legend(figure, looks)
    return figure


def _looks(rules: Sequence[str]) -> dict[str, tuple[Any, str]]:
    """Colour and mark by rule."""
    import matplotlib as mpl

    names = list(dict.fromkeys(rules))
    colours = mpl.colormaps["tab20"]
    return {name: (colours(i % 20), _MARKERS[i % len(_MARKERS)]) for i, name in enumerate(names)}


def _panel(axes: Axes, rows: Rows, speed: Speed, looks: Mapping[str, tuple[Any, str]]) -> None:
    for row in rows:
        if not _is_drawn(row, speed):
            continue
        x, y = row["timing"][speed], row["accuracy"]
        colour, mark = looks.get(row["rule"], (_TARGET, "x"))
        # What all others are measured by is not hidden by them.
        above = row["rule"] in ("target", "strict")
        axes.scatter(x, 100 * y, color=[colour], marker=mark, s=38, zorder=3.5 if above else 3, linewidths=1.2)
    front = front_of(rows, speed)
    points = [(row["timing"][speed], 100 * row["accuracy"]) for row in front]
    axes.plot(*zip(*points, strict=True), color=_FRONT, linewidth=1, zorder=2) if points else None
    named = [*front, *(row for row in rows if row["rule"] == "strict" and row not in front and _is_drawn(row, speed))]
    points = [(row["timing"][speed], 100 * row["accuracy"]) for row in named]
    target = next((row for row in rows if row["rule"] == "target" and row["accuracy"] is not None), None)
    if target:
        axes.axhline(100 * target["accuracy"], color=_TARGET, linestyle="--", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e3e5e8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(0.12)
    short = _labels(dict.fromkeys(row["method"] for row in rows))
    names: dict[tuple[float, float], list[str]] = {}
    for row, point in zip(named, points, strict=True):
        names.setdefault(point, []).extend(textwrap.wrap(short[row["method"]], _LABEL, break_on_hyphens=False))
    _place(axes, names)


def _is_drawn(row: Mapping[str, Any], speed: Speed) -> bool:
    return row["timing"][speed] is not None and row["accuracy"] is not None


def _labels(methods: Iterable[str]) -> dict[str, str]:
    """Names without the parameters that are the same in all methods of a rule, where there are several."""
    parts = {method: method.partition(":")[::2] for method in methods}
    by_rule: dict[str, list[set[str]]] = {}
    for rule, parameters in parts.values():
        by_rule.setdefault(rule, []).append(set(parameters.split(",")))
    common = {rule: set.intersection(*found) if len(found) > 1 else set() for rule, found in by_rule.items()}
    labels = {}
    for method, (rule, parameters) in parts.items():
        own = [text for text in parameters.split(",") if text not in common[rule]]
        labels[method] = ":".join(text for text in (rule, ",".join(own)) if text)
    short = shown_names(labels.values())
    return {method: short[label] for method, label in labels.items()}


def _place(axes: Axes, names: Mapping[tuple[float, float], Sequence[str]]) -> None:
    """Labels beside their points, towards the middle of the panel, and apart from one another."""
    low, high = axes.get_ylim()
    wanted = sorted(names.items(), key=lambda item: item[0][1])
    at = [(point[1] - low) / (high - low) * _PANEL for point, _ in wanted]
    centres = _apart(at, [_LINE * len(lines) for _, lines in wanted])
    for (point, lines), height, centre in zip(wanted, at, centres, strict=True):
        on_right = point[0] > sum(axes.get_xlim()) / 2
        axes.annotate(
            "\n".join(lines),
            point,
            (-7 if on_right else 7, centre - height),
            textcoords="offset points",
            ha="right" if on_right else "left",
            va="center",
            fontsize=6,
            # Over the marks, which show through.
            zorder=4,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.7},
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": _TARGET, "shrinkA": 0, "shrinkB": 2},
        )


def _apart(wanted: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Centres of labels that are ``wanted`` there, ascending: in the panel, and apart where there is room."""
    # Where there are too many for the panel, they share it.
    share = min(1.0, _PANEL / sum(heights)) if heights else 1.0
    centres: list[float] = []
    below = 0.0
    for centre, height in zip(wanted, heights, strict=True):
        centres.append(max(centre, below + share * height / 2))
        below = centres[-1] + share * height / 2
    above = _PANEL
    for i, height in reversed(list(enumerate(heights))):
        centres[i] = min(centres[i], above - share * height / 2)
        above = centres[i] - share * height / 2
    ends = ((height / 2, _PANEL - height / 2) for height in heights)
    return [min(max(centre, low), high) for centre, (low, high) in zip(centres, ends, strict=True)]


def _legend(figure: Figure, looks: Mapping[str, tuple[Any, str]]) -> None:
    from matplotlib.lines import Line2D

    marks = {**looks, "target": (_TARGET, "x")}
    handles = [
        Line2D([], [], color=colour, marker=mark, linestyle="", label=name) for name, (colour, mark) in marks.items()
    ]
    handles.append(Line2D([], [], color=_FRONT, label="Pareto front"))
    figure.legend(handles=handles, loc="outside right upper", fontsize=7, frameon=False)
