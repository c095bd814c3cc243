"""A bench as pictures: where the time of a token goes, and how a round grows."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = {"target": "#4c78a8", "draft": "#72b7b2", "arbiter": "#e4572e", "rest": "#8a8f98", "whole": "#c9cdd3"}
_BARE = "#3a3f47"
_ORDER = ("target", "draft", "arbiter", "rest")


def plot_cells(found: Mapping[str, Any], path: Path) -> None:
    """Write a PNG: milliseconds of a token per cell, split where the engine tells."""
    figure, axes = _figure(1, 1.2 + 0.38 * len(found["cells"]))
    names = [f"{cell['engine']} {cell['method']}, batch {cell['batch']}" for cell in found["cells"]]
    for row, cell in enumerate(found["cells"]):
        whole = 1000 / statistics.median(cell["tokens_per_s"])
        shares = cell["share"] if cell["share"]["rest"] is not None else {"whole": 1.0}
        left = 0.0
        for part in [part for part in (*_ORDER, "whole") if part in shares]:
            axes[0].barh(row, whole * shares[part], left=left, color=_COLOURS[part], height=0.7)
            left += whole * shares[part]
        axes[0].annotate(f" {1000 / whole:.1f} tokens/s", (whole, row), va="center", fontsize=8)
    axes[0].set_yticks(range(len(names)), names)
    axes[0].invert_yaxis()
    axes[0].margins(x=0.15)
    axes[0].set_xlabel("milliseconds of a token")
    _legend(axes[0], [*_ORDER, *(["whole"] if any(c["share"]["rest"] is None for c in found["cells"]) else [])])
    _save(figure, path)


def plot_sweep(sweep: Mapping[str, Any], path: Path) -> None:
    """Write a PNG: for every method the milliseconds of a round by part, and those of the bare models' passes."""
    methods = list(dict.fromkeys(point["method"] for point in sweep["points"]))
    figure, axes = _figure(len(methods), 3.8)
    for place, method in zip(axes, methods, strict=True):
        points = [point for point in sweep["points"] if point["method"] == method]
        at = [point["at"] for point in points]
        parts = [[1000 * max(0.0, point["parts_s"][part]) for point in points] for part in _ORDER]
        place.stackplot(at, *parts, colors=[_COLOURS[part] for part in _ORDER])
        place.plot(at, [1000 * point["bare_s"] for point in points], "o--", color=_BARE, markersize=4, linewidth=1)
        if len(at) > 1:
            place.set_xscale("log", base=2)
        place.set_xticks(at, [str(value) for value in at], fontsize=8)
        place.set_xticks([], minor=True)
        place.set_ylim(bottom=0)
        place.set_title(method, fontsize=10)
        place.set_xlabel(f"{sweep['sweep']}, tokens" if sweep["sweep"] == "context" else "batch, rows")
    axes[0].set_ylabel("milliseconds of a round")
    _legend(axes[0], _ORDER, bare=True)
    _save(figure, path)


def _figure(num_axes: int, height: float) -> tuple[Any, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(8.0, 4.2 * num_axes), height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, num_axes, squeeze=False)[0]
    for place in axes:
        place.spines[["top", "right"]].set_visible(False)
    return figure, list(axes)


def _legend(axes: Axes, parts: Any, bare: bool = False) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    names = {"whole": "not told apart"}
    handles: list[Any] = [Patch(color=_COLOURS[part], label=names.get(part, part)) for part in parts]
    if bare:
        handles.append(Line2D([], [], color=_BARE, marker="o", linestyle="--", markersize=4, label="bare models"))
    axes.legend(handles=handles, frameon=False, fontsize=8)


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, format="png")
