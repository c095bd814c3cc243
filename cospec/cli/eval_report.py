"""What `cospec eval` shows and compares in the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cospec.cli.eval_options import EvalOptions
from cospec.cli.outputs import check_output
from cospec.jsonl import dumps, write_json_atomic

if TYPE_CHECKING:
    from cospec.evaluation import Evaluation
    from cospec.evaluation.against import FinishedRun, RunsCompared

AGAINST = "against.json"
#: Stands for the directory of a run that leaves nothing.
THIS_RUN = Path("this run")


def check_outputs(options: EvalOptions) -> None:
    """ValueError before long work that would end without what it was asked for."""
    if options.plot is not None:
        from cospec.evaluation.plots import require_matplotlib

        require_matplotlib()
        check_output("--plot", options.plot, [options.prompts, *(options.train_prompts or [])])
        if options.plot.suffix.lower() != ".png":
            raise ValueError(f"--plot {options.plot} is written as a PNG: give a file name that ends in .png")
        _check_writable(options.plot)


def _check_writable(plot: Path) -> None:
    is_new = not plot.exists()
    try:
        plot.parent.mkdir(parents=True, exist_ok=True)
        plot.open("ab").close()
    except OSError as error:
        raise ValueError(f"--plot {plot} cannot be written ({error.strerror}): name another file") from error
    if is_new:
        plot.unlink()


def read_earlier(path: Path | None) -> FinishedRun | None:
    """The run to compare with, where one is named."""
    if path is None:
        return None
    from cospec.evaluation.against import read_finished

    return read_finished(path)


def check_against(earlier: FinishedRun, tasks: Mapping[str, Any], methods: Iterable[str], options: EvalOptions) -> None:
    """ValueError before anything is decoded that could not be compared in the end."""
    from cospec.evaluation.against import check_comparable

    _refuse_itself(options.out, earlier)
    names = [(task, method) for task in tasks for method in methods]
    check_comparable(options.out or THIS_RUN, tasks, names, earlier)


def _refuse_itself(out: Path | None, earlier: FinishedRun) -> None:
    if out is not None and out.exists() and out.samefile(earlier.path):
        raise ValueError(f"--out and --against both name {earlier.path}: a run has no difference from itself")


def against_earlier(
    settings: Mapping[str, Any], evaluation: Evaluation, earlier: FinishedRun, options: EvalOptions
) -> RunsCompared:
    """The evaluation that has just ended, against an earlier one."""
    from cospec.evaluation.against import compare_runs, finished_now

    compared = compare_runs(finished_now(options.out or THIS_RUN, settings, evaluation), earlier, options.margin)
    if options.out:
        write_json_atomic(options.out / AGAINST, compared.to_json())
    return compared


def compare_finished(out: Path | None, against: Path, margin: float, as_json: bool) -> None:
    """Two runs that have ended, without decoding anything."""
    from cospec.evaluation.against import compare_runs, read_finished
    from cospec.evaluation.table import print_against

    if out is None:
        raise ValueError("--against compares two runs: name the other one with --out, or problems to evaluate first")
    new, old = read_finished(out), read_finished(against)
    _refuse_itself(new.path, old)
    compared = compare_runs(new, old, margin).to_json()
    write_json_atomic(new.path / AGAINST, compared)
    if as_json:
        typer.echo(dumps(compared))
    else:
        print_against(compared)


def report(numbers: dict[str, Any], options: EvalOptions, compared: RunsCompared | None) -> None:
    """Print, one JSON object where that is asked for, and draw."""
    from cospec.evaluation.table import print_against, print_summary

    if options.json:
        typer.echo(dumps(numbers | ({"against": compared.to_json()} if compared else {})))
    else:
        print_summary(numbers)
        if compared:
            print_against(compared.to_json())
    if options.plot is not None:
        from cospec.evaluation.plots import plot_summary

        plot_summary(numbers, options.plot)
