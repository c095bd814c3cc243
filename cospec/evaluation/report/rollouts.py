"""From a file of rollout records to the decisions, texts and verdicts of its section of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cospec.engine.metrics import ratio
from cospec.engine.record import Rollout, rollout_from_json
from cospec.evaluation.report.decisions import DecisionCollector, DecisionSet, Judged, Labels
from cospec.evaluation.report.find import RolloutFile
from cospec.evaluation.report.rows import numbered_rows, whole_labels
from cospec.labels.record import RolloutLabels, digest
from cospec.scoring.verdict import Verdict

#: Gives the verdict of a rollout whose record carries none, or None where it is not to be had.
Judge = Callable[[Rollout], Verdict | None]


@dataclass(frozen=True, slots=True)
class RolloutSection:
    """``step`` and ``tokens_per_round_by_step`` are for records of training, whose last step alone is looked into."""

    file: RolloutFile
    decisions: DecisionSet
    rule: str
    step: int | None
    tokens_per_round_by_step: Mapping[int, float]


def read_rollout_section(file: RolloutFile, list_size: int, num_texts: int, judge: Judge) -> RolloutSection | None:
    """One pass over the records; None for a file without any. ValueError names file and line of a damaged record."""
    step, rule = -1, ""
    collector = DecisionCollector(list_size, num_texts)
    tokens: dict[int, int] = {}
    rounds: dict[int, int] = {}
    for at, judged in _records(file, judge):
        rollout, rule = judged.rollout, judged.rollout.settings.rule
        tokens[at] = tokens.get(at, 0) + len(rollout.output_ids)
        rounds[at] = rounds.get(at, 0) + rollout.num_rounds
        if at > step:
            # What earlier steps decided was decided by an earlier arbiter.
            step, collector = at, DecisionCollector(list_size, num_texts)
        if at == step:
            collector.add(judged)
    if not tokens:
        return None
    by_step = {at: value for at in sorted(tokens) if (value := ratio(tokens[at], rounds[at])) is not None}
    return RolloutSection(
        file, collector.result(), rule, step if file.in_training else None, by_step if file.in_training else {}
    )


def _records(file: RolloutFile, judge: Judge) -> Iterator[tuple[int, Judged]]:
    """Each record with its training step, 0 for all others."""
    labels = {row.id: row for row in whole_labels(file.labels)} if file.labels else {}
    for path in file.paths:
        for number, row in numbered_rows(path):
            if file.in_training:
                yield _trained(row, path, number)
            else:
                rollout = _rollout(row, path, number)
                yield 0, _judged(rollout, file, judge, labels)


def _trained(row: Mapping[str, Any], path: Path, number: int) -> tuple[int, Judged]:
    try:
        verdict = Verdict(**row["verdict"])
        return int(row["step"]), Judged(_rollout(row["rollout"], path, number), verdict)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}:{number}: not a record of GRPO of this version ({error})") from error


def _rollout(row: Mapping[str, Any], path: Path, number: int) -> Rollout:
    try:
        return rollout_from_json(row)
    except ValueError as error:
        raise ValueError(f"{path}:{number}: {error}") from error


def _judged(rollout: Rollout, file: RolloutFile, judge: Judge, labels: Mapping[str | int, RolloutLabels]) -> Judged:
    mine = _labels_of(rollout, labels)
    run = file.evaluation
    if run is None or file.method is None:
        return Judged(rollout, judge(rollout), labels=mine)
    verdict = run.verdicts.get((file.task, file.method), {}).get(rollout.id)
    return Judged(rollout, verdict, _right(file, "target", rollout.id), _right(file, "draft", rollout.id), mine)


def _labels_of(rollout: Rollout, labels: Mapping[str | int, RolloutLabels]) -> Labels:
    """By block and position; nothing for labels made of another rollout of the same id."""
    row = labels.get(rollout.id)
    if row is None or row.rollout != digest(rollout):
        return {}
    return {(label.block, label.position): label for label in row.labels}


def _right(file: RolloutFile, rule: str, row_id: str | int) -> bool | None:
    """Whether the model alone solves the problem; None where it was not run, or its scorer failed."""
    assert file.evaluation is not None
    name = file.evaluation.named_alone(rule)
    verdict = file.evaluation.verdicts.get((file.task, name), {}).get(row_id) if name else None
    return None if verdict is None or verdict.is_failure else verdict.is_right
