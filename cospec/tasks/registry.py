"""Tasks by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cospec.tasks.base import Problem, Task


def _word_problems(num: int, seed: int, split: str) -> Iterator[Problem]:
    from cospec.tasks.word_problems import generate

    for problem in generate(num, seed, split=split):
        yield Problem(problem.id, problem.prompt, problem.gold, problem.solution)


TASKS: Mapping[str, Task] = {
    "word_problems": Task("word_problems", "Apache-2.0", "generated", "word_problems", "{question}", _word_problems)
}


def is_task(name: str) -> bool:
    """Whether ``name`` is a task's."""
    return name in TASKS


def task_named(name: str) -> Task:
    """The task of that name; an unknown one raises ValueError."""
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}: use one of {', '.join(TASKS)}")
    return TASKS[name]
