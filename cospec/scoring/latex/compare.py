"""Whether an answer's shape is the gold answer's; what only algebra can decide is asked of the `Leaves`.

Results have three values: True, False, and None for "cannot be decided without algebra".
"""

import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from cospec.scoring.latex.literal import Literal, read_literal, same_number
from cospec.scoring.latex.shape import Group, Matrix, Option, Relation, Shape, Union, Value, Words, alternatives
from cospec.scoring.latex.split import split_top
from cospec.scoring.latex.words import plain_words, same_words

_NAME = re.compile(r"\\?[a-zA-Z]+'*(?:_\{?\w+\}?)?(?:\^\{-1\})?(?:\(\s*\\?[a-zA-Z]+\s*\))?")
_CONSTANT_COMMANDS = re.compile(r"\\(?:frac|sqrt|pi|cdot|times|div|binom|log|ln|sin|cos|tan|infty)(?![a-zA-Z])")
#: Numbers that belong to a name: f(0), x_1.
_PLACES = re.compile(r"[a-zA-Z]\([\d,.\s-]*\)|_\{?\d+\}?")
#: One variable with a factor, power, root or absolute value.
_CHANGED_VARIABLE = re.compile(
    r"-?(?:\d[\d.]*\*?[a-zA-Z]+|\d[\d.]*(?:\\cdot|\\times)[a-zA-Z]+|-[a-zA-Z]|\|[a-zA-Z]\||[a-zA-Z]!"
    r"|(?:\d[\d.]*)?[a-zA-Z]\^\{?\d+\}?|\\sqrt\{[a-zA-Z]\}|\\frac\{[a-zA-Z]\}\{\d+\}|[a-zA-Z]/\d+|-[a-zA-Z])"
)
#: Blanks that mean nothing; "1 2" is not "12".
_BLANKS = re.compile(r"\s+(?![\d.])|(?<![\d.])\s+")
_UPWARD, _DOWNWARD = ("<", r"\le"), (">", r"\ge")
_INFINITY = Value(r"\infty", None)
_MINUS_INFINITY = Value(r"-\infty", None)


class Leaves(Protocol):
    """Decides about expressions and relations; None where it cannot."""

    def same_value(self, gold: Value, answer: Value) -> bool | None:
        """Whether two expressions are equal."""

    def same_relation(self, gold: Relation, answer: Relation) -> bool | None:
        """Whether two relations of two parts each are the same."""


class CheapLeaves:
    """Decides what exact numbers and equal spelling decide."""

    def same_value(self, gold: Value, answer: Value) -> bool | None:
        """Exact fractions and decimals, else the same spelling; units or bases that contradict differ."""
        for one, other in ((gold.base, answer.base), (gold.unit, answer.unit)):
            if one is not None and other is not None and one != other:
                return False
        if gold.literal is not None and answer.literal is not None:
            return _same_literal(gold, gold.literal, answer, answer.literal)
        same = gold.percent == answer.percent and _BLANKS.sub("", gold.latex) == _BLANKS.sub("", answer.latex)
        return True if same else None

    def same_relation(self, gold: Relation, answer: Relation) -> bool | None:
        """Only the same spelling."""
        return True if gold == answer else None


def _same_literal(gold: Value, gold_number: Literal, answer: Value, answer_number: Literal) -> bool:
    if same_number(gold_number, answer_number):
        return True
    # "5 %" also answers a gold 0.05, as "5" answers a gold "5 %": the sign is dropped or meant.
    if answer.percent and not gold.percent:
        return gold_number.value == answer_number.value / 100
    if gold.percent and not answer.percent:
        return gold_number.value / 100 == answer_number.value
    return False


def compare(gold: Shape, answer: Shape, leaves: Leaves) -> bool | None:
    """Whether ``answer`` says what ``gold`` says.

    A bare list or a set may come in any order, everything in brackets in its own. An equation answers a value by its
    right side, provided that no constant in it says otherwise; an inequality answers an interval. Several answers
    count for one value only if all of them are right.
    """
    if isinstance(gold, Option) or isinstance(answer, Option):
        return _options(gold, answer, leaves)
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        return _relations(gold, answer, leaves)
    if isinstance(answer, Relation):
        return _against_relation(gold, answer, leaves)
    if isinstance(gold, Relation):
        return _for_relation(gold, answer, leaves)
    if isinstance(gold, Group | Union | Matrix):
        return _collections(gold, answer, leaves)
    if isinstance(answer, Group) and (not answer.opening or len(answer.items) == 1):
        return _all(compare(gold, item, leaves) for item in answer.items)
    if isinstance(gold, Value) and isinstance(answer, Value):
        return leaves.same_value(gold, answer)
    if isinstance(gold, Words | Value) and isinstance(answer, Words | Value):
        return same_words(_as_words(gold), _as_words(answer))
    return False


