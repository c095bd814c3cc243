"""AIME 2024: the 30 problems of both contests, answers 0 to 999. Rows {"id", "problem", "solution", "answer"}.

The rows of other copies, with "ID", "Problem", "Answer", are read as well.
"""

from __future__ import annotations

from cospec.tasks.base import Problem, RawRow, Task, UnusableRow
from cospec.tasks.math500 import ASK, EXAMPLES
from cospec.tasks.source import Part, Published


def read(row: RawRow) -> Problem:
    """The gold answer is a whole number of 0 to 999, written without leading zeros."""
    text = str(row.value("answer", "Answer")).strip().removesuffix(".0")
    digits = text.lstrip("0")
    if not (text.isascii() and text.isdigit() and len(digits) <= 3):
        raise UnusableRow(f"gold {text[:40]!r} is not a whole number of 0 to 999")
    name = row.own_id("id", "ID") or row.index
    worked = row.optional_text("solution") or row.optional_text("Solution") or None
    return Problem(f"aime2024/{name}", row.text("problem", "Problem").strip(), digits or "0", worked)


TASK = Task(
    name="aime2024",
    licence="none stated by the copy on the Hub; the problems are the Mathematical Association of America's",
    source=Published(
        repo="HuggingFaceH4/aime_2024",
        revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
        parts={"test": (Part(("test", "aime_2024", "train"), "train"),)},
    ),
    scorer="maths",
    instruction=ASK,
    plain="Problem: {question}\nSolution:",
    read=read,
    shots=EXAMPLES,
)
