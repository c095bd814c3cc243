"""One HTML page out of what was found, and its charts as PNG files."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cospec import __version__
from cospec.evaluation.report.browser import Browser, browse
from cospec.evaluation.report.charts import accuracy_charts, file_stem
from cospec.evaluation.report.curves import single_values, training_charts
from cospec.evaluation.report.decisions import DecisionSet
from cospec.evaluation.report.drawing import Chart, Style, styles
from cospec.evaluation.report.evaluation import EvaluationRun
from cospec.evaluation.report.find import ROLLOUTS, Findings, TrainingRun
from cospec.evaluation.report.numbers import Comparison
from cospec.evaluation.report.profiles import acceptance_chart, profiles, risk_chart
from cospec.evaluation.report.rollouts import Judge, RolloutSection, read_rollout_section
from cospec.evaluation.report.rows import is_torn, whole_labels
from cospec.evaluation.report.sources import Tokenizers
from cospec.evaluation.report.text import plain, shortened, shown
from cospec.evaluation.report.tokens import TokenTexts
from cospec.jsonl import dumps
from cospec.labels import complementarity
from cospec.pair import PairSpec

PAGE = "report.html"
_ASSETS = Path(__file__).parents[2] / "assets" / "report"
#: Beyond this the page is written again with fewer texts.
_MOST_BYTES = 4_000_000
_MOST_REASON = 300


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """``list_size`` decisions per list; ``num_texts`` texts per rollout file besides those that the lists name.

    ``pair`` goes before the pairs that the runs name.
    """

    title: str = "CoSpec report"
    list_size: int = 12
    num_texts: int = 8
    pair: PairSpec | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A page and its charts, not yet written; ``notes`` are what the page says is missing."""

    html: str
    charts: tuple[Chart, ...]
    notes: tuple[str, ...]

    def write(self, out: Path) -> None:
        """``report.html`` and a PNG per chart."""
        out.mkdir(parents=True, exist_ok=True)
        for chart in self.charts:
            (out / f"{chart.name}.png").write_bytes(chart.png)
        (out / PAGE).write_text(self.html, encoding="utf-8")


@dataclass(frozen=True, slots=True)
class _EvaluationView:
    run: EvaluationRun
    anchor: str
    parts: list[tuple[Comparison, list[Chart]]]


@dataclass(frozen=True, slots=True)
class _TrainingView:
    run: TrainingRun
    charts: list[Chart]
    values: list[tuple[str, float]]


@dataclass(frozen=True, slots=True)
class _SectionView:
    section: RolloutSection
    decisions: DecisionSet
    anchor: str
    browser: Browser


def build_report(findings: Findings, options: ReportOptions, judge: Judge = lambda rollout: None) -> Report:
    """Read the rollout records, draw the charts, render the page. ``judge`` scores rollouts that have no verdict."""
    read = [read_rollout_section(file, options.list_size, options.num_texts, judge) for file in findings.rollouts]
    # Rules with probabilities first: there is most to see.
    every = sorted(filter(None, read), key=lambda section: not section.decisions.is_graded)
    sections = [section for section in every if section.decisions.sums.num_mismatches]
    empty = [file.name for file, section in zip(findings.rollouts, read, strict=True) if section is None]
    tokenizers = Tokenizers(options.pair)
    texts = [tokenizers.of(section.file) for section in sections]
    notes = [*(f"{name} holds no records yet" for name in empty), *_torn_notes(findings), *tokenizers.notes]
    if not every:
        notes.append(
            "there are no rollout records, so no decisions to show: write those of a method with `cospec rollout --out "
            "RUN_DIR/rollouts/METHOD.jsonl`"
        )
    looks = _looks(findings.evaluations, every)
    evaluations = _evaluation_views(findings.evaluations, looks)
    trainings = _training_views(findings.trainings, every)
    sum_charts = _sum_charts(findings.evaluations, every, looks)
    context = {
        "title": options.title,
        "found": findings.lines(),
        "notes": notes,
        "evaluations": evaluations,
        "sum_charts": sum_charts,
        "labels": [(file.name, complementarity(whole_labels(file.path))) for file in findings.labels],
        "without_decisions": [section.file.name for section in every if section not in sections],
        "trainings": trainings,
        "settings": _settings(findings),
    }
    html = _render_within_limit(context, sections, texts)
    charts = [chart for view in evaluations for _, drawn in view.parts for chart in drawn]
    charts += [*sum_charts, *(chart for view in trainings for chart in view.charts)]
    return Report(html, tuple(charts), tuple(notes))


def _torn_notes(findings: Findings) -> list[str]:
    return [
        f"{path} ends in a line that is not finished, which is left out: something may still be writing it"
        for path in findings.files()
        if is_torn(path)
    ]


