"""SVAMP (Patel et al. 2021): one-step word problems with changed wording. Rows {"ID", "Body", "Question", "Answer"}.

The split `test` is the whole set of 1,000, as the authors published it; the Hub's copy cuts it into 700 and 300.
"""

from __future__ import annotations

from cospec.tasks.base import Problem, RawRow, Task
from cospec.tasks.numbers import ASK, EXAMPLES, plain_number
from cospec.tasks.source import Part, Published


def read(row: RawRow) -> Problem:
    """The question is body and question; the gold answer a number, 51.0 read as 51."""
    body, question = row.text("Body").strip(), row.text("Question").strip()
    link = " " if body.endswith((".", "?", "!", ",")) else ". "
    return Problem(f"svamp/{row.text('ID')}", f"{body}{link}{question}", plain_number(str(row.value("Answer"))))


TASK = Task(
    name="svamp",
    licence="MIT",
    source=Published(
        repo="ChilleD/SVAMP",
        revision="5e0bf1e5e7c0e9c4bc39180d224f41f3f801b7ef",
        parts={"test": (Part(("SVAMP", "test"), "train+test"),)},
    ),
    scorer="number",
    instruction=ASK,
    read=read,
    shots=EXAMPLES,
)
