"""What `cospec eval` does: load, decode, judge, look closer, report."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer

from cospec.cli.decode_option import method_from_file, warn_of_other_pair
from cospec.cli.eval_options import EvalOptions
from cospec.cli.eval_report import against_earlier, check_against, check_outputs, read_earlier, report
from cospec.cli.eval_tasks import LoadedTask, contaminations, load_eval_tasks
from cospec.cli.loading import RuleChoice
from cospec.cli.lock import sole_writer
from cospec.cli.methods import build_methods, check_methods, choose_methods, describe, describe_decoding
from cospec.cli.options import on_interrupt
from cospec.cli.progress import progress
from cospec.cli.stopping import StopSignals
from cospec.jsonl import dumps

if TYPE_CHECKING:
    from cospec.engine.record import Rollout
    from cospec.evaluation import EvalSettings, EvalTask, Evaluation, Method, Sample
    from cospec.evaluation.run import EvalRun
    from cospec.pair import Pair


def run_evaluation(options: EvalOptions) -> None:
    """The whole command; what can be refused is refused before models are loaded."""
    from cospec.cli.loading import check_passes, read_pair_spec

    options.check()
    check_outputs(options)
    earlier = read_earlier(options.against)
    loaded = load_eval_tasks(options)
    overlap = contaminations(loaded, options.train_prompts) if options.train_prompts else None
    choices = choose_methods(options.methods, options.arbiter or [], options.threshold)
    if options.decode is not None:
        choices |= method_from_file(options.decode, choices)
    if options.oracle_branch and not any(choice.arbiter for choice in choices.values()):
        raise ValueError("--oracle-branch checks an arbiter's decisions, and there is none: add --arbiter DIR")
    check_methods(options.decoding(), choices, from_file=options.decode is not None)
    spec = read_pair_spec(*options.models, draft_use=options.decoding().draft_use(choices.values()))
    check_passes(None, options.packed, spec)
    if earlier:
        tasks = json.loads(dumps({entry.task.name: entry.described for entry in loaded}))
        check_against(earlier, tasks, choices, options)
    with sole_writer(options.out), StopSignals() as stop:
        evaluation, numbers = _run(options, loaded, choices, stop, {"contamination": overlap} if overlap else {})
    report(numbers, options, against_earlier(numbers["settings"], evaluation, earlier, options) if earlier else None)


def _run(
    options: EvalOptions,
    loaded: Sequence[LoadedTask],
    choices: Mapping[str, RuleChoice],
    stop: StopSignals,
    more: Mapping[str, Any],
) -> tuple[Evaluation, dict[str, Any]]:
    """Load the models, decode and judge; all that came out, and the numbers, with ``more`` beside them."""
    from cospec.cli.loading import load_pair_from_options
    from cospec.evaluation import summary

    _check_begun(options, loaded)
    decoding = options.decoding()
    pair = load_pair_from_options(*options.models, draft_use=decoding.draft_use(choices.values()))
    warn_of_other_pair(options.decode, pair)
    decoding.check_ids(pair)
    methods = build_methods(choices, pair, decoding)
    described = describe(pair, decoding, choices, methods) | {
        "repeats": options.repeats,
        "tasks": {entry.task.name: entry.describe(pair, options.raw) for entry in loaded},
    }
    # As it will be read back: a tuple is a list then.
    described = json.loads(dumps(described))
    job = _Job(options, decoding.over(pair), methods, [entry.task for entry in loaded], _settings(options))
    run = _open_run(job, described)
    evaluation = _evaluate(job, run, stop)
    numbers = summary(evaluation, options.num_draft_tokens, options.margin, _look_closer(job, run, evaluation))
    numbers |= {"repeats": options.repeats, "settings": run.settings if run else described, **more}
    if run:
        run.finish(numbers, job.tasks)
    return evaluation, numbers


def _check_begun(options: EvalOptions, loaded: Sequence[LoadedTask]) -> None:
    from cospec.evaluation.run import check_begun

    if options.out is None:
        return
    known = {
        **describe_decoding(options.decoding()),
        "repeats": options.repeats,
        "tasks": {entry.task.name: {**entry.described, "raw": options.raw} for entry in loaded},
    }
    check_begun(options.out, known, [entry.task for entry in loaded], rescore=options.rescore)


@dataclass(frozen=True, slots=True)
class _Job:
    """What is to be evaluated, loaded."""

    options: EvalOptions
    pair: Pair
    methods: Sequence[Method]
    tasks: Sequence[EvalTask]
    settings: EvalSettings


def _settings(options: EvalOptions) -> EvalSettings:
    return options.decoding().eval_settings(options.repeats, raw=options.raw, workers=options.workers)


# --- decoding --------------------------------------------------------------------------------------------------------


def _open_run(job: _Job, described: dict[str, Any]) -> EvalRun | None:
    from cospec.evaluation.oracle import drop_labels
    from cospec.evaluation.run import EvalRun
    from cospec.evaluation.scoring import rescored

    out = job.options.out
    if out is None:
        return None

    def rejudge(samples: list[Sample]) -> list[Sample]:
        judged = rescored(samples, job.tasks, job.settings.workers)
        num = sum(drop_labels(out, task.name) for task in job.tasks)
        if num:
            typer.echo(f"cospec: {num} files of labels had the old verdicts; --oracle-branch makes them anew", err=True)
        return judged

    run = EvalRun(out, described, rejudge if job.options.rescore else None)
    if job.options.keep_rollouts:
        num = run.match_rollouts(job.tasks, [method.name for method in job.methods])
        if num:
            typer.echo(f"cospec: {num} samples were made without --keep-rollouts and stay without a record", err=True)
    return run


def _evaluate(job: _Job, run: EvalRun | None, stop: StopSignals) -> Evaluation:
    from cospec.evaluation import evaluate
    from cospec.evaluation.scoring import TooManyFailures

    kept = run.samples() if run else []
    kept_where = f"all finished samples in {run.directory}" if run else "nothing (no --out was given)"
    with on_interrupt(lambda: kept_where), progress("eval", _announce_kept(job, kept), "samples") as step:

        def on_sample(sample: Sample, rollout: Rollout) -> None:
            if run:
                with stop.held():
                    if job.options.keep_rollouts and sample.repeat == 0:
                        run.add_rollout(sample, rollout)
                    run.add(sample)
            step()

        try:
            return evaluate(
                job.pair,
                job.methods,
                job.tasks,
                job.settings,
                kept=kept,
                on_sample=on_sample,
                max_failed_share=job.options.max_failed_share,
            )
        except TooManyFailures as error:
            again = ", which --rescore judges again" if run else ""
            raise ValueError(f"{error}; kept: {kept_where}{again}") from error


def _announce_kept(job: _Job, kept: Sequence[Sample]) -> int:
    """Say which methods go on from an earlier run; the number of samples still to decode."""
    have = Counter((sample.task, sample.method) for sample in kept)
    num_missing = 0
    for task in job.tasks:
        wanted = len(task.rows) * job.settings.repeats
        where = f" on {task.name}" if len(job.tasks) > 1 else ""
        for method in job.methods:
            num = have[task.name, method.name]
            num_missing += wanted - num
            if num:
                state = "not run again" if num == wanted else "goes on"
                name = f"{method.name}{where}"
                typer.echo(f"cospec: {name}: {num} of {wanted} samples are there already, {state}", err=True)
    return num_missing


# --- a closer look ---------------------------------------------------------------------------------------------------


def _look_closer(job: _Job, run: EvalRun | None, evaluation: Evaluation) -> dict[str, dict[str, Any]]:
    """By task, the results of --oracle-branch and --spot-check."""
    options, found = job.options, {task.name: dict[str, Any]() for task in job.tasks}
    arbiters = [method for method in job.methods if method.is_arbiter]
    with _folder(run) as folder:
        if options.oracle_branch:
            with _closer("oracle", job, options.oracle_branch * len(arbiters)) as step:
                for task in job.tasks:
                    checked = {m.name: _oracle(job, task, m, folder, step) for m in arbiters}
                    found[task.name]["oracle_branch"] = checked
        if options.spot_check:
            with _closer("spot check", job, options.spot_check * len(job.methods)) as step:
                for task, result in zip(job.tasks, evaluation.tasks, strict=True):
                    samples = {r.name: r.samples for r in result.results}
                    checked = {m.name: _alone(job, task, m, samples[m.name], folder, step) for m in job.methods}
                    found[task.name]["spot_check"] = checked
    return found


def _oracle(job: _Job, task: EvalTask, method: Method, folder: Path, step: Callable[[int], None]) -> dict[str, Any]:
    from cospec.evaluation.oracle import agree_with_oracle, oracle_stem

    num, share = job.options.oracle_branch, job.options.max_failed_share
    stem = oracle_stem(folder, task.name, method.name, num)
    return agree_with_oracle(job.pair, method, task, job.settings, num, stem, step, share).to_json()


def _alone(
    job: _Job, task: EvalTask, method: Method, samples: Sequence[Sample], folder: Path, step: Callable[[int], None]
) -> dict[str, Any]:
    from cospec.evaluation.spot_check import spot_check

    file = folder / "spot_check" / f"{quote(f'{task.name}/{method.name}', safe='')}.jsonl"
    return spot_check(job.pair, method, task, job.settings, job.options.spot_check, samples, file, step).to_json()


@contextlib.contextmanager
def _folder(run: EvalRun | None) -> Iterator[Path]:
    """Where a closer look keeps what it has done: the run directory, or a place that is cleared."""
    if run:
        yield run.directory
        return
    with TemporaryDirectory(prefix="cospec-eval-") as name:
        yield Path(name)


@contextlib.contextmanager
def _closer(title: str, job: _Job, num: int) -> Iterator[Callable[[int], None]]:
    kept = job.options.out or "nothing (no --out was given)"
    with on_interrupt(lambda: f"what is done in {kept}"), progress(title, num * len(job.tasks)) as step:
        yield step
