"""GPQA (Rein et al. 2023): graduate-level multiple choice. `gpqa` is the diamond set; `gpqa:main`, `gpqa:extended`.

Rows {"Question", "Correct Answer", "Incorrect Answer 1" to 3, "Record ID"}. The seed shuffles each row's choices, so
that a model's taste for a letter averages out. The authors ask not to publish rows in plain text: keep written prompt
files private.
"""

from __future__ import annotations

import random

from cospec.tasks.base import Problem, RawRow, Task
from cospec.tasks.registry import choose_variant
from cospec.tasks.source import Part, Published

LETTERS = "ABCD"
NAMES = ("diamond", "main", "extended")


def read(row: RawRow) -> Problem:
    """`gold` is the letter of the right choice, `choices` the four texts in their order."""
    right = row.text("Correct Answer").strip()
    choices = [right, *(row.text(f"Incorrect Answer {number}").strip() for number in (1, 2, 3))]
    name = row.own_id("Record ID") or f"{row.split}/{row.index}"
    order = list(range(4))
    random.Random(f"gpqa/{row.seed}/{name}").shuffle(order)
    question = row.text("Question").strip()
    extra = {"choices": [choices[index] for index in order]}
    return Problem(f"gpqa/{name}", question, LETTERS[order.index(0)], extra=extra)


def ask(problem: Problem) -> str:
    """Question, lettered choices and what to answer."""
    return (
        f"{_lettered(problem)}\n\nThink step by step, then end with a line of the form `Answer: X`, X being the letter."
    )


def ask_plain(problem: Problem) -> str:
    """The same for a base model."""
    return f"Question: {_lettered(problem)}\nAnswer:"


def _lettered(problem: Problem) -> str:
    choices = problem.extra["choices"]
    return "\n".join([problem.question, "", *(f"{LETTERS[i]}) {choice}" for i, choice in enumerate(choices))])


def _task(name: str, subset: str) -> Task:
    return Task(
        name=name,
        licence="CC-BY-4.0",
        source=Published(
            repo="Idavidrein/gpqa",
            revision="633f5ee89ab8ad4522a9f850766b73f62147ffdd",
            config=subset,
            variants=tuple(f"gpqa_{name}" for name in NAMES),
            parts={"test": (Part((subset, "test", "train"), "train"),)},
        ),
        scorer="choice",
        instruction=ask,
        plain=ask_plain,
        read=read,
    )


TASK = _task("gpqa", "gpqa_diamond")
_VARIANTS = {name: _task(f"gpqa:{name}", f"gpqa_{name}") for name in NAMES}


def variant(name: str) -> Task:
    """One of the three sets."""
    return choose_variant("gpqa", name, _VARIANTS)
