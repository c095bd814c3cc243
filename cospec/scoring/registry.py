"""Scorers by name: the built-in ones, and the user's as `package.module:function`."""

import difflib
from collections.abc import Mapping
from typing import Any

from cospec.scoring.choice import score_choice
from cospec.scoring.code.consent import require_consent
from cospec.scoring.code.scorer import score_code
from cospec.scoring.custom import load_scorer
from cospec.scoring.maths import require_math_verify, score_maths
from cospec.scoring.number import score_number
from cospec.scoring.open_qa import score_open_qa
from cospec.scoring.reasoning_gym import score_reasoning_gym
from cospec.scoring.verdict import UserScorer, Verdict
from cospec.tasks.reasoning_gym import require_library
from cospec.tasks.registry import is_task, task_named


def scorer_for(name: str) -> UserScorer:
    """The scorer of a built-in name, of a task's name or of `package.module:function`; others raise ValueError.

    So do scorers that lack a library, or, for the one that runs programs, the user's consent. Call it through
    `cospec.scoring.custom.safe_score`, which turns every outcome into a verdict.
    """
    name = scorer_name(name)
    if name == "maths":
        require_math_verify()
    if name == "reasoning_gym":
        require_library()
    if name == "code":
        require_consent()
    return _BUILT_IN[name] if name in _BUILT_IN else load_scorer(name)


def scorer_name(name: str) -> str:
    """The scorer's own name where ``name`` is a task's, else ``name``; ValueError where it is nobody's."""
    if name in _BUILT_IN:
        return name
    if is_task(name):
        return scorer_of_task(name)
    if ":" in name:
        return name
    near = difflib.get_close_matches(name, _BUILT_IN, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(_BUILT_IN)}, or package.module:function"
    raise ValueError(f"unknown scorer {name!r}: {hint}")


def is_built_in(name: str) -> bool:
    """Whether ``name`` is that of a scorer of this package."""
    return name in _BUILT_IN


def scorer_of_task(name: str) -> str:
    """The name of the scorer that judges a task's answers; ValueError for a task that needs a judge."""
    scorer = task_named(name).scorer
    if scorer is None:
        raise ValueError(
            f"task {name!r} has no right answers to score: use it for speed and agreement, or have a judge model rate "
            f"the answers (python -m cospec.tasks.{name}_judge --help)"
        )
    return scorer


def score_exact(text: str, row: Mapping[str, Any]) -> Verdict:
    """Right when text and gold are the same string, outer blanks aside."""
    return _compare(text.strip() or None, row)


def score_word_problem(text: str, row: Mapping[str, Any]) -> Verdict:
    """Right when the final answer of a worked solution is the gold answer."""
    from cospec.tasks.word_problems import final_answer

    return _compare(final_answer(text), row)


def _compare(answer: str | None, row: Mapping[str, Any]) -> Verdict:
    gold = row.get("gold")
    # Checked first: an empty gold would make an empty answer right.
    if gold is None or not str(gold).strip():
        return Verdict("error", reason=f"row {row.get('id')!r} has no gold answer")
    if answer is None:
        return Verdict("no_answer", reason="no answer found in the text")
    expected = str(gold).strip()
    if answer == expected:
        return Verdict("right", extracted=answer)
    return Verdict("wrong", extracted=answer, reason=f"expected {expected!r}")


_BUILT_IN: dict[str, UserScorer] = {
    "exact": score_exact,
    "word_problems": score_word_problem,
    "maths": score_maths,
    "number": score_number,
    "choice": score_choice,
    "open_qa": score_open_qa,
    "code": score_code,
    "reasoning_gym": score_reasoning_gym,
}
