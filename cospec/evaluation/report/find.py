"""What lies in the directories a report is asked for: evaluations, training runs, files of rollout records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote

from cospec.evaluation.report.evaluation import EvaluationRun, read_evaluation, read_object
from cospec.evaluation.report.rows import whole_rows
from cospec.evaluation.run import RESULTS, SAMPLES
from cospec.jsonl import require_file

PAIR_FILE, CONFIG, PROVENANCE = "pair.yaml", "config.yaml", "provenance.json"
METRICS, LABELS, ROLLOUTS = "metrics.jsonl", "labels.jsonl", "rollouts"
#: Sub-directories that hold a run's own files, not further runs.
_NOT_RUNS = (ROLLOUTS, "checkpoints", "arbiter", "oracle", "spot_check")
#: Records of `cospec eval --oracle-branch` and what both branches of their decisions end in.
_ORACLE, _ORACLE_ROLLOUTS, _ORACLE_LABELS = "oracle", ".rollouts.jsonl", ".labels.jsonl"


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A run directory of `train/sft.py` or `train/grpo.py`; ``rows`` are the lines of its metrics file."""

    path: Path
    name: str
    rows: tuple[Mapping[str, Any], ...]
    config: str | None
    provenance: Mapping[str, Any]

    @property
    def stage(self) -> Literal["GRPO", "warm-up"]:
        return "GRPO" if any("reward" in row for row in self.rows) else "warm-up"


@dataclass(frozen=True, slots=True)
class RolloutFile:
    """A file of rollout records, and what is known about them.

    ``evaluation``, ``task`` and ``method`` are set where they are records of an evaluation; ``labels`` is a file that
    says of their mismatches which branch ends right. ``in_training`` marks the records of GRPO, which name their step
    and verdict; ``paths`` are several for several processes.
    """

    paths: tuple[Path, ...]
    name: str
    evaluation: EvaluationRun | None = None
    task: str = ""
    method: str | None = None
    labels: Path | None = None
    in_training: bool = False


@dataclass(frozen=True, slots=True)
class LabelFile:
    """A file of `cospec label`."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that was found, in the order in which it was asked for."""

    evaluations: tuple[EvaluationRun, ...]
    trainings: tuple[TrainingRun, ...]
    rollouts: tuple[RolloutFile, ...]
    labels: tuple[LabelFile, ...]

    def files(self) -> list[Path]:
        """The JSON Lines files that a process may still be writing."""
        found = [run.path / SAMPLES for run in self.evaluations] + [run.path / METRICS for run in self.trainings]
        for records in self.rollouts:
            found += [*records.paths, *([records.labels] if records.labels else [])]
        found += [file.path for file in self.labels]
        return [path for path in dict.fromkeys(found) if path.is_file()]

    def lines(self) -> list[str]:
        """One line per finding, for people."""
        found = [f"evaluation {run.name}: {run.described()}" for run in self.evaluations]
        found += [f"training run {run.name}: {run.stage}, {len(run.rows)} rows of metrics" for run in self.trainings]
        found += [f"rollout records {file.name}" for file in self.rollouts]
        return found + [f"labels {file.name}" for file in self.labels]


_Finding = EvaluationRun | TrainingRun | RolloutFile | LabelFile


def find_runs(paths: Sequence[Path]) -> Findings:
    """Look at each path and, for a directory, at its sub-directories; ValueError names a path with nothing usable."""
    found: list[_Finding] = []
    trees = [_tree(path) for path in paths]
    names = _unique_names(trees)
    for path, tree in zip(paths, trees, strict=True):
        whole = {entry.resolve(): entry for entry in tree}
        # What is asked for twice is shown once, under its first name.
        new = {real: entry for real, entry in whole.items() if real in names}
        here = [finding for real, entry in new.items() for finding in _inspect(entry, names.pop(real))]
        if not here and len(new) == len(whole):
            raise ValueError(
                f"{path} holds nothing to report on: looked in it and its sub-directories for an evaluation ({RESULTS} "
                f"or {SAMPLES}), a training run ({METRICS}), rollout records (rollouts*.jsonl, {ROLLOUTS}/*.jsonl) and "
                f"labels ({LABELS})"
            )
        found += here
    return Findings(
        evaluations=tuple(item for item in found if isinstance(item, EvaluationRun)),
        trainings=tuple(item for item in found if isinstance(item, TrainingRun)),
        rollouts=tuple(item for item in found if isinstance(item, RolloutFile)),
        labels=tuple(item for item in found if isinstance(item, LabelFile)),
    )


def nearest_file(path: Path, name: str) -> Path | None:
    """The file of that name in the directory of ``path`` (or ``path`` itself), or in one of the two above it."""
    start = path.absolute() if path.is_dir() else path.absolute().parent
    return next((folder / name for folder in (start, *start.parents[:2]) if (folder / name).is_file()), None)


