"""The bundled word problems as a task: `cospec.tasks.word_problems` generates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cospec import __version__
from cospec.tasks.base import Problem, RawRow, SplitShots, Task
from cospec.tasks.generated import Generated
from cospec.tasks.word_problems import SPLITS, generate


def _rows(split: str, num: int, seed: int) -> Sequence[Mapping[str, object]]:
    problems = generate(num, seed, split=split)
    return [{"id": p.id, "prompt": p.prompt, "solution": p.solution, "gold": p.gold} for p in problems]


def read(row: RawRow) -> Problem:
    """The problem as it was generated."""
    return Problem(row.text("id"), row.text("prompt"), row.text("gold"), row.text("solution"))


TASK = Task(
    name="word_problems",
    licence="Apache-2.0",
    source=Generated(
        name="word_problems",
        splits=("eval", *(split for split in SPLITS if split != "eval")),
        generate=_rows,
        version=lambda: f"cospec {__version__}",
    ),
    scorer="word_problems",
    # The bundled pair was trained on the bare problems.
    instruction="{question}",
    plain="{question}\n",
    read=read,
    shots=SplitShots("train"),
)