def _options(gold: Shape, answer: Shape, leaves: Leaves) -> bool | None:
    """An option's letter with what it stands for answers the one or the other, never a word."""
    if isinstance(gold, Option):
        if isinstance(answer, Option):
            return compare(gold.content, answer.content, leaves) if gold.letter == answer.letter else False
        return compare(answer, gold, leaves) if isinstance(answer, Words | Value | Group | Matrix | Union) else False
    assert isinstance(answer, Option)
    if isinstance(gold, Words):
        return gold.words == answer.letter
    return compare(gold, answer.content, leaves)


def is_constant(shape: Shape) -> bool:
    """Whether an expression has no letters that could be names."""
    return isinstance(shape, Value) and not re.search(r"[a-zA-Z\\]", _CONSTANT_COMMANDS.sub("", shape.latex))


def is_name(shape: Shape) -> bool:
    """Whether an expression is a variable or a function of one: x, x_1, f(x), \\theta."""
    if not isinstance(shape, Value):
        return isinstance(shape, Words)
    return _NAME.fullmatch(shape.latex) is not None and not is_constant(shape)


def _is_variable(shape: Shape) -> bool:
    return isinstance(shape, Value) and is_name(shape) and not re.fullmatch("[a-zA-Z]{2,}", shape.latex)


def _all(results: Iterable[bool | None]) -> bool | None:
    undecided = False
    for result in results:
        if result is False:
            return False
        undecided |= result is None
    return None if undecided else True


def _as_words(shape: Words | Value) -> str:
    return shape.words if isinstance(shape, Words) else plain_words(shape.latex)


def _collections(gold: Group | Union | Matrix, answer: Shape, leaves: Leaves) -> bool | None:
    if isinstance(gold, Matrix):
        return _matrices(gold, answer, leaves)
    if isinstance(gold, Union):
        items = answer.items if isinstance(answer, Union) else _intervals(answer)
        return _in_any_order(gold.items, items, leaves)
    if not isinstance(answer, Group):
        is_one = len(gold.items) == 1 and not isinstance(answer, Matrix | Union)
        return compare(gold.items[0], answer, leaves) if is_one else _column(answer, gold, leaves)
    if _names_places(gold) and not any(isinstance(item, Relation) for item in answer.items):
        return _in_order(gold.items, answer.items, leaves)
    if _is_unordered(gold) and (_is_unordered(answer) or (not gold.opening and answer.opening == "[")):
        return _in_any_order(gold.items, answer.items, leaves)
    brackets = {(gold.opening, gold.closing), (answer.opening, answer.closing)}
    if len(brackets) > 1 and brackets != {("", ""), ("(", ")")}:
        return False
    return _in_order(gold.items, answer.items, leaves)


def _is_unordered(group: Group) -> bool:
    return group.opening in ("", r"\{")


def _names_places(group: Group) -> bool:
    """Whether a list gives values to different names, as "x = 3, y = 4" does."""
    names = {item.parts[0] for item in group.items if isinstance(item, Relation) and item.operators == ("=",)}
    return len(names) == len(group.items) > 1


def _in_order(gold: Sequence[Shape], answer: Sequence[Shape], leaves: Leaves) -> bool | None:
    if len(gold) != len(answer):
        return False
    return _all(compare(one, other, leaves) for one, other in zip(gold, answer, strict=True))


def _in_any_order(gold: Sequence[Shape], answer: Sequence[Shape], leaves: Leaves) -> bool | None:
    if len(gold) != len(answer):
        return False
    left, undecided = list(answer), False
    for one in gold:
        results = [compare(one, other, leaves) for other in left]
        if True in results:
            del left[results.index(True)]
        elif None in results:
            undecided = True
        else:
            return False
    return None if undecided else True


def _matrices(gold: Matrix, answer: Shape, leaves: Leaves) -> bool | None:
    if isinstance(answer, Matrix):
        if [len(row) for row in gold.rows] != [len(row) for row in answer.rows]:
            return False
        return _all(_in_order(one, other, leaves) for one, other in zip(gold.rows, answer.rows, strict=True))
    column = [row[0] for row in gold.rows] if all(len(row) == 1 for row in gold.rows) else []
    is_vector = isinstance(answer, Group) and (answer.opening, answer.closing) in (("(", ")"), ("[", "]"))
    return _in_order(column, answer.items, leaves) if column and is_vector and isinstance(answer, Group) else False


def _column(answer: Shape, gold: Group, leaves: Leaves) -> bool | None:
    """A column vector as the answer to a tuple."""
    if not isinstance(answer, Matrix) or (gold.opening, gold.closing) != ("(", ")"):
        return False
    return _in_order(gold.items, [row[0] for row in answer.rows if len(row) == 1], leaves)


