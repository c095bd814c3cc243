"""A sweep as a picture: accuracy against speed-up, a panel per K, the Pareto front of each."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
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
        x, y = row["timing"][speed], row["accuracy"]
        if x is None or y is None:
            continue
        colour, mark = looks.get(row["rule"], (_TARGET, "x"))
        axes.scatter(x, 100 * y, color=[colour], marker=mark, s=38, zorder=3, linewidths=1.2)
    front = front_of(rows, speed)
    points = [(row["timing"][speed], 100 * row["accuracy"]) for row in front]
    axes.plot(*zip(*points, strict=True), color=_FRONT, linewidth=1, zorder=2) if points else None
    target = next((row for row in rows if row["rule"] == "target" and row["accuracy"] is not None), None)
    if target:
        axes.axhline(100 * target["accuracy"], color=_TARGET, linestyle="--", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#e3e5e8", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(0.12)
    short = shown_names(dict.fromkeys(row["method"] for row in front))
    names: dict[tuple[float, float], list[str]] = {}
    for row, point in zip(front, points, strict=True):
        names.setdefault(point, []).extend(textwrap.wrap(short[row["method"]], _LABEL, break_on_hyphens=False))
    for point, lines in names.items():
        _label(axes, point, "\n".join(lines))


def _label(axes: Axes, point: tuple[float, float], text: str) -> None:
    """Beside a point, towards the middle of the panel, where there is room."""
    on_right, on_top = point[0] > sum(axes.get_xlim()) / 2, point[1] > sum(axes.get_ylim()) / 2
    axes.annotate(
        text,
        point,
        (-4 if on_right else 4, -5 if on_top else 5),
        textcoords="offset points",
        ha="right" if on_right else "left",
        va="top" if on_top else "bottom",
        fontsize=6,
        # Over the front's line, under the marks.
        zorder=2.5,
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
    )


def _legend(figure: Figure, looks: Mapping[str, tuple[Any, str]]) -> None:
    from matplotlib.lines import Line2D

    marks = {**looks, "target": (_TARGET, "x")}
    handles = [
        Line2D([], [], color=colour, marker=mark, linestyle="", label=name) for name, (colour, mark) in marks.items()
    ]
    handles.append(Line2D([], [], color=_FRONT, label="Pareto front"))
    figure.legend(handles=handles, loc="outside right upper", fontsize=7, frameon=False)
