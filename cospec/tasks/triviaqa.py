"""TriviaQA (Joshi et al. 2017) without its documents, scored by exact match with any alias.

Rows of the Hub are {"question_id", "question", "answer": {"value", "aliases", "normalized_aliases"}}; those of FlashRAG
{"id", "question", "golden_answers"}. The published test set has no answers: `test` is the validation set, as usual.
"""

from __future__ import annotations

from collections.abc import Mapping

from cospec.tasks.base import Problem, RawRow, Task
from cospec.tasks.questions import ASK, EXAMPLES, usable_golds
from cospec.tasks.source import Part, Published


def read(row: RawRow) -> Problem:
    """`golds` are all aliases, the published answer first."""
    answer = row.get("answer")
    if isinstance(answer, Mapping):
        golds = usable_golds([answer.get("value"), *_list(answer, "aliases"), *_list(answer, "normalized_aliases")])
    elif isinstance(row.get("golden_answers"), list):
        golds = usable_golds(row.fields["golden_answers"])
    else:
        raise ValueError(f"{row.where}: neither an 'answer' object nor a list 'golden_answers': not this task's format")
    name = row.own_id("question_id", "id") or f"{row.split}/{row.index}"
    question = _unquoted(row.text("question").strip())
    return Problem(f"triviaqa/{name}", question, golds[0], golds[0], {"golds": golds})


def _list(answer: Mapping[str, object], name: str) -> list[object]:
    value = answer.get(name)
    return value if isinstance(value, list) else []


def _unquoted(question: str) -> str:
    # Some copies went through CSV and kept its quoting: "Who wrote ""Emma""?"
    if len(question) > 2 and question[0] == question[-1] == '"' and '""' in question[1:-1]:
        return question[1:-1].replace('""', '"')
    return question


TASK = Task(
    name="triviaqa",
    licence="Apache-2.0",
    source=Published(
        repo="mandarjoshi/trivia_qa",
        revision="0f7faf33a3908546c6fd5b73a660e0f8ff173c2f",
        config="rc.nocontext",
        parts={
            "test": (Part(("validation", "dev", "test", "test_subsample_1000"), "validation"),),
            "train": (Part(("train",), "train"),),
        },
    ),
    scorer="open_qa",
    instruction=ASK,
    read=read,
    shots=EXAMPLES,
)
