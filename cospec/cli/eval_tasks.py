"""The problems of an evaluation: read by the options, with their scorers, and described for the record of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cospec.cli.isolation import Level, say_isolation
from cospec.cli.methods import describe_rows
from cospec.cli.problem_options import ProblemOptions
from cospec.prompt_rows import PromptRow, common_task, load_prompt_rows

if TYPE_CHECKING:
    from cospec.evaluation import EvalTask
    from cospec.pair import Pair

#: Scorers that work in processes of their own, so that several texts can be judged at once.
_PARALLEL = frozenset({"code"})


@dataclass(frozen=True, slots=True)
class LoadedTask:
    """A task, and what the record of the run says of it."""

    task: EvalTask
    described: Mapping[str, Any]

    def describe(self, pair: Pair, raw: bool) -> dict[str, Any]:
        """The record, with a digest of the token ids that the models are given."""
        from cospec.cli.methods import digest
        from cospec.evaluation.method import requests_of

        ids = (repr(request.prompt_ids).encode() for request in requests_of(pair, self.task.rows, raw=raw))
        return {**self.described, "raw": raw, "prompt_digest": digest(ids)}


def load_eval_tasks(options: ProblemOptions) -> list[LoadedTask]:
    """All tasks with their rows; ValueError before any model is loaded for what cannot be scored."""
    if options.prompts is not None:
        loaded = [_from_file(options.prompts, options)]
    else:
        names = [split_of(text)[0] for text in options.task or []]
        paths, nums = data_paths(options.data or [], names), problem_nums(options.num or [], names)
        loaded = [_from_task(text, paths, nums, options) for text in options.task or []]
    scorers = [entry.task.scorer_name for entry in loaded]
    if options.workers > 1 and not _PARALLEL.intersection(scorers):
        raise ValueError(
            f"--workers {options.workers} runs programs of code tasks at once, and no task here has any: drop --workers"
        )
    # A scorer of the user's own may run programs as well.
    if options.confirm_run_unsafe_code and not any(name == "code" or ":" in name for name in scorers):
        raise ValueError("--confirm-run-unsafe-code is given and no task here has programs to run: drop it")
    if options.minimum_isolation is not None and "code" not in scorers:
        raise ValueError(
            "--minimum-isolation is for the scorer 'code', which no task here has (one of your own keeps programs as "
            "it likes): drop it"
        )
    return loaded


def _from_file(path: Path, options: ProblemOptions) -> LoadedTask:
    rows = load_prompt_rows(path, require_gold=True)
    tasks = {row.task for row in rows}
    name = next(iter(tasks)) if len(tasks) == 1 else None
    scorer = options.scorer or _scorer_of(common_task(rows))
    _require_readable_golds(rows, scorer)
    return _loaded(name or path.stem, rows, scorer, {"file": path.name}, options.minimum_isolation)


def _require_readable_golds(rows: Sequence[PromptRow], scorer: str) -> None:
    from cospec.scoring.golds import require_readable_golds

    require_readable_golds((row.scorer_row() for row in rows), scorer)


def _scorer_of(task: str) -> str:
    """The scorer of a task by its name; a name that is no task's is a scorer's own."""
    from cospec.tasks.registry import is_task, task_named

    return _required(task_named(task).scorer, task) if is_task(task) else task


def _from_task(text: str, paths: Mapping[str, Path], nums: Mapping[str, int], options: ProblemOptions) -> LoadedTask:
    from cospec.task_set import load_task

    name, split = split_of(text)
    found = load_task(
        name,
        path=paths.get(name),
        split=split,
        num=nums.get(name),
        num_shots=options.shots,
        chat=not options.raw,
        system_prompt=options.system_prompt,
        seed=options.seed,
    )
    if found.info.dropped:
        typer.echo(
            f"cospec: {text}: {len(found.info.dropped)} rows repeated or without a readable gold answer left out",
            err=True,
        )
    if options.scorer is not None:
        _require_readable_golds(found.rows, options.scorer)
    scorer = options.scorer or _required(found.info.scorer, name)
    return _loaded(text, found.rows, scorer, found.info.to_json(), options.minimum_isolation)


def _required(scorer: str | None, task: str) -> str:
    if scorer is None:
        raise ValueError(f"task {task!r} has no right answers that a scorer could check: give a judge with --scorer")
    return scorer


def _loaded(
    name: str, rows: Sequence[PromptRow], scorer: str, info: Mapping[str, Any], minimum: Level | None
) -> LoadedTask:
    from cospec.evaluation import EvalTask
    from cospec.scoring.registry import scorer_for, scorer_name

    scorer = scorer_name(scorer)
    task = EvalTask(name, tuple(rows), scorer_for(scorer), scorer, scorer in _PARALLEL)
    isolation = {"isolation": say_isolation(minimum).to_json()} if scorer == "code" else {}
    return LoadedTask(task, {**info, "scorer": scorer, **_source(scorer), **isolation, **describe_rows(rows)})


def _source(scorer: str) -> dict[str, Any]:
    """The digest of a scorer of the user's own, whose name says little."""
    from cospec.scoring.custom import source_digest

    return {"scorer_digest": source_digest(scorer)} if ":" in scorer else {}


