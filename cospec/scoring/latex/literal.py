"""Numbers that can be read exactly, without a parser: integers, decimals, fractions, mixed numbers, powers of ten."""

import re
from dataclasses import dataclass
from fractions import Fraction

#: A decimal stands for an exact value that it agrees with to this many digits.
SIGNIFICANT_DIGITS = 6
_MAX_DIGITS = 1000
_MAX_EXPONENT = 1000
#: One rounding of a double: 0.30000000000000004 is meant as 0.3.
_DOUBLE_DIGITS, _DOUBLE_ERROR = 15, Fraction(1, 10**15)

_DECIMAL = r"(?:\d+(?:\.\d*)?|\.\d+)"
_FRACTION = rf"\\frac\{{\s*(?P<top>[+-]?{_DECIMAL})\s*\}}\{{\s*(?P<bottom>[+-]?{_DECIMAL})\s*\}}"
_TIMES = r"\s*(?:\\times|\\cdot|\*|x)\s*"
_LITERAL = re.compile(
    rf"""(?P<sign>[+-]?)\s*(?:
    (?:(?P<whole>\d+)\s*)?{_FRACTION}
    | (?P<whole2>\d+)\s+(?P<top2>\d+)/(?P<bottom2>\d+)
    | (?P<top3>{_DECIMAL})\s*/\s*(?P<bottom3>-?{_DECIMAL})
    | (?P<before>\d*)\.(?P<fixed>\d*)(?:\\overline|\\bar)\{{(?P<cycle>\d+)\}}
    | (?P<factor>{_DECIMAL})(?:{_TIMES}10\^\{{?|[eE])(?P<exponent>[+-]?\d+)\}}?
    | 10\^\{{?(?P<power>-?\d+)\}}?
    | (?P<plain>{_DECIMAL})
    )""",
    re.VERBOSE | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Literal:
    """An exact value; ``last_place`` is the place value of the last digit shown of a decimal, else None."""

    value: Fraction
    last_place: Fraction | None = None


def read_literal(text: str) -> Literal | None:
    """The number that the whole of a cleaned ``text`` is, None if it is anything else or has over 1000 digits."""
    if len(text) > _MAX_DIGITS:
        return None
    found = _LITERAL.fullmatch(_outermost(text))
    if found is None:
        return None
    try:
        magnitude = _magnitude(found)
    except ZeroDivisionError:
        return None
    if magnitude is None:
        return None
    return Literal(-magnitude if found["sign"] == "-" else magnitude, _last_place(found))


def _outermost(text: str) -> str:
    """``text`` without parentheses or braces around all of it."""
    text = text.strip()
    while text[:1] + text[-1:] in ("()", "{}") and not re.search(r"[(){}]", text[1:-1]):
        text = text[1:-1].strip()
    return text


def _magnitude(found: re.Match[str]) -> Fraction | None:
    if found["top"] is not None:
        fraction = Fraction(_plain(found["top"])) / Fraction(_plain(found["bottom"]))
        if found["whole"] is None:
            return fraction
        # "2 \\frac{-1}{2}" is no mixed number.
        return int(found["whole"]) + fraction if "-" not in found["top"] + found["bottom"] else None
    if found["whole2"] is not None:
        return int(found["whole2"]) + Fraction(int(found["top2"]), int(found["bottom2"]))
    if found["top3"] is not None:
        return Fraction(_plain(found["top3"])) / Fraction(_plain(found["bottom3"]))
    if found["cycle"] is not None:
        return _repeating(found["before"], found["fixed"], found["cycle"])
    if found["plain"] is not None:
        return Fraction(_plain(found["plain"]))
    exponent = int(found["exponent"] or found["power"])
    if abs(exponent) > _MAX_EXPONENT:
        return None
    return Fraction(_plain(found["factor"] or "1")) * Fraction(10) ** exponent


def _plain(decimal: str) -> str:
    return decimal.rstrip(".")


def _repeating(before: str, fixed: str, cycle: str) -> Fraction:
    scale = 10 ** len(fixed)
    return Fraction(int(before + fixed or "0"), scale) + Fraction(int(cycle), scale * (10 ** len(cycle) - 1))


def _last_place(found: re.Match[str]) -> Fraction | None:
    shown = found["plain"] or found["factor"]
    if shown is None or "." not in shown:
        return None
    exponent = int(found["exponent"] or 0) if found["factor"] else 0
    return Fraction(10) ** (exponent - len(shown.partition(".")[2]))


def same_number(gold: Literal, answer: Literal) -> bool:
    """Equal as fractions, or a decimal of `SIGNIFICANT_DIGITS` that stands for the other, within its last digit.

    Of two decimals the shorter one must be the other one rounded.
    """
    if gold.last_place is not None and answer.last_place is not None:
        coarse, fine = (gold, answer) if gold.last_place >= answer.last_place else (answer, gold)
        error = abs(coarse.value - fine.value)
        return not error or (stands_for(coarse, fine.value) and 2 * error <= max(gold.last_place, answer.last_place))
    return gold.value == answer.value or stands_for(gold, answer.value) or stands_for(answer, gold.value)


def stands_for(decimal: Literal, exact: Fraction) -> bool:
    """Whether ``decimal`` is a rounding (or cut) of ``exact``: relative, so tiny numbers stay apart."""
    if decimal.last_place is None or not decimal.value:
        return False
    error = abs(decimal.value - exact)
    digits = len(str(abs(decimal.value) / decimal.last_place).partition("/")[0])
    if digits >= _DOUBLE_DIGITS and error <= _DOUBLE_ERROR * abs(exact):
        return True
    return digits >= SIGNIFICANT_DIGITS and error < decimal.last_place
