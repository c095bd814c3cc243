"""A summary as a picture: who is right how often, and at what price in target passes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cospec.evaluation.table import shown_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ALONE, _BASELINE, _ARBITER, _LINE = "#8a8f98", "#4c78a8", "#e4572e", "#3a3f47"


def plot_summary(summary: Mapping[str, Any], path: str | Path) -> None:
    """Write a PNG: accuracy with 95 % interval per method, and accuracy against tokens per round."""
    require_matplotlib()
    with plain_texts():
        figure = _draw(summary)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, format="png")


def plain_texts() -> AbstractContextManager[None]:
    """Within it, names of methods are not formulas, whatever dollar signs they hold."""
    import matplotlib as mpl

    return mpl.rc_context({"text.parse_math": False})


def _draw(summary: Mapping[str, Any]) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = shown_names(summary["methods"])
    methods = {names[name]: method for name, method in summary["methods"].items() if method["accuracy"] is not None}
    figure = Figure(figsize=(11, 1.8 + 0.42 * max(5, len(methods))), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _plot_accuracy(left, methods, summary["union_accuracy"])
    _plot_trade(right, methods, summary["union_accuracy"])
    figure.suptitle(f"{summary['n']} problems, {summary['k']} draft tokens a round", fontsize=11)
    return figure


def require_matplotlib() -> None:
    """ValueError where it is not installed; ask before long work that ends in a plot."""
    if find_spec("matplotlib") is None:
        raise ValueError("the plot needs matplotlib, which is not installed: pip install 'cospec[demo]'")


def _plot_accuracy(axes: Axes, methods: Mapping[str, Mapping[str, Any]], union: float | None) -> None:
    for row, method in enumerate(methods.values()):
        accuracy, (low, high) = 100 * method["accuracy"], method["ci95"]
        # Rounding must not make an arm of no length a negative one.
        spread = [[max(0.0, accuracy - 100 * low)], [max(0.0, 100 * high - accuracy)]]
        axes.errorbar(accuracy, row, xerr=spread, fmt="o", color=_colour(method), capsize=3, markersize=7)
        axes.annotate(f"{accuracy:.1f}", (accuracy, row), (0, 7), textcoords="offset points", ha="center", fontsize=8)
    axes.set_yticks(range(len(methods)), list(methods))
    axes.set_ylim(len(methods) - 0.5, -0.7)
    axes.set_xlabel("accuracy, % (95 % interval)")
    if union is not None:
        label = f"oracle union of draft and target: {100 * union:.1f}"
        axes.axvline(100 * union, color=_LINE, linestyle="--", linewidth=1, label=label)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), frameon=False, fontsize=8)
    _clean(axes, "x")


def _plot_trade(axes: Axes, methods: Mapping[str, Mapping[str, Any]], union: float | None) -> None:
    # The draft alone makes no target pass at all, so it has no place on this axis.
    shown = {name: m for name, m in methods.items() if m["rule"] != "draft" and m["tokens_per_round"] is not None}
    for method in shown.values():
        point = (method["tokens_per_round"], 100 * method["accuracy"])
        axes.scatter(*point, color=_colour(method), s=50, zorder=3)
    _label(axes, {name: (m["tokens_per_round"], 100 * m["accuracy"]) for name, m in shown.items()})
    if union is not None:
        axes.axhline(100 * union, color=_LINE, linestyle="--", linewidth=1)
    axes.margins(0.15)
    axes.set_xlabel("tokens per round (one target pass)")
    axes.set_ylabel("accuracy, %")
    _clean(axes, "both")


def _label(axes: Axes, points: Mapping[str, tuple[float, float]]) -> None:
    """Names beside their points, each towards the roomier side; points in one place share a label."""
    merged: dict[tuple[float, float], list[str]] = {}
    widest = max((x for x, _ in points.values()), default=0.0)
    tall = max((y for _, y in points.values()), default=0.0) - min((y for _, y in points.values()), default=0.0)
    for name, (x, y) in points.items():
        near = next((at for at in merged if abs(at[0] - x) <= 0.02 * widest and abs(at[1] - y) <= 0.04 * tall), (x, y))
        merged.setdefault(near, []).append(name)
    for (x, y), names in merged.items():
        on_left = x > 0.6 * widest
        axes.annotate(
            "\n".join(names),
            (x, y),
            (-8 if on_left else 8, 0),
            textcoords="offset points",
            ha="right" if on_left else "left",
            va="center",
            fontsize=8,
        )


def _colour(method: Mapping[str, Any]) -> str:
    if method["rule"] in ("draft", "target"):
        return _ALONE
    return _ARBITER if method["rule"] == "arbiter" else _BASELINE


def _clean(axes: Axes, grid: Literal["x", "both"]) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis=grid, color="#e3e5e8", linewidth=0.8)
    axes.set_axisbelow(True)
