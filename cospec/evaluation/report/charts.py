"""Accuracy against speed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from cospec.evaluation.report.drawing import INK, Chart, Style, finish, grid, legend_below, new_figure
from cospec.evaluation.report.numbers import Comparison, Interval, MethodNumbers

SIZE = (4.4, 3.6)


def accuracy_charts(compared: Comparison, name: str, looks: Mapping[str, Style]) -> list[Chart]:
    """Accuracy against tokens per round, and against tokens/s relative to the target."""
    # The draft alone makes no target pass, so it has no place on an axis of rounds.
    rounds = [(m, m.tokens_per_round, m.tokens_per_round_ci95) for m in compared.methods if m.rule != "draft"]
    speed = [(m, m.speed_ratio, m.speed_ratio_ci95) for m in compared.methods]
    charts = [
        _accuracy_chart(compared, points, f"{name}_accuracy_{end}", axis, looks)
        for end, axis, points in (
            ("tokens_per_round", "tokens per round (one target pass)", rounds),
            ("speed", "tokens/s relative to the target alone", speed),
        )
    ]
    return [chart for chart in charts if chart is not None]


_Point = tuple[MethodNumbers, float | None, Interval | None]


def _accuracy_chart(
    compared: Comparison, points: Sequence[_Point], name: str, axis: str, looks: Mapping[str, Style]
) -> Chart | None:
    shown = [(m, x, m.accuracy, spread) for m, x, spread in points if x is not None and m.accuracy is not None]
    if not shown:
        return None
    with new_figure(*SIZE) as (figure, axes):
        for method, x, accuracy, spread in shown:
            style = looks[method.name]
            axes.errorbar(
                x,
                100 * accuracy,
                xerr=None if spread is None else _arms(x, spread),
                yerr=_arms(100 * accuracy, (100 * method.ci95[0], 100 * method.ci95[1])),
                fmt=style.marker,
                color=style.colour,
                capsize=3,
                markersize=6,
            )
        legend = [(method.name, looks[method.name]) for method, *_ in shown]
        if compared.union_accuracy is not None:
            axes.axhline(100 * compared.union_accuracy, color=INK, linestyle="--", linewidth=1)
            legend.append((f"draft or target: {100 * compared.union_accuracy:.1f}", Style(INK, "", "--")))
        axes.margins(0.12)
        axes.set_xlabel(axis)
        axes.set_ylabel("accuracy, % (95 % interval)")
        grid(axes)
        legend_below(figure, legend)
        words = "; ".join(f"{m.name}: {100 * accuracy:.1f} % at {x:.2f}" for m, x, accuracy, _ in shown)
        return finish(figure, name, f"Accuracy against {axis}", f"Accuracy against {axis}. {words}.")


def _arms(value: float, interval: Interval) -> list[list[float]]:
    """The arms of an error bar. None is below 0, which rounding could make of one that has no length."""
    return [[max(0.0, value - interval[0])], [max(0.0, interval[1] - value)]]


def file_stem(text: str) -> str:
    """A name as part of a file name and of an SVG id: letters, digits and underscores, not too many for a file name."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower()[:80] or "run"