def _single_file(path: Path, name: str) -> _Finding:
    row = next(whole_rows(require_file(path, "file")), {}) if path.suffix == ".jsonl" else {}
    if "labels" in row:
        return LabelFile(path, name)
    if "blocks" in row or "rollout" in row:
        return RolloutFile((path,), name, in_training="rollout" in row)
    raise ValueError(
        f"{path} is neither a file of rollout records (`cospec rollout --out`) nor of labels (`cospec label --out`): "
        "give one of these, or a run directory"
    )


def _tree(path: Path) -> list[Path]:
    """A path and, for a directory, its sub-directories that may be runs."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: give run directories or files of rollout records")
    if not path.is_dir():
        return [path]
    return [path, *sorted(entry for entry in path.iterdir() if entry.is_dir() and entry.name not in _NOT_RUNS)]


def _unique_names(trees: Sequence[Sequence[Path]]) -> dict[Path, str]:
    """A name for each resolved path: its last parts, with as many parents as it takes for no two trees to share one."""
    entries: dict[Path, tuple[int, int]] = {}
    for number, tree in enumerate(trees):
        for path in tree:
            entries.setdefault(path.resolve(), (number, 1 if path is tree[0] else 2))
    more = [0] * len(trees)
    while True:
        names = {
            path: Path(*path.parts[-(depth + more[number]) :]).as_posix() for path, (number, depth) in entries.items()
        }
        uses = Counter(names.values())
        shared = {entries[path][0] for path, name in names.items() if uses[name] > 1}
        if not shared:
            return names
        for number in shared:
            more[number] += 1


def _inspect(path: Path, name: str) -> Iterator[_Finding]:
    if path.is_file():
        yield _single_file(path, name)
        return
    evaluation = None
    if (path / RESULTS).is_file() or (path / SAMPLES).is_file():
        evaluation = read_evaluation(path, name)
        yield evaluation
    training = (path / METRICS).is_file()
    if training:
        yield _training(path, name)
    labels = path / LABELS if (path / LABELS).is_file() else None
    for file in sorted(path.glob("rollouts*.jsonl")):
        yield RolloutFile((file,), f"{name}/{file.name}", labels=labels)
    if training:
        if ranks := tuple(sorted((path / ROLLOUTS).glob("rank*.jsonl"))):
            yield RolloutFile(ranks, f"{name}/{ROLLOUTS}", in_training=True)
    else:
        yield from _by_method(path, name, evaluation)
    if labels:
        yield LabelFile(labels, f"{name}/{LABELS}")


def _by_method(path: Path, name: str, evaluation: EvaluationRun | None) -> Iterator[RolloutFile]:
    """The records of an evaluation: a file per task and method, or, by hand, per method."""
    for file in sorted((path / ROLLOUTS).glob("*.jsonl")):
        task, method = _task_and_method(file.stem, evaluation)
        yield RolloutFile((file,), f"{name}: {unquote(file.stem)}", evaluation if method else None, task, method)
    for stem, file in _oracle_files(path / _ORACLE).items():
        task, method = _task_and_method(stem, evaluation)
        labels = file.with_name(file.name.removesuffix(_ORACLE_ROLLOUTS) + _ORACLE_LABELS)
        yield RolloutFile(
            (file,),
            f"{name}, oracle branch: {unquote(stem)}",
            evaluation if method else None,
            task,
            method,
            labels if labels.is_file() else None,
        )


def _oracle_files(folder: Path) -> dict[str, Path]:
    """By task and method; their names end with the number of problems, of which the largest counts."""
    found: dict[str, tuple[int, Path]] = {}
    for file in sorted(folder.glob(f"*{_ORACLE_ROLLOUTS}")):
        stem, _, num = file.name.removesuffix(_ORACLE_ROLLOUTS).rpartition(quote("/", safe=""))
        if num.isdigit() and int(num) > found.get(stem, (0, file))[0]:
            found[stem] = int(num), file
    return {stem: file for stem, (_, file) in found.items()}


def _task_and_method(stem: str, evaluation: EvaluationRun | None) -> tuple[str, str | None]:
    """What a file is named after, percent-encoded: a task and a method, or the method of an evaluation's only task."""
    known = evaluation.verdicts if evaluation else {}
    wanted = unquote(stem)
    for task, method in known:
        if wanted == f"{task}/{method}" or (wanted == method and len({one for one, _ in known}) == 1):
            return task, method
    return "", None


def _training(path: Path, name: str) -> TrainingRun:
    config, provenance = path / CONFIG, path / PROVENANCE
    return TrainingRun(
        path=path,
        name=name,
        rows=tuple(whole_rows(path / METRICS)),
        config=config.read_text(encoding="utf-8", errors="replace") if config.is_file() else None,
        provenance=read_object(provenance) if provenance.is_file() else {},
    )
