"""Which worked examples precede a question."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from cospec.tasks.base import Problem, RowRequest, SplitShots, Task, UnusableRow

# Examples kept beyond those asked for, to replace one that puts the very question of a row.
_SPARE = 4


@dataclass(frozen=True, slots=True)
class ShotPool:
    """The examples of a task set in order, with spare ones for rows that are examples themselves."""

    examples: tuple[Problem, ...]
    num: int

    def before(self, problem: Problem) -> Sequence[Problem]:
        """The first ``num`` examples that do not put the same question."""
        question = _bare(problem.question)
        others = [example for example in self.examples if _bare(example.question) != question]
        return others[: self.num]


def pick_shots(task: Task, request: RowRequest, split: str, num: int) -> ShotPool:
    """Examples for rows of one split: those written for the task in their order, or a seeded draw from its own split.

    ValueError where the task has no examples or not so many.
    """
    if num == 0:
        return ShotPool((), 0)
    if task.shots is None:
        raise ValueError(f"task {task.name!r} has no few-shot examples: use 0 shots")
    if isinstance(task.shots, SplitShots):
        examples = _drawn(task, task.shots.split, request)
        # A row of the examples' own split must not be among its examples.
        limit = len(examples) - (task.shots.split == split)
    else:
        examples, limit = task.shots, len(task.shots)
    if num > limit:
        raise ValueError(f"task {task.name!r} has {limit} few-shot examples and {num} are asked for: ask for fewer")
    return ShotPool(tuple(examples[: num + _SPARE]), num)


def _drawn(task: Task, split: str, request: RowRequest) -> tuple[Problem, ...]:
    """All examples of a split in an order that the seed decides, so that fewer shots are the first of more."""
    try:
        raw = task.source.read(RowRequest(request.path, split, None, request.seed, request.revision))
    except ValueError as error:
        raise ValueError(f"the few-shot examples of {task.name!r} come from its split {split!r}: {error}") from error
    pool: dict[str, Problem] = {}
    for row in raw.rows:
        try:
            problem = task.read(row)
        except UnusableRow:
            continue
        if problem.worked:
            pool.setdefault(_bare(problem.question), problem)
    examples = list(pool.values())
    random.Random(f"{task.name}/shots/{request.seed}").shuffle(examples)
    return tuple(examples)


def _bare(question: str) -> str:
    return "".join(question.split()).casefold()
