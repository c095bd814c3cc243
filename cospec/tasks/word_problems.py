"""Seeded multi-step word problems with worked solutions, the task of the bundled tiny pair.

A problem is a chain of two to four steps; each step acts on the result of the one before. What a step asks for is
named by its *cell*, an operation and a band of operands (`mul.high` is a multiplication by 6 to 9): a `Mix` weighs the
cells, limits which of their facts occur and sets the taste in phrasing, so two models taught from two mixes differ in
what they know and in how they write. Splits never share a prompt, whatever the seeds: the numbers of a prompt decide.
"""

import argparse
import json
import random
import re
import zlib
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from types import MappingProxyType

MAX_VALUE = 99
"""Largest value of any intermediate result."""

SPLITS: Mapping[str, range] = MappingProxyType(
    {"train": range(40), "warmup": range(40, 60), "grpo": range(60, 80), "eval": range(80, 100)}
)
"""Buckets (of 100) that belong to each split."""

BANDS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "add.low": tuple(range(2, 25)),
        "add.mid": tuple(range(25, 45)),
        "add.high": tuple(range(45, 75)),
        "sub.low": tuple(range(2, 20)),
        "sub.mid": tuple(range(20, 40)),
        "sub.high": tuple(range(40, 75)),
        "mul.low": (2, 3),
        "mul.mid": (4, 5),
        "mul.high": (6, 7, 8, 9),
        "div.low": (2, 3),
        "div.mid": (4, 5),
        "div.high": (6, 7, 8, 9),
        "pct.low": (50,),
        "pct.mid": (20,),
        "pct.high": (25, 75),
    }
)
"""Operands of every cell."""

POINTS = ("open", "verb", "link", "unit", "close")
"""Where a step of a solution has two interchangeable phrasings; `Mix.style` names one as `<operation>.<point>`."""

_NAMES = ("Anna", "Ben", "Carla", "David", "Emma", "Felix", "Grace", "Henry", "Iris", "Jack", "Lena", "Omar")
_OBJECTS = ("apples", "books", "cards", "coins", "eggs", "flowers", "marbles", "pens", "shells", "stamps")
_STARTS = ("{n} has {a} {o}.", "{n} starts with {a} {o}.", "There are {a} {o} in the box of {n}.")
_QUESTIONS = ("How many {o} does {n} have now?", "How many {o} are there at the end?")
_EVENTS: Mapping[str, tuple[str, ...]] = {
    "add": ("{n} buys {b} more {o}.", "{n} finds {b} {o}.", "a friend brings {b} {o}."),
    "sub": ("{n} gives away {b} {o}.", "{n} sells {b} of the {o}.", "{n} loses {b} {o}."),
    "mul": ("the number of {o} grows {b} times.", "a trick turns each one into {b}.", "{n} gets {b} times as many."),
    "div": ("{n} shares the {o} among {b} boxes and keeps one.", "{n} makes {b} equal piles and keeps one pile."),
    "pct": ("{n} keeps {b} percent of the {o}.", "only {b} percent of the {o} are good."),
}
_EQUATIONS: Mapping[str, str] = {
    "add": "{a}+{b}={r}",
    "sub": "{a}-{b}={r}",
    "mul": "{a}*{b}={r}",
    "div": "{a}/{b}={r}",
    "pct": "{b}% of {a}={r}",
}
_ORDINALS = ("First", "Second", "Third", "Fourth")
_OPENERS = ("", ",")
_VERBS: Mapping[str, tuple[str, str]] = {
    "add": (" we add", " adding"),
    "sub": (" we subtract", " removing"),
    "mul": (" we multiply", " growing"),
    "div": (" we divide", " sharing"),
    "pct": (" we reduce", " keeping"),
}
_LINKS = (": ", " so ")
_UNITS = (" {o}", " of them")
_CLOSES = (".", " now.")

_MARKER = re.compile(r"answer[ \t]*[:=]", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"\s{0,8}(-?)([0-9]+(?:,[0-9]{3})*)(?:\.([0-9]+))?")