def _against_relation(gold: Shape, answer: Relation, leaves: Leaves) -> bool | None:
    """An equation, membership or inequality as the answer to something that is none."""
    operators = set(answer.operators)
    if operators == {r"\in"}:
        return compare(gold, answer.parts[-1], leaves) if len(answer.parts) == 2 else False
    if isinstance(gold, Words):
        # "even = odd" must not answer both; only a variable may stand in front of what it is.
        parts = answer.parts[1:] if _is_variable(answer.parts[0]) else answer.parts
        return operators == {"="} and all(compare(gold, part, leaves) for part in parts)
    if operators <= {"=", r"\approx"}:
        if is_constant(gold) and not _gives_a_value(answer):
            return False
        *before, last = _best_known(answer)
        # "3 = 5" and "2 + 3 = 6" are not saved by their right side; "5 = n" is no worse than "n = 5".
        claims = [part for part in before if is_constant(part)]
        if not (claims and is_name(last)):
            claims.append(last)
        return _all(compare(gold, part, leaves) for part in claims)
    described = set_of(answer)
    return compare(gold, described, leaves) if described is not None and isinstance(gold, Group | Union) else False


def _gives_a_value(answer: Relation) -> bool:
    """Whether an equation says what something is; ``2x + 3 = 7`` and ``x^2 - x = 0`` still ask for it."""
    name, value = answer.parts[0], answer.parts[-1]
    if len(answer.parts) > 2 or not isinstance(name, Value) or is_constant(name):
        return True
    if _asks_for_its_variable(name.latex):
        return False
    is_zero = isinstance(value, Value) and value.literal is not None and not value.literal.value
    terms = [term.strip() for term in split_top(name.latex, "[-+]")[0]]
    has_numbers = re.search(r"\d", _PLACES.sub("", name.latex)) is not None
    return not any(read_literal(term) for term in terms) and not (is_zero and has_numbers)


def _asks_for_its_variable(latex: str) -> bool:
    """Whether an expression does no more than change one variable: ``3x``, ``x^2``, ``|x|``."""
    return _CHANGED_VARIABLE.fullmatch(latex.replace(" ", "")) is not None


def _best_known(answer: Relation) -> tuple[Shape, ...]:
    r"""The parts that count: in front of ``\approx`` if a value stands there, else behind it."""
    if r"\approx" not in answer.operators:
        return answer.parts
    cut = answer.operators.index(r"\approx") + 1
    front = answer.parts[:cut]
    return front if len(front) > 1 or is_constant(front[0]) else answer.parts[cut:]


def _for_relation(gold: Relation, answer: Shape, leaves: Leaves) -> bool | None:
    """Something else as the answer to an equation, membership or inequality."""
    if len(gold.parts) == 2 and gold.operators[0] in ("=", r"\in") and is_name(gold.parts[0]):
        return compare(gold.parts[1], answer, leaves)
    described = set_of(gold)
    return compare(described, answer, leaves) if described is not None and isinstance(answer, Group | Union) else False


def _relations(gold: Relation, answer: Relation, leaves: Leaves) -> bool | None:
    if gold == answer:
        return True
    if len(answer.parts) > 2 and set(answer.operators) == {"="}:
        answer = Relation((answer.parts[0], answer.parts[-1]), ("=",))
    if gold.operators == answer.operators and gold.operators[0] in ("=", r"\in") and len(gold.parts) == 2:
        first, second = gold.parts[0], answer.parts[0]
        if is_name(first) and first == second:
            return compare(gold.parts[1], answer.parts[1], leaves)
    one, other = set_of(gold), set_of(answer)
    if one is not None and other is not None:
        return compare(one, other, leaves) if _variable(gold) == _variable(answer) else False
    if len(gold.parts) == len(answer.parts) == 2 and r"\in" not in (*gold.operators, *answer.operators):
        return leaves.same_relation(gold, answer)
    return False


def _variable(relation: Relation) -> Shape | None:
    return next((part for part in relation.parts if is_name(part)), None)


def set_of(relation: Relation) -> Shape | None:
    r"""What a membership or an inequality in one variable describes (``x < 3``, ``1 \le x < 3``); None for others."""
    if relation.operators == (r"\in",) and is_name(relation.parts[0]):
        return relation.parts[1]
    return _interval_of(relation)


def _interval_of(relation: Relation) -> Group | None:
    parts, operators = relation.parts, relation.operators
    if all(operator in _DOWNWARD for operator in operators):
        parts = parts[::-1]
        operators = tuple(_UPWARD[_DOWNWARD.index(operator)] for operator in reversed(operators))
    if not all(operator in _UPWARD for operator in operators):
        return None
    if len(parts) == 2 and is_name(parts[0]) and is_constant(parts[1]):
        parts, operators = (_MINUS_INFINITY, *parts), ("<", *operators)
    elif len(parts) == 2 and is_constant(parts[0]) and is_name(parts[1]):
        parts, operators = (*parts, _INFINITY), (*operators, "<")
    if len(parts) != 3 or not is_name(parts[1]) or not (is_constant(parts[0]) and is_constant(parts[2])):
        return None
    brackets = ("(" if operators[0] == "<" else "["), (")" if operators[1] == "<" else "]")
    return Group(*brackets, (parts[0], parts[2]))


def _intervals(answer: Shape) -> tuple[Shape, ...]:
    """The items of a list of inequalities as intervals: ``x < 2 or x > 3`` for a union."""
    items = alternatives(answer)
    return tuple((_interval_of(item) or item) if isinstance(item, Relation) else item for item in items)
