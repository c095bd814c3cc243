"""The part of maths scoring that needs algebra: math-verify's parser, and a comparison that does not share its faults.

Runs in a scoring process alone: parser and algebra may hang on a hostile answer, and importing them takes a second.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache

import sympy
from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from math_verify import verify

from cospec.scoring.latex.compare import CheapLeaves, compare
from cospec.scoring.latex.literal import Literal, stands_for
from cospec.scoring.latex.numeric import equal_everywhere, proportional
from cospec.scoring.latex.shape import Relation, Shape, Unreadable, Value, alternatives, join, read_shape, values
from cospec.scoring.verdict import Verdict

# Parser and algebra recurse some ten frames for every level of nesting.
sys.setrecursionlimit(20_000)

_CONVERSION = ConversionConfig(lowercase_symbols=False)
_DIRECTION = {">": ("<", -1), r"\ge": (r"\le", -1)}
#: What an equation may name without being parsable: no digit, no operation.
_LABEL = re.compile(r"[^0-9+*/^=]*")
_ADJACENT_NUMBERS = re.compile(r"(?<![\d.^_])[\d.]+\s+[\d.]")


def run(task: str, gold: str, answers: Sequence[str] = ()) -> Verdict:
    """What the scoring process calls: ``task`` is "check", "evaluate" or "score"."""
    if task == "score":
        return score(gold, answers)
    return check(gold) if task == "check" else evaluate(gold)


def evaluate(gold: str) -> Verdict:
    """As `check`, after looking for the values of all its parts: it fails where they fail or take too long."""
    verdict = check(gold)
    if not verdict.is_failure:
        for value in values(read_shape(gold)):
            if value.literal is None and not _LABEL.fullmatch(value.latex):
                parsed = parse(value.latex)
                if isinstance(parsed, sympy.Expr):
                    equal_everywhere(parsed, parsed)
    return verdict


def score(gold: str, answers: Sequence[str]) -> Verdict:
    """Right or wrong; ``answers`` were given side by side. A gold answer that cannot be parsed is an "error"."""
    verdict = check(gold)
    if verdict.is_failure:
        return verdict
    try:
        answer = join([read_shape(part) for part in answers])
        same = compare(read_shape(gold), answer, SymbolicLeaves())
    except Unreadable as error:
        return Verdict("wrong", reason=f"the answer cannot be read: {error}")
    if same:
        return Verdict("right")
    return Verdict("wrong", reason="not equal" if same is False else "not found to be equal")


def check(gold: str) -> Verdict:
    """Right if every part of a gold answer can be parsed, else an "error" that says which cannot."""
    try:
        shape = read_shape(gold)
        labels = {part for part in _left_sides(shape) if _LABEL.fullmatch(part.latex)}
        for value in values(shape):
            if value.literal is None and value not in labels:
                parse(value.latex)
    except Unreadable as error:
        return Verdict("error", reason=f"the gold answer {gold[:80]!r} cannot be read: {error}")
    return Verdict("right")


def _left_sides(shape: Shape) -> Iterator[Value]:
    for item in alternatives(shape):
        if isinstance(item, Relation) and item.operators[0] == "=" and isinstance(item.parts[0], Value):
            yield item.parts[0]


@lru_cache(maxsize=256)
def parse(latex: str) -> sympy.Basic | sympy.MatrixBase:
    """The SymPy object that the whole of a cleaned expression stands for; `Unreadable` if any of it does not parse."""
    if _ADJACENT_NUMBERS.search(latex):
        # The parser adds them up, as it does with mixed numbers.
        raise Unreadable(f"two numbers side by side in {latex[:80]!r}")
    try:
        parsed = latex2sympy(
            # A number in front of a bracketed fraction is a factor, not a mixed number.
            re.sub(r"(?<=\d)\s*(?=\()", r" \\cdot ", latex),
            is_real=None,
            normalization_config=None,
            conversion_config=_CONVERSION,
        )
    # The parser raises bare Exception for a syntax error and whatever its rules run into (AttributeError, TypeError,
    # ZeroDivisionError ...) for input they were not written for; all of it means that it cannot read this.
    except (Exception, RecursionError) as error:
        raise Unreadable(f"{latex[:80]!r} does not parse ({type(error).__name__})") from error
    if isinstance(parsed, sympy.MatrixBase):
        return parsed
    if not isinstance(parsed, sympy.Expr | sympy.Set | sympy.MatrixExpr) or isinstance(parsed, sympy.FiniteSet):
        raise Unreadable(f"{latex[:80]!r} is no expression")
    floats = {number: sympy.Rational(str(number)) for number in parsed.atoms(sympy.Float)}
    parsed = parsed.xreplace({**floats, **{letter: sympy.I for letter in parsed.free_symbols if letter.name == "i"}})
    # Sums and integrals have no values between whole numbers, but often a closed form.
    return parsed.doit() if parsed.has(sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit) else parsed


class SymbolicLeaves(CheapLeaves):
    """Decides by values: exact ones, ones of hundreds of digits, and at many points where there are variables."""

    def same_value(self, gold: Value, answer: Value) -> bool | None:
        """Equal as `CheapLeaves` says, else by value; what has no values is left to math-verify."""
        cheap = super().same_value(gold, answer)
        if cheap is not None:
            return cheap
        one, other = parse(gold.latex), parse(answer.latex)
        if not (isinstance(one, sympy.Expr) and isinstance(other, sympy.Expr)):
            return _library_says(one, other)
        same = equal_everywhere(one, other)
        if same is None and (one.free_symbols or other.free_symbols):
            return _library_says(one, other)
        return same or _rounded(gold.literal, other) or _rounded(answer.literal, one)

    def same_relation(self, gold: Relation, answer: Relation) -> bool | None:
        """Equal up to a factor on both sides; two relations that are always true, or never, match nothing."""
        operators = [_DIRECTION.get(relation.operators[0], (relation.operators[0], 1)) for relation in (gold, answer)]
        if operators[0][0] != operators[1][0]:
            return False
        sides = [_difference(relation) for relation in (gold, answer)]
        if sides[0] is None or sides[1] is None:
            return False
        is_inequality = operators[0][0] in ("<", r"\le")
        return proportional(sides[0] * operators[0][1], sides[1] * operators[1][1], positive=is_inequality)


def _difference(relation: Relation) -> sympy.Expr | None:
    left, right = relation.parts
    if not (isinstance(left, Value) and isinstance(right, Value)):
        return None
    parsed = parse(left.latex), parse(right.latex)
    if not all(isinstance(side, sympy.Expr) for side in parsed):
        return None
    return sympy.Add(parsed[0], sympy.Mul(-1, parsed[1], evaluate=False), evaluate=False)


def _library_says(gold: sympy.Basic | sympy.MatrixBase, answer: sympy.Basic | sympy.MatrixBase) -> bool:
    # Its own time limit is a signal, which the scoring process does not need.
    return bool(verify(gold, answer, numeric_precision=50, timeout_seconds=None))


def _rounded(decimal: Literal | None, exact: sympy.Expr) -> bool:
    """Whether a decimal stands for an irrational value."""
    if decimal is None or decimal.last_place is None or exact.free_symbols:
        return False
    value = exact.evalf(30)
    # A precision of 1 is SymPy's mark for a number without a sure digit.
    return bool(value.is_Float) and value._prec > 1 and stands_for(decimal, Fraction(str(value)))
