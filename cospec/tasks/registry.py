"""Tasks by name. A new task is one new module and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from cospec.tasks.base import Task

# A module has a `TASK`; one with variants (`mgsm:de`) has a function `variant(name) -> Task` as well.
TASKS: Mapping[str, str] = MappingProxyType(
    {
        "gsm8k": "cospec.tasks.gsm8k",
        "math500": "cospec.tasks.math500",
        "aime2024": "cospec.tasks.aime2024",
        "humaneval": "cospec.tasks.humaneval",
        "mbpp": "cospec.tasks.mbpp",
        "livecodebench": "cospec.tasks.livecodebench",
        "gpqa": "cospec.tasks.gpqa",
        "mgsm": "cospec.tasks.mgsm",
        "triviaqa": "cospec.tasks.triviaqa",
        "nq_open": "cospec.tasks.nq_open",
        "svamp": "cospec.tasks.svamp",
        "mt_bench": "cospec.tasks.mt_bench",
        "reasoning_gym": "cospec.tasks.reasoning_gym",
        "word_problems": "cospec.tasks.word_problems_task",
    }
)
"""The module of every task."""


def is_task(name: str) -> bool:
    """Whether ``name`` is a task's, or the name of a task's variant as far as the part before its colon tells."""
    return name.partition(":")[0] in TASKS


def task_named(name: str) -> Task:
    """The task ``name`` or ``name:variant``; an unknown one raises ValueError with the nearest name."""
    base, colon, variant = name.partition(":")
    if base not in TASKS:
        near = difflib.get_close_matches(base, TASKS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(TASKS)}"
        raise ValueError(f"unknown task {name!r}: {hint}")
    module = import_module(TASKS[base])
    if not colon:
        task: Task = module.TASK
        return task
    if not hasattr(module, "variant"):
        raise ValueError(f"task {base!r} has no variants: leave {':' + variant!r} out")
    found: Task = module.variant(variant)
    return found


def choose_variant(task: str, variant: str, known: Mapping[str, Task]) -> Task:
    """The variant of a task by its name, for a module's `variant`; ValueError lists the names."""
    if variant not in known:
        raise ValueError(f"task {task!r} has no variant {variant!r}: use {task} or {task}:{{{', '.join(known)}}}")
    return known[variant]
