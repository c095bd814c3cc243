"""Training curves: one small chart per metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from cospec.evaluation.report.drawing import MUTED, SERIES, Chart, ChartTable, finish, grid, new_figure
from cospec.evaluation.report.find import TrainingRun

_SIZE = (3.6, 2.5)
#: More points than a chart has room for are averaged in groups.
_MOST_POINTS = 300
#: Metrics of either stage in the order of the page, with the titles of their charts.
_METRICS = {
    "loss": "loss",
    "reward": "reward",
    "accuracy": "accuracy of the rollouts",
    "keep_rate": "keep rate",
    "tokens_per_round": "tokens per round",
    "entropy": "entropy of a decision",
    "zero_variance_groups": "share of zero-variance groups",
    "rho": "rho, accepted span",
    "risk_per_wrong_decision": "risk per wrong decision",
    "fallback_per_wrong_decision": "fall-back per wrong decision",
    "decisions_per_rollout": "decisions per rollout",
    "kl": "KL to the warm-up policy",
    "grad_norm": "gradient norm",
    "learning_rate": "learning rate",
    "num_failed": "rollouts whose scorer failed",
}
_NO_RESULTS = ("step", "epoch", "total_flos", "train_samples_per_second", "train_steps_per_second")
Points = list[tuple[int, float]]


def training_charts(run: TrainingRun, stem: str, derived: Mapping[str, Mapping[int, float]]) -> list[Chart]:
    """A chart per metric that has at least two values; ``derived`` adds metrics by step that the run does not log."""
    charts = []
    for metric, title in _METRICS.items():
        points = series(run.rows, metric) or sorted(derived.get(metric, {}).items())
        if len(points) > 1:
            charts.append(_curve(points, f"{stem}-{metric}", title))
    return charts


def single_values(run: TrainingRun) -> list[tuple[str, float]]:
    """Numbers that the run logged once, such as the held-out loss of the warm-up, by name."""
    names = dict.fromkeys(name for row in run.rows for name in row if name not in _NO_RESULTS)
    found = [(name, series(run.rows, name)) for name in names]
    return [(name, points[0][1]) for name, points in found if len(points) == 1]


def series(rows: Sequence[Mapping[str, object]], metric: str) -> Points:
    """(step, value) of every row that has a finite value; of several rows of one step the last one counts."""
    found: dict[int, float] = {}
    for row in rows:
        step, value = row.get("step"), row.get(metric)
        if isinstance(step, int) and isinstance(value, int | float) and math.isfinite(value):
            found[step] = float(value)
    return sorted(found.items())


def _curve(points: Points, name: str, title: str) -> Chart:
    thinned = _thinned(points)
    steps, values = [step for step, _ in thinned], [value for _, value in thinned]
    smooth = _running_mean(values, max(1, len(values) // 10))
    with new_figure(*_SIZE) as (figure, axes):
        if max(values) - min(values) < 1e-9 * max(1e-9, abs(values[0])):
            # A constant curve would otherwise be drawn on a scale of rounding errors.
            room = abs(values[0]) / 2 or 1.0
            axes.set_ylim(values[0] - room, values[0] + room)
        axes.plot(
            steps, values, color=MUTED, linewidth=0.8, alpha=0.7, marker="o" if len(values) < 20 else None, markersize=3
        )
        axes.plot(steps, smooth, color=SERIES[0], linewidth=1.8)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("step")
        grid(axes)
        low, high = min(value for _, value in points), max(value for _, value in points)
        headers = ("first", "last", "lowest", "highest", "steps")
        row = (*(f"{value:.4g}" for value in (points[0][1], points[-1][1], low, high)), str(len(points)))
        text = f"{title} by step: from {points[0][1]:.4g} to {points[-1][1]:.4g}, between {low:.4g} and {high:.4g}."
        return finish(figure, name, title, text, ChartTable(headers, (row,)))


def _thinned(points: Points) -> Points:
    size = math.ceil(len(points) / _MOST_POINTS)
    groups = [points[first : first + size] for first in range(0, len(points), size)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def _running_mean(values: Sequence[float], window: int) -> list[float]:
    """The mean of up to ``window`` values that end at each."""
    starts = [max(0, end - window) for end in range(1, len(values) + 1)]
    return [sum(values[start:end]) / (end - start) for end, start in enumerate(starts, start=1)]