def split_of(text: str) -> tuple[str, str | None]:
    """The name and the split of NAME[@SPLIT]."""
    name, at, split = text.partition("@")
    if not name or (at and not split):
        raise ValueError(f"--task {text!r}: write NAME or NAME@SPLIT")
    return name, split or None


def data_paths(data: Sequence[str], tasks: Sequence[str]) -> dict[str, Path]:
    """Where each task's data lie; a folder holds one entry per task, named without its variant."""
    found: dict[str, Path] = {}
    for text in data:
        name, equals, path = text.partition("=")
        if equals:
            places = dict.fromkeys(_meant(name, tasks), Path(path))
        else:
            places = {task: Path(text) / task.partition(":")[0] for task in tasks}
            places = {task: place for task, place in places.items() if place.exists()}
        if not places:
            raise ValueError(f"--data {text}: it is for none of the tasks {', '.join(tasks)}")
        found |= places
    return found


def contaminations(tasks: Sequence[LoadedTask], files: Sequence[Path]) -> dict[str, Any]:
    """By task, what of its problems is found in these prompts; says so on stderr."""
    from cospec.evaluation.contamination import contamination

    train = [row for file in files for row in load_prompt_rows(file, require_gold=False)]
    results = {}
    for entry in tasks:
        found = contamination(train, entry.task.rows)
        results[entry.task.name] = found.to_json()
        if found.ids:
            typer.echo(
                f"cospec: warning: {len(found.ids)} of {len(entry.task.rows)} problems of {entry.task.name} are among "
                "the training prompts, or share long passages with them",
                err=True,
            )
    return results


def problem_nums(given: Sequence[str], tasks: Sequence[str]) -> dict[str, int]:
    """How many problems of each task; a number for one task goes before a number for all."""
    found: dict[bool, dict[str, int]] = {False: {}, True: {}}
    for text in given:
        name, equals, num = text.rpartition("=")
        if not num.isascii() or not num.isdigit() or int(num) < 1:
            raise ValueError(f"--num is {text}: write N or NAME=N, N at least 1")
        meant = _meant(name, tasks) if equals else tasks
        if not meant:
            raise ValueError(f"--num {text}: it is for none of the tasks {', '.join(tasks)}")
        twice = [task for task in meant if task in found[bool(equals)]]
        if twice:
            raise ValueError(f"--num {text}: there is another --num for {', '.join(twice)}, drop one")
        found[bool(equals)] |= dict.fromkeys(meant, int(num))
    return found[False] | found[True]


def _meant(name: str, tasks: Sequence[str]) -> list[str]:
    """The tasks of a name with or without the variant."""
    return [task for task in tasks if name in (task, task.partition(":")[0])]