def _render_within_limit(
    context: Mapping[str, Any], sections: Sequence[RolloutSection], texts: Sequence[TokenTexts]
) -> str:
    """The page with as many texts as keep it small; it says itself how many are left out."""
    most = max((len(section.decisions.texts) for section in sections), default=0)
    while True:
        views = []
        for number, (section, token_texts) in enumerate(zip(sections, texts, strict=True), start=1):
            cut = dataclasses.replace(section.decisions, texts=section.decisions.texts[:most])
            views.append(_SectionView(section, cut, f"rollouts-{number}", browse(cut, token_texts, f"s{number}")))
        html = _render({**context, "sections": views})
        size = len(html.encode())
        if most == 0 or size <= _MOST_BYTES:
            return html
        most = min(most - 1, most * _MOST_BYTES // size)


def _evaluation_views(runs: Sequence[EvaluationRun], looks: Mapping[str, Style]) -> list[_EvaluationView]:
    views = []
    for number, (run, stem) in enumerate(zip(runs, _stems([run.name for run in runs]), strict=True), start=1):
        compared = [run.whole, *run.tasks]
        # No stem holds a hyphen, so that a run's task cannot share a name with another run.
        stems = [stem, *(f"{stem}-{task}" for task in _stems([task.name for task in run.tasks]))]
        parts = [(part, accuracy_charts(part, end, looks)) for part, end in zip(compared, stems, strict=True)]
        views.append(_EvaluationView(run, f"evaluation-{number}", parts))
    return views


def _sum_charts(
    runs: Sequence[EvaluationRun], sections: Sequence[RolloutSection], looks: Mapping[str, Style]
) -> list[Chart]:
    shown = profiles(runs, sections)
    if len(runs) > 1:
        # Here the methods of one name stand side by side.
        looks = styles([profile.look for profile in shown])
    return [chart for chart in (acceptance_chart(shown, looks), risk_chart(shown, looks)) if chart is not None]


def _training_views(runs: Sequence[TrainingRun], sections: Sequence[RolloutSection]) -> list[_TrainingView]:
    views = []
    for run, stem in zip(runs, _stems([run.name for run in runs]), strict=True):
        # The trainer does not log it, the records of its rollouts show it.
        own = (s for s in sections if s.file.paths[0].parent == run.path / ROLLOUTS)
        by_step = next((section.tokens_per_round_by_step for section in own), {})
        charts = training_charts(run, stem, {"tokens_per_round": by_step})
        views.append(_TrainingView(run, charts, single_values(run)))
    return views


def _stems(names: Sequence[str]) -> list[str]:
    """A stem of file names for each; of those that would be equal all but the first get a number."""
    found: list[str] = []
    for name in names:
        stem = file_stem(name)
        numbered = (f"{stem}_{number}" for number in itertools.count(2))
        found.append(next(one for one in itertools.chain([stem], numbered) if one not in found))
    return found


def _looks(runs: Sequence[EvaluationRun], sections: Sequence[RolloutSection]) -> dict[str, Style]:
    """A style per method and per rollout file; the records of a method look like the method."""
    methods = [method.name for run in runs for method in run.whole.methods]
    files = {section.file.name: section.file.method or section.file.name for section in sections}
    found = styles([*methods, *files.values()])
    return found | {name: found[method] for name, method in files.items()}


def _settings(findings: Findings) -> list[tuple[str, str]]:
    """(title, text) of everything that says how the results came about."""
    found = [(f"{run.name}: settings", dumps(dict(run.settings), indent=2)) for run in findings.evaluations]
    for run in findings.trainings:
        if run.config is not None:
            found.append((f"{run.name}: config", run.config))
        if run.provenance:
            found.append((f"{run.name}: provenance, versions", dumps(dict(run.provenance), indent=2)))
    return found


def _render(context: Mapping[str, Any]) -> str:
    environment = Environment(
        loader=FileSystemLoader(_ASSETS), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters |= {"plain": plain, "shown_text": shown, "shown_line": _shown_line, "fixed": _fixed}
    script = (_ASSETS / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Our own files, without anything of a run in them.
    own = {name: Markup((_ASSETS / name).read_text(encoding="utf-8")) for name in ("report.css", "report.js")}
    return environment.get_template("report.html.j2").render(
        **context,
        version=__version__,
        css=own["report.css"],
        script=own["report.js"],
        script_hash=f"sha256-{digest}",
    )


def _shown_line(text: str) -> Markup:
    return shown(shortened(text, _MOST_REASON), line_breaks=False)


def _fixed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}"
