"""The same problems again at batch size 1: how far does the batch change the texts?

In float32 no token may differ. In bfloat16 some do, as a sum is rounded in another order; more than a few point to a
fault in masks or caches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cospec.evaluation.method import EvalSettings, Method, requests_of
from cospec.evaluation.sample import Sample
from cospec.evaluation.task import EvalTask
from cospec.jsonl import append_jsonl, drop_torn_tail, read_jsonl
from cospec.pair import Pair


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two texts of one problem part: the first output position, 0-based, at which their tokens differ."""

    id: str | int
    position: int


@dataclass(frozen=True, slots=True)
class SpotCheck:
    """``num`` texts decoded again at batch size 1, of which ``num_equal`` are the same token for token."""

    num: int
    num_equal: int
    differences: tuple[Difference, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return dataclasses.asdict(self)


def spot_check(
    pair: Pair,
    method: Method,
    task: EvalTask,
    settings: EvalSettings,
    num: int,
    samples: Iterable[Sample],
    file: Path,
    step: Callable[[int], None] = lambda count: None,
) -> SpotCheck:
    """Decode the task's first ``num`` problems alone and compare them with ``samples``, repeat 0 of the method.

    What was decoded goes to ``file``, from which an interrupted call goes on.
    """
    rows = task.rows[:num]
    drop_torn_tail(file)
    alone = {row["id"]: row["output_ids"] for row in (read_jsonl(file) if file.exists() else ())}
    missing = [row for row in rows if row.id not in alone]
    step(len(rows) - len(missing))
    engine = method.engine(pair, dataclasses.replace(settings, batch_size=1))
    for _, rollout in engine.run(requests_of(pair, missing, raw=settings.raw)):
        alone[rollout.id] = list(rollout.output_ids)
        append_jsonl(file, [{"id": rollout.id, "output_ids": rollout.output_ids}])
        step(1)
    together = {sample.id: sample.output_ids for sample in samples if sample.repeat == 0}
    return compare_texts({row.id: alone[row.id] for row in rows}, together)


def compare_texts(alone: Mapping[str | int, Sequence[int]], together: Mapping[str | int, Sequence[int]]) -> SpotCheck:
    """Compare the token ids of two decodings by id."""
    parted = [Difference(name, _first_difference(ids, together[name])) for name, ids in alone.items()]
    differences = tuple(found for found in parted if found.position >= 0)
    return SpotCheck(len(alone), len(alone) - len(differences), differences)


def _first_difference(one: Sequence[int], other: Sequence[int]) -> int:
    """-1 where there is none; a text that merely goes on parts from the other at its end."""
    if list(one) == list(other):
        return -1
    shorter = min(len(one), len(other))
    return next((index for index in range(shorter) if one[index] != other[index]), shorter)
