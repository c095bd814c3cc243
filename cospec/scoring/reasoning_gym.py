"""Scoring by the reasoning-gym library's own `score_answer`, which reads the entry that a row carries.

The library gives partial credit down to 0.01 for anything: right means full credit. Some of its scorers pass the
answer to `eval`, or to sympy, which evaluates it too. Answers to those data sets are let through only if they are plain
literals or plain formulas. The library runs in a process of its own, under a time limit.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from cospec.scoring.reasoning_gym_guards import objection
from cospec.scoring.verdict import Verdict

TIME_LIMIT_S = 10.0
EVALUATED_LITERALS = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Data sets whose scorer evaluates an answer that is not the expected text; that earns partial credit at most."""
EVALUATED_FORMULAS = frozenset(
    {"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"}
)
"""Data sets whose scorer hands the answer to sympy's parser, which runs Python code."""

_TRIGONOMETRIC = ("sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh")
_FUNCTIONS = frozenset((*_TRIGONOMETRIC, "asinh", "acosh", "atanh", "exp", "log", "ln", "sqrt", "Abs"))
_WORDS = re.compile(r"[\w\s]*")
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.UAdd, ast.USub)
_MAX_FORMULA = 1000
_MAX_EXPONENT = 100


def score_reasoning_gym(text: str, row: Mapping[str, Any]) -> Verdict:
    """Right where the library gives full credit to what stands in the last <answer>...</answer> of the text.

    ``row`` has "entry" and "dataset", as `cospec.tasks.reasoning_gym` writes them.
    """
    dataset, entry = row.get("dataset"), row.get("entry")
    if not isinstance(dataset, str) or not isinstance(entry, Mapping):
        return Verdict("error", reason=f"row {row.get('id')!r} has no 'dataset' and 'entry' of a generated problem")
    gold = entry.get("answer")
    if isinstance(gold, str) and gold and not may_be_evaluated(dataset, gold):
        return Verdict("error", reason=f"row {row.get('id')!r}: the library's own answer cannot be judged: {gold}")
    answer = final_answer(text)
    if answer is None:
        return Verdict("no_answer", reason="no <answer>...</answer> in the text")
    reason = objection(dataset, answer, entry)
    if reason is not None:
        return Verdict("wrong", answer, reason)
    if not may_be_evaluated(dataset, answer):
        return Verdict("wrong", answer, "the answer is neither a plain literal nor a plain formula")
    verdict: Verdict = _judge().score(dataset, answer, entry)
    if not verdict.is_failure or not isinstance(gold, str) or _judge().score(dataset, gold, entry).is_failure:
        return verdict
    # A failure is masked in training: an answer must not be able to choose that instead of being wrong.
    return Verdict("wrong", answer, f"the answer cannot be worked out: {verdict.reason}")


@functools.cache
def _judge() -> Any:
    """The process that runs the library, whose scorers search or simplify for as long as an answer makes them."""
    process = import_module("cospec.scoring.process")
    return process.ScoringProcess("cospec.scoring.reasoning_gym_judge:judge", time_limit_s=TIME_LIMIT_S)


def final_answer(text: str) -> str | None:
    """What stands between the last pair of tags, outer blanks aside; None if there is no pair or nothing in it."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, max(end, 0))
    return (text[start + len("<answer>") : end].strip() or None) if start >= 0 else None


def may_be_evaluated(dataset: str, answer: str) -> bool:
    """Whether the library's scorer may see this answer."""
    if dataset in EVALUATED_FORMULAS:
        return _is_formula(answer)
    return dataset not in EVALUATED_LITERALS or _WORDS.fullmatch(answer) is not None or _is_literal(answer)


def _is_literal(answer: str) -> bool:
    try:
        ast.literal_eval(answer)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _is_formula(answer: str) -> bool:
    if len(answer) > _MAX_FORMULA:
        return False
    try:
        tree = ast.parse(answer.strip(), mode="eval")
        return all(map(_is_harmless, ast.walk(tree)))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def _is_harmless(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=value):
            return type(value) in (int, float)
        case ast.Name(id=name):
            return len(name) == 1 or name in _FUNCTIONS or name == "pi"
        case ast.Call(func=ast.Name(id=name), args=[_], keywords=[]):
            return name in _FUNCTIONS
        case ast.BinOp(op=ast.Pow(), right=power):
            return _is_small(power)
        case ast.BinOp() | ast.UnaryOp() | ast.Expression() | ast.expr_context():
            return True
    return isinstance(node, _OPERATORS)


def _is_small(power: ast.expr) -> bool:
    """No towers: a number of at most 100, or a formula of one symbol without a power of its own."""
    if any(isinstance(node, ast.Pow) for node in ast.walk(power)):
        return False
    numbers = [node.value for node in ast.walk(power) if isinstance(node, ast.Constant)]
    return all(isinstance(number, int | float) and abs(number) <= _MAX_EXPONENT for number in numbers)