@dataclass(frozen=True, slots=True)
class Problem:
    """One word problem; `kinds` names the cell of each step, `gold` is the final result in digits."""

    id: str
    prompt: str
    solution: str
    gold: str
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Mix:
    """What problems are drawn and how their solutions are phrased.

    `weights` of cells need not sum to one; a cell left out never occurs. `known` is the share of a cell's facts
    (operand pairs) that may occur, 1 where absent; which ones is fixed by a hash, not by the seed. `style` is the
    probability of the first phrasing at `<operation>.<point>`, one half where absent. `lengths` weighs one to four
    steps.
    """

    weights: Mapping[str, float]
    known: Mapping[str, float] = field(default_factory=dict)
    style: Mapping[str, float] = field(default_factory=dict)
    lengths: tuple[float, float, float, float] = (0.0, 0.25, 0.45, 0.3)

    def __post_init__(self) -> None:
        for name in (*self.weights, *self.known):
            if name not in BANDS:
                raise ValueError(f"unknown cell {name!r} in a mix; choose from {', '.join(BANDS)}")
        if not any(self.weights.get(name, 0) > 0 for name in ("add.low", "sub.low")):
            raise ValueError("a mix needs a positive weight for add.low or sub.low: only these fit almost any value")


DEFAULT_MIX = Mix(
    weights={
        "add.low": 2.0,
        "add.mid": 0.6,
        "add.high": 0.1,
        "sub.low": 1.6,
        "sub.mid": 0.05,
        "sub.high": 1.0,
        "mul.low": 2.0,
        "mul.mid": 3.5,
        "mul.high": 3.0,
        "div.low": 2.0,
        "div.mid": 3.0,
        "div.high": 4.5,
        "pct.low": 1.2,
        "pct.mid": 3.5,
        "pct.high": 2.0,
    }
)
"""The mix of every benchmark split."""

_Step = tuple[str, int, int, int]  # cell, value before, operand, result


def generate(num_problems: int, seed: int, mix: Mix = DEFAULT_MIX, split: str = "eval") -> list[Problem]:
    """Draw `num_problems` problems of one split, the same ones for the same arguments and no prompt twice."""
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}; choose from {', '.join(SPLITS)}")
    rng = random.Random(f"{split}/{seed}")
    draw_steps = _StepSampler(mix, rng)
    buckets, seen = SPLITS[split], set[str]()
    problems: list[Problem] = []
    while len(problems) < num_problems:
        steps = draw_steps()
        if _bucket([steps[0][1], *(step[2] for step in steps)]) not in buckets:
            continue
        name, noun = rng.choice(_NAMES), rng.choice(_OBJECTS)
        prompt = _render_prompt(steps, name, noun, rng)
        if prompt in seen:
            continue
        seen.add(prompt)
        solution = _render_solution(steps, noun, mix.style, rng)
        kinds = tuple(step[0] for step in steps)
        problems.append(Problem(f"{split}-{seed}-{len(problems)}", prompt, solution, str(steps[-1][3]), kinds))
    return problems


def split_of(prompt: str) -> str:
    """The split a prompt belongs to, decided by its numbers alone: the same sums under other names share a split."""
    bucket = _bucket(re.findall(r"[0-9]+", prompt))
    return next(name for name, buckets in SPLITS.items() if bucket in buckets)


def apply(operation: str, value: int, operand: int) -> int | None:
    """The exact result of one step, None where it is no whole number of 2 to `MAX_VALUE`."""
    if operation == "add":
        result = value + operand
    elif operation == "sub":
        result = value - operand
    elif operation == "mul":
        result = value * operand
    else:
        numerator, denominator = (value, operand) if operation == "div" else (value * operand, 100)
        result, rest = divmod(numerator, denominator)
        if rest:
            return None
    return result if 2 <= result <= MAX_VALUE else None


def cell_of(operation: str, operand: int) -> str | None:
    """The cell a step belongs to, None for an operand outside every band."""
    bands = (f"{operation}.{band}" for band in ("low", "mid", "high"))
    return next((cell for cell in bands if operand in BANDS.get(cell, ())), None)


def final_answer(text: str) -> str | None:
    """The number right after the last `Answer:`, in plain digits; None if that marker or its number is missing."""
    markers = list(_MARKER.finditer(text))
    found = _NUMBER.match(text, markers[-1].end()) if markers else None
    return _plain(*found.groups()) if found else None


def score(text: str, gold: str) -> bool:
    """Whether the final answer of `text` is the number `gold`."""
    found = _NUMBER.fullmatch(gold)
    if not found:
        raise ValueError(f"gold {gold!r} is not a number; pass a Problem's gold")
    return final_answer(text) == _plain(*found.groups())


