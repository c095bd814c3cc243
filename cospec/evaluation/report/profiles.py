"""What the decisions of methods look like in sum: acceptance by position, keep rate against risk."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cospec.evaluation.report.charts import SIZE
from cospec.evaluation.report.decisions import RiskBin
from cospec.evaluation.report.drawing import Chart, ChartTable, Style, finish, grid, legend_below, new_figure
from cospec.evaluation.report.evaluation import EvaluationRun
from cospec.evaluation.report.rollouts import RolloutSection
from cospec.evaluation.statistics import wilson


@dataclass(frozen=True, slots=True)
class Profile:
    """``accepted`` are shares of all rounds by position; ``bins`` are empty for rules without probabilities."""

    name: str
    look: str
    accepted: tuple[float, ...]
    bins: tuple[RiskBin, ...]


def profiles(runs: Sequence[EvaluationRun], sections: Sequence[RolloutSection]) -> list[Profile]:
    """Those of methods, over all their samples, then of rollout files that are no part of such an evaluation."""
    found = [profile for run in runs for profile in _of_run(run, f"{run.name} " if len(runs) > 1 else "")]
    for section in sections:
        run = section.file.evaluation
        if run is None or not any(method.accepted_at for method in run.whole.methods):
            found.append(_of_section(section))
    uses = Counter(profile.name for profile in found)
    # The short name of a file may be that of another.
    named = [replace(profile, name=profile.look) if uses[profile.name] > 1 else profile for profile in found]
    return [profile for profile in named if profile.accepted]


def acceptance_chart(shown: Sequence[Profile], looks: Mapping[str, Style]) -> Chart | None:
    """Of all rounds, the share that committed the draft's token at each position (vLLM's per-position rate)."""
    if not shown:
        return None
    from matplotlib.ticker import MaxNLocator

    longest = max(len(profile.accepted) for profile in shown)
    with new_figure(*SIZE) as (figure, axes):
        for profile in shown:
            style = looks[profile.look]
            places = range(1, len(profile.accepted) + 1)
            axes.plot(places, profile.accepted, marker=style.marker, color=style.colour)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("position in the block")
        axes.set_ylabel("share of rounds")
        grid(axes)
        legend_below(figure, [(profile.name, looks[profile.look]) for profile in shown])
        table = ChartTable(
            ("records", *(str(place) for place in range(1, longest + 1))),
            tuple((profile.name, *(f"{value:.3f}" for value in profile.accepted)) for profile in shown),
        )
        text = "Share of rounds in which the draft's token at each position of the block was committed."
        return finish(figure, "acceptance", "Acceptance by position", text, table)


def risk_chart(profiles: Sequence[Profile], looks: Mapping[str, Style]) -> Chart | None:
    """Keep rate by the target's probability of the draft's token; only rules that have probabilities of their own."""
    shown = [profile for profile in profiles if profile.bins]
    if not shown:
        return None
    rows: list[tuple[str, ...]] = []
    with new_figure(*SIZE) as (figure, axes):
        for profile in shown:
            style = looks[profile.look]
            rates = [part.num_kept / part.num for part in profile.bins]
            spreads = [wilson(part.num_kept, part.num) for part in profile.bins]
            below = [rate - low for rate, (low, _) in zip(rates, spreads, strict=True)]
            above = [high - rate for rate, (_, high) in zip(rates, spreads, strict=True)]
            centres = [_centre(part) for part in profile.bins]
            axes.errorbar(
                centres,
                rates,
                yerr=[below, above],
                marker=style.marker,
                color=style.colour,
                capsize=2,
                elinewidth=0.8,
            )
            rows += [
                (profile.name, f"{part.low:.2g}", f"{part.high:.2g}", str(part.num), f"{rate:.3f}")
                for part, rate in zip(profile.bins, rates, strict=True)
            ]
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(_power_of_ten)
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("target's probability of the draft's token")
        axes.set_ylabel("keep rate (95 % interval)")
        grid(axes)
        legend_below(figure, [(profile.name, looks[profile.look]) for profile in shown])
        table = ChartTable(("records", "from", "to", "decisions", "keep rate"), tuple(rows))
        text = "Share of mismatches at which the draft's token was kept, by the target's probability of that token."
        return finish(figure, "risk", "Keep rate against risk", text, table)


def _of_run(run: EvaluationRun, prefix: str) -> list[Profile]:
    found = []
    for method in run.whole.methods:
        accepted = tuple(count / method.num_rounds for count in method.accepted_at) if method.num_rounds else ()
        bins = tuple(RiskBin(*part) for part in method.by_risk if part[2]) if method.rule == "arbiter" else ()
        # The models alone draft nothing; a rule that never keeps still accepts what agrees.
        if method.rule not in ("draft", "target"):
            look = f"{prefix}{method.name}"
            found.append(Profile(look, look, accepted, bins))
    return found


def _of_section(section: RolloutSection) -> Profile:
    decisions, name = section.decisions, section.file.name
    bins = tuple(part for part in decisions.bins if part.num) if decisions.is_graded else ()
    short = section.file.method or name.rpartition("/")[2].removesuffix(".jsonl")
    return Profile(short, name, tuple(decisions.sums.acceptance_by_position), bins)


def _centre(part: RiskBin) -> float:
    """Where a bin stands on the axis; the first one, which reaches down to 0, as if it were half a decade wide."""
    return math.sqrt((part.low or part.high / 10**0.5) * part.high)


def _power_of_ten(value: float, place: float) -> str:
    """A tick of a logarithmic axis in plain characters; matplotlib's own would be a formula."""
    exponent = str(round(math.log10(value))).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{exponent}"
