"""The charts of a report: what each evaluation, rollout file and training run has to show."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from cospec.evaluation.report.drawing import (
    INK,
    Chart,
    ChartTable,
    Style,
    finish,
    grid,
    legend_below,
    new_figure,
)
from cospec.evaluation.report.evaluation import EvaluationRun, Interval, MethodNumbers
from cospec.evaluation.report.rollouts import RolloutSection
from cospec.evaluation.statistics import wilson

_SIZE = (4.4, 3.6)


def accuracy_charts(run: EvaluationRun, name: str, looks: Mapping[str, Style]) -> list[Chart]:
    """Accuracy against tokens per round, and against tokens/s relative to the target."""
    # The draft alone makes no target pass, so it has no place on an axis of rounds.
    rounds = [(m, m.tokens_per_round, m.tokens_per_round_ci95) for m in run.methods if m.rule != "draft"]
    speed = [(m, m.speed_ratio, None) for m in run.methods]
    charts = [
        _accuracy_chart(run, rounds, f"{name}_accuracy_tokens_per_round", "tokens per round (one target pass)", looks),
        _accuracy_chart(run, speed, f"{name}_accuracy_speed", "tokens/s relative to the target alone", looks),
    ]
    return [chart for chart in charts if chart is not None]


_Point = tuple[MethodNumbers, float | None, Interval | None]


def _accuracy_chart(
    run: EvaluationRun, points: Sequence[_Point], name: str, axis: str, looks: Mapping[str, Style]
) -> Chart | None:
    shown = [(m, x, m.accuracy, spread) for m, x, spread in points if x is not None and m.accuracy is not None]
    if not shown:
        return None
    with new_figure(*_SIZE) as (figure, axes):
        for method, x, accuracy, spread in shown:
            style = looks[method.name]
            axes.errorbar(
                x,
                100 * accuracy,
                xerr=None if spread is None else [[x - spread[0]], [spread[1] - x]],
                yerr=[[100 * (accuracy - method.ci95[0])], [100 * (method.ci95[1] - accuracy)]],
                fmt=style.marker,
                color=style.colour,
                capsize=3,
                markersize=6,
            )
        legend = [(method.name, looks[method.name]) for method, *_ in shown]
        if run.union_accuracy is not None:
            axes.axhline(100 * run.union_accuracy, color=INK, linestyle="--", linewidth=1)
            legend.append((f"draft or target: {100 * run.union_accuracy:.1f}", Style(INK, "", "--")))
        axes.margins(0.12)
        axes.set_xlabel(axis)
        axes.set_ylabel("accuracy, % (95 % interval)")
        grid(axes)
        legend_below(figure, legend)
        words = "; ".join(f"{m.name}: {100 * accuracy:.1f} % at {x:.2f}" for m, x, accuracy, _ in shown)
        return finish(figure, name, f"Accuracy against {axis}", f"Accuracy against {axis}. {words}.")


def acceptance_chart(sections: Sequence[RolloutSection], name: str, looks: Mapping[str, Style]) -> Chart | None:
    """Of all rounds, the share that committed the draft's token at each position (vLLM's per-position rate)."""
    rates = {section.file.name: section.decisions.sums.acceptance_by_position for section in sections}
    shown = {key: values for key, values in rates.items() if values}
    if not shown:
        return None
    longest = max(len(values) for values in shown.values())
    with new_figure(*_SIZE) as (figure, axes):
        for key, values in shown.items():
            style = looks[key]
            places = range(1, len(values) + 1)
            axes.plot(places, values, marker=style.marker, color=style.colour)
        axes.set_xticks(range(1, longest + 1))
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("position in the block")
        axes.set_ylabel("share of rounds")
        grid(axes)
        legend_below(figure, [(_short(key), looks[key]) for key in shown])
        table = ChartTable(
            ("records", *(str(place) for place in range(1, longest + 1))),
            tuple((key, *(f"{value:.3f}" for value in values)) for key, values in shown.items()),
        )
        text = "Share of rounds in which the draft's token at each position of the block was committed."
        return finish(figure, name, "Acceptance by position", text, table)


def risk_chart(sections: Sequence[RolloutSection], name: str, looks: Mapping[str, Style]) -> Chart | None:
    """Keep rate by the target's probability of the draft's token; only rules that have probabilities of their own."""
    shown = [section for section in sections if section.decisions.is_graded]
    if not shown:
        return None
    rows = []
    with new_figure(*_SIZE) as (figure, axes):
        for section in shown:
            style = looks[section.file.name]
            bins = [part for part in section.decisions.bins if part.num]
            centres = [math.sqrt(max(part.low, part.high / 10**0.5) * part.high) for part in bins]
            rates = [part.num_kept / part.num for part in bins]
            spreads = [wilson(part.num_kept, part.num) for part in bins]
            errors = [
                [rate - low for rate, (low, _) in zip(rates, spreads, strict=True)],
                [high - rate for rate, (_, high) in zip(rates, spreads, strict=True)],
            ]
            axes.errorbar(
                centres,
                rates,
                yerr=errors,
                marker=style.marker,
                color=style.colour,
                capsize=2,
                elinewidth=0.8,
            )
            rows += [
                (section.file.name, f"{part.low:.2g}", f"{part.high:.2g}", str(part.num), f"{rate:.3f}")
                for part, rate in zip(bins, rates, strict=True)
            ]
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(_power_of_ten)
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("target's probability of the draft's token")
        axes.set_ylabel("keep rate (95 % interval)")
        grid(axes)
        legend_below(figure, [(_short(section.file.name), looks[section.file.name]) for section in shown])
        table = ChartTable(("records", "from", "to", "decisions", "keep rate"), tuple(rows))
        text = "Share of mismatches at which the draft's token was kept, by the target's probability of that token."
        return finish(figure, name, "Keep rate against risk", text, table)


def _power_of_ten(value: float, place: float) -> str:
    """A tick of a logarithmic axis in plain characters; matplotlib's own would be a formula."""
    exponent = str(round(math.log10(value))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{exponent}"


def file_stem(text: str) -> str:
    """A name as part of a file name and of an SVG id."""
    return re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").lower() or "run"


def _short(name: str) -> str:
    """The last part of a path-like name, without its suffix."""
    return name.rpartition("/")[2].removesuffix(".jsonl")