class _StepSampler:
    """Draws chains of steps; tables of the operands that fit each value make a draw cheap."""

    def __init__(self, mix: Mix, rng: random.Random) -> None:
        self._random = rng.random
        self._cells = [cell for cell in BANDS if mix.weights.get(cell, 0) > 0]
        self._weights = list(accumulate(mix.weights[cell] for cell in self._cells))
        self._lengths = list(accumulate(mix.lengths))
        self._fitting = {cell: _fitting_operands(cell, mix.known.get(cell, 1.0)) for cell in self._cells}

    def __call__(self) -> list[_Step]:
        value, steps = 2 + int(self._random() * 79), []
        for _ in range(1 + bisect(self._lengths, self._random() * self._lengths[-1])):
            steps.append(self._step(value))
            value = steps[-1][3]
        return steps

    def _step(self, value: int) -> _Step:
        while True:
            cell = self._cells[bisect(self._weights, self._random() * self._weights[-1])]
            choices = self._fitting[cell][value]
            if choices:
                operand, result = choices[int(self._random() * len(choices))]
                return cell, value, operand, result


def _fitting_operands(cell: str, known: float) -> list[list[tuple[int, int]]]:
    """For every value, the (operand, result) pairs of a cell that are whole, in range and among the known facts."""
    operation = cell.partition(".")[0]
    table: list[list[tuple[int, int]]] = []
    for value in range(MAX_VALUE + 1):
        results = ((operand, apply(operation, value, operand)) for operand in BANDS[cell])
        table.append([(b, r) for b, r in results if r is not None and is_known(operation, value, b, known)])
    return table


def is_known(operation: str, value: int, operand: int, share: float) -> bool:
    """Whether a fact is among the `share` of facts that a mix with this `known` entry may show."""
    return zlib.crc32(f"{operation} {value} {operand}".encode()) % 1000 < 1000 * share


def _bucket(numbers: list[int] | list[str]) -> int:
    return zlib.crc32(",".join(map(str, numbers)).encode()) % 100


def _render_prompt(steps: list[_Step], name: str, noun: str, rng: random.Random) -> str:
    sentences = [rng.choice(_STARTS).format(n=name, a=steps[0][1], o=noun)]
    for ordinal, (cell, _, operand, _) in zip(_ORDINALS, steps, strict=False):
        sentences.append(f"{ordinal} " + rng.choice(_EVENTS[cell[:3]]).format(n=name, b=operand, o=noun))
    sentences.append(rng.choice(_QUESTIONS).format(n=name, o=noun))
    return " ".join(sentences)


def _render_solution(steps: list[_Step], noun: str, style: Mapping[str, float], rng: random.Random) -> str:
    parts: list[str] = []
    for index, (cell, value, operand, result) in enumerate(steps):
        operation = cell[:3]
        choices = (_OPENERS, _VERBS[operation], _LINKS, _UNITS, _CLOSES)
        first = [rng.random() < style.get(f"{operation}.{point}", 0.5) for point in POINTS]
        opening, verb, link, unit, close = (a if take else b for (a, b), take in zip(choices, first, strict=True))
        equation = _EQUATIONS[operation].format(a=value, b=operand, r=result)
        ordinal = _ORDINALS[index] if index == 0 else f" {_ORDINALS[index]}"
        parts += (ordinal, opening, verb, link, equation, unit.format(o=noun), close)
    return "".join(parts) + f"\nAnswer: {steps[-1][3]}"


def _plain(sign: str, whole: str, decimals: str | None) -> str:
    """One spelling per number: no leading zeros, no thousands commas, no empty decimals, no negative zero."""
    digits = whole.replace(",", "").lstrip("0") or "0"
    fraction = (decimals or "").rstrip("0")
    number = f"{digits}.{fraction}" if fraction else digits
    return f"-{number}" if sign and number != "0" else number


def main() -> None:
    """Print problems as prompt rows: ``python -m cospec.tasks.word_problems --split warmup --num 500``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--split", choices=list(SPLITS), default="eval")
    parser.add_argument("--num", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for problem in generate(options.num, options.seed, split=options.split):
        print(json.dumps({"id": problem.id, "prompt": problem.prompt, "gold": problem.gold, "task": "word_problems"}))


if __name__ == "__main__":
    main()
