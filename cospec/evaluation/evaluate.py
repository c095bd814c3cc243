"""Run several methods over the same problems of one or more tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from cospec.engine.record import Rollout
from cospec.evaluation.method import EvalSettings, Judged, Method, requests_of, run_method
from cospec.evaluation.result import Evaluation, MethodResult, TaskResult
from cospec.evaluation.sample import Sample, SampleKey
from cospec.evaluation.scoring import FailureLimit
from cospec.evaluation.task import EvalTask
from cospec.pair import Pair

#: The share of samples whose scorer may fail before a run stops.
MAX_FAILED_SHARE = 0.05


def evaluate(
    pair: Pair,
    methods: Sequence[Method],
    tasks: Sequence[EvalTask],
    settings: EvalSettings,
    *,
    kept: Iterable[Sample] = (),
    on_sample: Callable[[Sample, Rollout], None] | None = None,
    max_failed_share: float = MAX_FAILED_SHARE,
) -> Evaluation:
    """Run each method over the same rows in this process, with the same batch size, task by task.

    ``kept`` holds samples of an earlier, interrupted run; their rows are not run again. ``on_sample`` is called with
    each new sample as it ends, and the record it was made of. ValueError, before anything is decoded, for two methods
    or tasks of one name, settings that cannot work and prompts that do not fit; `TooManyFailures` above
    ``max_failed_share``.
    """
    _check(pair, methods, tasks, settings)
    found = {(sample.method, sample.key): sample for sample in kept}
    for task in tasks:
        for method in methods:
            limit = FailureLimit(max_failed_share, len(task.rows) * settings.repeats)
            keys = [(method.name, key) for key in _keys(task, settings)]
            for key in keys:
                if key in found:
                    limit.add(found[key])
            for judged in _new_samples(pair, method, task, settings, found):
                for sample, rollout in judged:
                    found[method.name, sample.key] = sample
                    if on_sample:
                        on_sample(sample, rollout)
                # Only now: what was judged together is kept together, whatever it says of the scorer.
                for sample, _ in judged:
                    limit.add(sample)
    return Evaluation(tuple(_result(task, methods, settings, found) for task in tasks))


_Found = dict[tuple[str, SampleKey], Sample]


def _keys(task: EvalTask, settings: EvalSettings) -> list[SampleKey]:
    """All samples of a method on a task: by repeat, and within a repeat in the order of the rows."""
    return [SampleKey(task.name, row.id, repeat) for repeat in range(settings.repeats) for row in task.rows]


def _new_samples(
    pair: Pair, method: Method, task: EvalTask, settings: EvalSettings, found: _Found
) -> Iterator[list[Judged]]:
    """The missing samples of a method on a task, as they end."""
    for repeat in range(settings.repeats):
        missing = [row for row in task.rows if (method.name, SampleKey(task.name, row.id, repeat)) not in found]
        if missing:
            yield from run_method(pair, method, task, missing, settings, repeat)


def _result(task: EvalTask, methods: Sequence[Method], settings: EvalSettings, found: _Found) -> TaskResult:
    """The samples in the order of `_keys`, whatever the order in which they came."""
    keys = _keys(task, settings)
    results = [
        MethodResult(
            method.name,
            method.rule_name,
            method.bonus_in_use,
            method.is_arbiter,
            tuple(found[method.name, key] for key in keys),
        )
        for method in methods
    ]
    return TaskResult(task.name, tuple(results))


def _check(pair: Pair, methods: Sequence[Method], tasks: Sequence[EvalTask], settings: EvalSettings) -> None:
    for kind, names in (("methods", [m.name for m in methods]), ("tasks", [t.name for t in tasks])):
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two {kind} are called {name!r}: samples are kept by name, so give each its own")
    engines = {method.name: method.engine(pair, settings) for method in methods}
    for task in tasks:
        for request in requests_of(pair, task.rows, raw=settings.raw):
            for name, engine in engines.items():
                if len(request.prompt_ids) >= engine.pair.target_context:
                    raise ValueError(
                        f"prompt {request.id!r} of task {task.name!r} has {len(request.prompt_ids)} tokens, but method "
                        f"{name!r} has a context of {engine.pair.target_context}: shorten the prompt, or leave out the "
                        "method"
                    )
