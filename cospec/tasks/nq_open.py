"""NQ-open (Lee et al. 2019): real search questions with short answers. Rows {"question", "answer": [aliases]}.

`test` is the published development set, as usual: the test set is not public.
"""

from __future__ import annotations

from cospec.tasks.base import Problem, RawRow, Task
from cospec.tasks.questions import ASK, EXAMPLES, usable_golds
from cospec.tasks.source import Part, Published


def read(row: RawRow) -> Problem:
    """`golds` are all aliases."""
    answer = row.get("answer")
    if not isinstance(answer, list):
        raise ValueError(f"{row.where}: 'answer' is a {type(answer).__name__} and no list: not this task's format")
    golds = usable_golds(answer)
    question = row.text("question").strip()
    return Problem(f"nq_open/{row.split}/{row.index}", question, golds[0], golds[0], {"golds": golds})


def ask(problem: Problem) -> str:
    """The question with the question mark that searchers leave out."""
    return ASK.replace("{question}", problem.question.rstrip("?") + "?")


def ask_plain(problem: Problem) -> str:
    """The same for a base model."""
    return f"Question: {problem.question.rstrip('?')}?\nAnswer:"


TASK = Task(
    name="nq_open",
    licence="CC-BY-SA-3.0",
    source=Published(
        repo="google-research-datasets/nq_open",
        revision="5dd9790a83002ad084ddeb7c420dc716852c6f28",
        parts={
            "test": (Part(("NQ-open.dev", "validation", "dev"), "validation"),),
            "train": (Part(("NQ-open.train", "train"), "train"),),
        },
    ),
    scorer="open_qa",
    instruction=ask,
    plain=ask_plain,
    read=read,
    shots=EXAMPLES,
)
