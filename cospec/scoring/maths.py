"""Maths answers in LaTeX or plain text (MATH-500, AIME): one final answer against one gold answer.

What exact arithmetic or spelling decides is decided here; the rest goes to `cospec.scoring.latex.symbolic` in a
scoring process with a time limit.
"""

import importlib.metadata
import importlib.util
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from cospec.scoring.final_answer import final_answer
from cospec.scoring.latex.compare import CheapLeaves, compare
from cospec.scoring.latex.shape import Unreadable, join, read_shape, values
from cospec.scoring.process import ScoringProcess
from cospec.scoring.verdict import Verdict

#: A sign in words, in front of a number or of a formula that begins with one.
_NEGATIVE = re.compile(r"(?<![a-zA-Z-])(?:negative|minus)[ ]+(\$|\\\()?[ ]*(?=\d|\.\d|\\[dt]?frac)", re.IGNORECASE)
_PACKAGES = ("math-verify", "latex2sympy2_extended", "sympy", "antlr4-python3-runtime")


def score_maths(text: str, row: Mapping[str, Any]) -> Verdict:
    """Score the final answer of ``text`` (its order: `cospec.scoring.final_answer`) against ``row["gold"]``.

    A gold answer that is missing or cannot be read is an "error", never right. An answer that cannot be worked out
    within the limits is "wrong" where the gold answer alone can. Raises ValueError without math-verify.
    """
    return _default_scorer()(text, row)


def check_gold(gold: object) -> None:
    """Raise ValueError, saying why, for a gold answer that `score_maths` could not use; for use at data load."""
    _default_scorer().check_gold(gold)


def maths_versions() -> dict[str, str]:
    """The versions of the packages that maths verdicts depend on, to be stored with results."""
    require_math_verify()
    return {package: importlib.metadata.version(package) for package in _PACKAGES}


def require_math_verify() -> None:
    """Raise ValueError naming the pip extra if math-verify is not installed."""
    if any(importlib.util.find_spec(module) is None for module in ("math_verify", "antlr4")):
        raise ValueError("scorer 'maths' needs math-verify: pip install 'cospec[eval]'")


class MathsScorer:
    """`score_maths` with limits of one's own: ``time_limit_s`` per answer that needs algebra, ``memory_limit_mb``."""

    def __init__(self, *, time_limit_s: float = 10.0, memory_limit_mb: int = 2048) -> None:
        require_math_verify()
        self._process = ScoringProcess(
            "cospec.scoring.latex.symbolic:run", time_limit_s=time_limit_s, memory_limit_mb=memory_limit_mb
        )
        self._gold_verdicts: dict[str, Verdict] = {}

    def __call__(self, text: str, row: Mapping[str, Any]) -> Verdict:
        gold = row.get("gold")
        if gold is None or not str(gold).strip():
            return Verdict("error", reason=f"row {row.get('id')!r} has no gold answer")
        checked = self._gold_verdict(str(gold))
        if checked.is_failure:
            return checked
        parts = final_answer(_NEGATIVE.sub(r"\1-", text))
        if not parts:
            return Verdict("no_answer", reason="no answer found in the text")
        verdict = self._judge(str(gold), parts)
        extracted = ", ".join(parts)
        reason = verdict.reason if verdict.kind != "wrong" else f"expected {str(gold)!r}: {verdict.reason}"
        return Verdict(verdict.kind, extracted, reason)

    def check_gold(self, gold: object) -> None:
        """As the function `check_gold`."""
        if gold is None or not str(gold).strip():
            raise ValueError("an empty gold answer: drop the row, or give it one")
        verdict = self._gold_verdict(str(gold))
        if verdict.is_failure:
            raise ValueError(f"{verdict.reason}: drop the row, or write its answer as one LaTeX expression")

    def close(self) -> None:
        """End the scoring process; a later call starts another one."""
        self._process.close()

    def _gold_verdict(self, gold: str) -> Verdict:
        known = self._gold_verdicts.get(gold)
        if known is not None:
            return known
        try:
            needs_parser = any(value.literal is None for value in values(read_shape(gold)))
        except Unreadable as error:
            return Verdict("error", reason=f"the gold answer {gold[:80]!r} cannot be read: {error}")
        verdict = self._process.score("check", gold) if needs_parser else Verdict("right")
        if not verdict.is_failure:
            # A failure is asked again: it may have been the machine's.
            self._gold_verdicts[gold] = verdict
        return verdict

    def _judge(self, gold: str, parts: tuple[str, ...]) -> Verdict:
        try:
            answer = join([read_shape(part) for part in parts])
        except Unreadable as error:
            return Verdict("wrong", reason=f"the answer cannot be read: {error}")
        same = compare(read_shape(gold), answer, CheapLeaves())
        if same is None:
            return self._judge_by_algebra(gold, parts)
        return Verdict("right") if same else Verdict("wrong", reason="not equal")

    def _judge_by_algebra(self, gold: str, parts: tuple[str, ...]) -> Verdict:
        verdict = self._process.score("score", gold, parts)
        if verdict.kind == "error":
            # Once more: something else may have ended the process.
            verdict = self._process.score("score", gold, parts)
        if not verdict.is_failure or self._process.score("evaluate", gold).is_failure:
            return verdict
        # A failure is masked in training: an answer must not be able to choose that instead of being wrong.
        return Verdict("wrong", reason=f"the answer cannot be worked out: {verdict.reason}")


@cache
def _default_scorer() -> MathsScorer:
    return MathsScorer()
