"""What lies in the directories a report is asked for: evaluations, training runs, files of rollout records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from cospec.evaluation.report.evaluation import EvaluationRun, read_evaluation, read_object
from cospec.evaluation.run import RESULTS, SAMPLES
from cospec.jsonl import read_jsonl, require_file

PAIR_FILE, CONFIG, PROVENANCE = "pair.yaml", "config.yaml", "provenance.json"
METRICS, LABELS, ROLLOUTS = "metrics.jsonl", "labels.jsonl", "rollouts"
#: Sub-directories that hold a run's own files, not further runs.
_NOT_RUNS = (ROLLOUTS, "checkpoints", "arbiter")


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

    ``evaluation`` and ``method`` are set where an evaluation keeps the records of one of its methods; ``in_training``
    marks the records of GRPO, which name their step and verdict; ``paths`` are several for several processes.
    """

    paths: tuple[Path, ...]
    name: str
    evaluation: EvaluationRun | None = None
    method: str | None = None
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
    for path in paths:
        here = [_single_file(path)] if path.is_file() else list(_inspect_tree(path))
        if not here:
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


def _single_file(path: Path) -> _Finding:
    row = next(read_jsonl(require_file(path, "file"), skip_torn_tail=True), {}) if path.suffix == ".jsonl" else {}
    if "labels" in row:
        return LabelFile(path, path.name)
    if "blocks" in row or "rollout" in row:
        return RolloutFile((path,), path.name, in_training="rollout" in row)
    raise ValueError(
        f"{path} is neither a file of rollout records (`cospec rollout --out`) nor of labels (`cospec label --out`): "
        "give one of these, or a run directory"
    )


def _inspect_tree(path: Path) -> Iterator[_Finding]:
    if not path.exists():
        raise ValueError(f"{path} does not exist: give run directories or files of rollout records")
    top = path.resolve().name or str(path)
    yield from _inspect(path, top)
    for folder in sorted(entry for entry in path.iterdir() if entry.is_dir() and entry.name not in _NOT_RUNS):
        yield from _inspect(folder, f"{top}/{folder.name}")


def _inspect(path: Path, name: str) -> Iterator[_Finding]:
    evaluation = None
    if (path / RESULTS).is_file() or (path / SAMPLES).is_file():
        evaluation = read_evaluation(path, name)
        yield evaluation
    training = (path / METRICS).is_file()
    if training:
        yield _training(path, name)
    for file in sorted(path.glob("rollouts*.jsonl")):
        yield RolloutFile((file,), f"{name}/{file.name}")
    yield from _in_folder(path, name, evaluation, training)
    if (path / LABELS).is_file():
        yield LabelFile(path / LABELS, f"{name}/{LABELS}")


def _in_folder(path: Path, name: str, evaluation: EvaluationRun | None, training: bool) -> Iterator[RolloutFile]:
    """The records in ``rollouts/``: one file per method of an evaluation, or per process of a training run."""
    files = sorted((path / ROLLOUTS).glob("*.jsonl"))
    if training:
        if ranks := tuple(file for file in files if file.stem.startswith("rank")):
            yield RolloutFile(ranks, f"{name}/{ROLLOUTS}", in_training=True)
        return
    for file in files:
        # The name of a method can hold any character, the name of a file cannot.
        method = unquote(file.stem)
        known = evaluation if evaluation and method in evaluation.method_names else None
        yield RolloutFile((file,), f"{name}/{ROLLOUTS}/{file.name}", known, method if known else None)


def _training(path: Path, name: str) -> TrainingRun:
    config, provenance = path / CONFIG, path / PROVENANCE
    return TrainingRun(
        path=path,
        name=name,
        rows=tuple(read_jsonl(path / METRICS, skip_torn_tail=True)),
        config=config.read_text(encoding="utf-8", errors="replace") if config.is_file() else None,
        provenance=read_object(provenance) if provenance.is_file() else {},
    )
