"""`cospec report`: runs and rollout records as one self-contained HTML page and PNG charts."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cospec.cli.options import JsonOption, PairOption, PromptsOption, ScorerOption
from cospec.cli.outputs import check_directory
from cospec.jsonl import dumps

if TYPE_CHECKING:
    from cospec.evaluation.report.sources import Scorer


def command(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR...", help="Directories of eval, demo or training; rollout files."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Directory for report.html and the PNG charts.")
    ] = None,
    pair: PairOption = None,
    prompts: PromptsOption = None,
    scorer: ScorerOption = None,
    list_size: Annotated[int, typer.Option("--list-size", min=1, help="Decisions in each list of the browser.")] = 12,
    max_texts: Annotated[
        int, typer.Option("--max-texts", min=0, help="Texts of a file besides those of its lists")
    ] = 8,
    json: JsonOption = False,
) -> None:
    """Write a page about runs: tables, charts, and a browser of single decisions.

    The page loads nothing and works without JavaScript. The pair of rollout records is the one their run names, unless
    --pair is given; only its tokenizer is loaded. --prompts scores records that have no verdict.
    """
    if out is None:
        raise ValueError("no place for the report given: use --out DIR")
    check_directory(out)
    _require_packages()
    from cospec.evaluation.report import PAGE, ReportOptions, build_report, find_runs

    findings = find_runs(runs)
    for line in findings.lines():
        typer.echo(f"cospec: found {line}", err=True)
    judge = _judge(prompts, scorer)
    spec = None
    if pair is not None:
        from cospec.cli.loading import read_pair_spec

        spec = read_pair_spec(pair, None, None)
    title = f"CoSpec report: {', '.join(path.resolve().name for path in runs)}"
    options = ReportOptions(title, list_size, max_texts, spec)
    report = build_report(findings, options, judge) if judge else build_report(findings, options)
    if judge and not judge.num_scored:
        raise ValueError("--prompts is given, but there is no unscored rollout of its rows: drop --prompts")
    report.write(out)
    for note in report.notes:
        typer.echo(f"cospec: note: {note}", err=True)
    charts = [f"{chart.name}.png" for chart in report.charts]
    if json:
        typer.echo(dumps({"page": str(out / PAGE), "charts": charts, "notes": list(report.notes)}))
    else:
        typer.echo(f"{out / PAGE} ({len(report.html.encode()) / 1e6:.1f} MB) and {len(charts)} charts")


def _require_packages() -> None:
    missing = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if missing:
        raise ValueError(f"the report needs {' and '.join(missing)}: pip install 'cospec[report]'")


def _judge(prompts: Path | None, scorer: str | None) -> Scorer | None:
    if prompts is None:
        if scorer is not None:
            raise ValueError("--scorer is given without --prompts: it needs the rows with their gold answers")
        return None
    from cospec.evaluation.report.sources import Scorer
    from cospec.prompt_rows import common_task, load_prompt_rows
    from cospec.scoring import scorer_for

    rows = load_prompt_rows(prompts, require_gold=True)
    return Scorer(rows, scorer_for(scorer or common_task(rows)))
