"""The library's side of scoring generated problems; it is imported in the scoring process alone."""

from __future__ import annotations

import functools
from typing import Any

import reasoning_gym

from cospec.scoring.verdict import Verdict
from cospec.tasks.reasoning_gym import unpack

FULL_CREDIT = 1.0

# What the library's scorers raise on answers of another form; most of them catch it themselves.
_MALFORMED = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, SyntaxError, RecursionError)


def judge(dataset: str, answer: str, entry: dict[str, Any]) -> Verdict:
    """Right where the library gives full credit; what it raises on its own answer too is no fault of the text's."""
    scorer, whole = _dataset(dataset), unpack(entry)
    try:
        credit = float(scorer.score_answer(answer, whole))
    except _MALFORMED as error:
        scorer.score_answer(whole["answer"], whole)
        return Verdict("wrong", answer, f"the library cannot read the answer ({type(error).__name__}: {error})")
    # Credit that is added up letter by letter can come to more.
    if credit == FULL_CREDIT:
        return Verdict("right", answer)
    return Verdict("wrong", answer, f"credit {credit:.3g} of 1")


@functools.cache
def _dataset(name: str) -> Any:
    return reasoning_gym.create_dataset(name, size=1, seed=0)
