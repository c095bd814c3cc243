"""Equality of SymPy expressions by exact fractions or by numbers with hundreds of digits; runs in the worker alone.

No absolute tolerance anywhere: 1/2004! and 1/2006! are different numbers.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import sympy

#: Digits that a difference may cancel before it counts as zero.
_MAX_CANCELLED = 400
#: A difference without a sure digit is zero if it is smaller than both sides by that many digits.
_NOISE_DIGITS = 100
_MAX_BITS = 200_000
_MAX_FACTORIAL = 3000
#: Points with positive fractions (roots and powers are real), with negative ones (signs matter), with whole numbers
#: (sequences and powers of -1 are real).
_POINTS = (
    ("7/3", "13/5", "19/7", "11/8", "23/9", "29/12"),
    ("3/7", "17/4", "5/11", "31/6", "9/13", "37/10"),
    ("41/15", "8/19", "43/14", "2/9", "47/16", "10/17"),
    ("-5/3", "-12/7", "-4/9", "-21/8", "-6/11", "-25/13"),
    ("-11/4", "7/6", "-13/9", "16/5", "-2/7", "19/12"),
    ("3/10", "-22/7", "5/2", "-9/4", "14/11", "-1/6"),
    ("2", "3", "5", "7", "4", "6"),
    ("5", "2", "9", "3", "8", "1"),
    ("7", "4", "6", "11", "3", "2"),
)
_ENOUGH_POINTS = 3

Point = Mapping[sympy.Symbol, sympy.Rational]


def exact(expression: sympy.Expr) -> Fraction | None:
    """The rational value of an expression of numbers, None where it is irrational, undefined or too large."""
    if expression.is_Rational:
        return Fraction(int(expression.p), int(expression.q))
    if isinstance(expression, sympy.UnevaluatedExpr):
        return exact(expression.args[0])
    if isinstance(expression, sympy.Pow):
        return _exact_power(*map(exact, expression.args))
    if isinstance(expression, sympy.factorial):
        (number,) = map(exact, expression.args)
        is_small = number is not None and number.denominator == 1 and 0 <= number <= _MAX_FACTORIAL
        return Fraction(int(sympy.factorial(int(number)))) if is_small and number is not None else None
    if isinstance(expression, sympy.Add | sympy.Mul):
        total = Fraction(int(isinstance(expression, sympy.Mul)))
        for part in map(exact, expression.args):
            if part is None:
                return None
            total = total * part if isinstance(expression, sympy.Mul) else total + part
        return total
    return None


def _exact_power(base: Fraction | None, exponent: Fraction | None) -> Fraction | None:
    if base is None or exponent is None or exponent.denominator != 1 or (not base and exponent < 0):
        return None
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    return base ** int(exponent) if abs(exponent) * bits <= _MAX_BITS else None


def equal_numbers(gold: sympy.Expr, answer: sympy.Expr) -> bool | None:
    """Whether two expressions without variables are equal; None if one of them has no value SymPy can find."""
    fractions = exact(gold), exact(answer)
    if None not in fractions:
        return fractions[0] == fractions[1]
    infinities = {sympy.oo, -sympy.oo}
    if {gold, answer} & infinities:
        return gold == answer
    values = _number(gold), _number(answer)
    difference = _number(sympy.Add(gold, sympy.Mul(-1, answer, evaluate=False), evaluate=False))
    if values[1] is not None and _is_unresolved(values[1]):
        # It would be as good as equal to anything: it has no digit to compare.
        return False
    if values[0] is None or values[1] is None or difference is None or _is_unresolved(values[0]):
        return None
    if not _is_unresolved(difference):
        return difference == (0, 0)
    scale = max(_magnitude(values[0]), _magnitude(values[1]))
    return True if _magnitude(difference) <= scale * sympy.Rational(1, 10**_NOISE_DIGITS) else None


def _number(expression: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr] | None:
    """The real and imaginary parts that `_MAX_CANCELLED` digits tell, None for what is no finite number."""
    number = expression.evalf(15, maxn=_MAX_CANCELLED)
    if not number.is_number or number.has(sympy.nan, sympy.zoo, sympy.oo, -sympy.oo):
        return None
    parts: tuple[sympy.Expr, sympy.Expr] = number.as_real_imag()
    return parts if all(part.is_Float or part.is_Rational for part in parts) else None


def _is_unresolved(parts: tuple[sympy.Expr, sympy.Expr]) -> bool:
    """Whether no part has a digit that is sure, and not all are exactly zero.

    SymPy leaves a precision of 1 on what no working precision could tell from zero, however large it may be.
    """
    return parts != (0, 0) and all(_is_zero_or_noise(part) for part in parts)


def _is_zero_or_noise(part: sympy.Expr) -> bool:
    return bool(part == 0) or (part.is_Float and part._prec == 1)


def _magnitude(parts: tuple[sympy.Expr, sympy.Expr]) -> sympy.Expr:
    # Floats of any exponent: Python's own would overflow.
    return max(abs(part) for part in parts)


def points(symbols: Sequence[sympy.Symbol]) -> Iterator[Point]:
    """Values to try for the variables, always the same ones."""
    for row in _POINTS:
        yield {
            symbol: sympy.Rational(row[index % len(row)]) + index // len(row) for index, symbol in enumerate(symbols)
        }


def equal_everywhere(gold: sympy.Expr, answer: sympy.Expr) -> bool | None:
    """Whether two expressions have equal values at every point tried; None if too few of them give values.

    A point where neither value is real says nothing about expressions in real variables and is left out.
    """
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    if not symbols:
        return equal_numbers(gold, answer)
    is_complex, num_equal = gold.has(sympy.I) or answer.has(sympy.I), 0
    for point in points(symbols):
        pair = _at(gold, point), _at(answer, point)
        result = equal_numbers(*pair)
        if result:
            num_equal += 1
        elif result is False and (is_complex or any(map(_is_real, pair))):
            return False
    return True if num_equal >= _ENOUGH_POINTS else None


def _at(expression: sympy.Expr, point: Point) -> sympy.Expr:
    # `xreplace` is faster, but would also replace the index of a sum.
    bound = expression.has(sympy.Sum, sympy.Product, sympy.Integral, sympy.Limit, sympy.Derivative)
    return expression.subs(point) if bound else expression.xreplace(point)


def _is_real(expression: sympy.Expr) -> bool:
    number = _number(expression)
    return number is None or _is_zero_or_noise(number[1])


def proportional(gold: sympy.Expr, answer: sympy.Expr, *, positive: bool) -> bool | None:
    """Whether one expression is a constant multiple of the other, and neither is zero: then both have the same zeros.

    With ``positive`` the constant must be positive: then both have the same signs.
    """
    symbols = sorted(gold.free_symbols | answer.free_symbols, key=str)
    if not symbols or gold.free_symbols != answer.free_symbols:
        return False
    pairs = [(_at(gold, point), _at(answer, point)) for point in points(symbols)]
    usable = [(one, other) for one, other in pairs if False is _zero(one) and False is _zero(other)]
    if len(usable) < _ENOUGH_POINTS:
        return None
    first = usable[0]
    for one, other in usable[1:]:
        if not equal_numbers(sympy.Mul(one, first[1]), sympy.Mul(other, first[0])):
            return False
    ratio = sympy.Mul(first[0], sympy.Pow(first[1], -1)).evalf(15)
    return bool(ratio.is_positive) if positive else True


def _zero(expression: sympy.Expr) -> bool | None:
    return equal_numbers(expression, sympy.S.Zero)
