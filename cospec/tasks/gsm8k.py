"""GSM8K (Cobbe et al. 2021): grade-school word problems. Rows {"question", "answer"}; an answer ends in "#### N"."""

from __future__ import annotations

import re

from cospec.tasks.base import Problem, RawRow, SplitShots, Task, UnusableRow
from cospec.tasks.numbers import ASK, plain_number
from cospec.tasks.source import Part, Published

# The annotations of the calculator that the authors' models called: <<48/2=24>>.
_CALCULATION = re.compile(r"<<[^<>]*>>")


def read(row: RawRow) -> Problem:
    """The gold answer is the number behind the last "####"; the worked answer loses its calculator annotations."""
    question, answer = row.text("question"), row.text("answer")
    steps, marker, number = answer.rpartition("####")
    if not marker:
        raise UnusableRow("the answer has no ####")
    gold = plain_number(number)
    worked = f"{_CALCULATION.sub('', steps).strip()}\n#### {gold}"
    return Problem(f"gsm8k/{row.split}/{row.index}", question.strip(), gold, worked)


TASK = Task(
    name="gsm8k",
    licence="MIT",
    source=Published(
        repo="openai/gsm8k",
        revision="740312add88f781978c0658806c59bc2815b9866",
        config="main",
        parts={"test": (Part(("test",), "test"),), "train": (Part(("train",), "train"),)},
    ),
    scorer="number",
    instruction=ASK,
    read=read,
    shots=SplitShots("train"),
)
