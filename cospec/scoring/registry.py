"""Scorers by name: the built-in ones, and the user's as `package.module:function`."""

import difflib
from collections.abc import Mapping
from typing import Any

from cospec.scoring.custom import load_scorer
from cospec.scoring.maths import require_math_verify, score_maths
from cospec.scoring.number import score_number
from cospec.scoring.verdict import UserScorer, Verdict


def scorer_for(name: str) -> UserScorer:
    """The scorer of a built-in name or of `package.module:function`; an unknown name raises ValueError.

    Call it through `cospec.scoring.custom.safe_score`, which turns every outcome into a verdict.
    """
    if ":" in name:
        return load_scorer(name)
    if name == "maths":
        require_math_verify()
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    near = difflib.get_close_matches(name, _BUILT_IN, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(_BUILT_IN)}, or package.module:function"
    raise ValueError(f"unknown scorer {name!r}: {hint}")


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
    "maths": score_maths,
    "number": score_number,
    "word_problems": score_word_problem,
}
