"""Procedurally generated problems of the reasoning-gym library: `reasoning_gym:<dataset>`, such as
`reasoning_gym:chain_sum`.

The library seeds problem i with seed + i, so that neighbouring seeds share problems: the seed given here is hashed
together with the split. Splits of data sets with few distinct problems can still overlap (`cospec overlap` tells).
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from importlib import metadata
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from cospec.tasks.base import Problem, RawRow, RawRows, RowRequest, Task
from cospec.tasks.generated import Generated

ASK = (
    "{question}\n\nThink it through, then write the final answer, and nothing else, between <answer> and </answer>, "
    "in exactly the form that the problem asks for."
)


UNUSABLE: Mapping[str, str] = {
    "composite": "it is a mixture without contents of its own: name one of its data sets",
    "game_of_life_halting": "the library's scorer gives full credit to any text",
}
"""Data sets of the library that make no task."""


def library() -> ModuleType:
    """The module reasoning_gym."""
    require_library()
    import reasoning_gym

    return reasoning_gym


def require_library() -> None:
    """ValueError where the library is missing; does not import it, which takes seconds."""
    if find_spec("reasoning_gym") is None:
        raise ValueError("reasoning_gym tasks need the package reasoning-gym: pip install 'cospec[eval]'")


def read(row: RawRow) -> Problem:
    """`entry` is the generated entry as JSON, which the library's scorer reads; some data sets have no gold answer."""
    entry = row.fields["entry"]
    answer = entry["answer"]
    gold = answer if isinstance(answer, str) and answer.strip() else None
    extra = {"dataset": row.fields["dataset"], "entry": pack(entry)}
    return Problem(
        f"{row.where.split(' ')[0]}/{row.split}/{row.seed}/{row.index}", entry["question"], gold, extra=extra
    )


def variant(name: str) -> Task:
    """The data set of that name; ValueError with the nearest name where the library has none."""
    datasets = library().factory.DATASETS
    if name in UNUSABLE:
        raise ValueError(f"reasoning_gym:{name} cannot be used: {UNUSABLE[name]}")
    if name not in datasets:
        near = difflib.get_close_matches(name, datasets, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(sorted(datasets))}"
        raise ValueError(f"reasoning-gym has no data set {name!r}: {hint}")

    def generate(split: str, num: int, seed: int) -> Sequence[Mapping[str, Any]]:
        made = library().create_dataset(name, size=num, seed=_seed(split, seed))
        return [{"dataset": name, "entry": made[index]} for index in range(num)]

    source = Generated(f"reasoning_gym:{name}", ("eval", "train"), generate, _version)
    return Task(f"reasoning_gym:{name}", "Apache-2.0", source, "reasoning_gym", ASK, read)


def _seed(split: str, seed: int) -> int:
    # Some data sets hand the seed of each problem to numpy, which takes 32 bits.
    return int.from_bytes(hashlib.sha256(f"{split}/{seed}".encode()).digest()[:4], "big") >> 1


def _version() -> str:
    return f"reasoning-gym {metadata.version('reasoning-gym')}"


class _NeedsName:
    """Stands where a data set has to be named."""

    splits = ("eval", "train")

    def read(self, request: RowRequest) -> RawRows:
        """Say what is missing."""
        raise ValueError("reasoning_gym is many data sets: name one, such as reasoning_gym:chain_sum")


TASK = Task("reasoning_gym", "Apache-2.0", _NeedsName(), "reasoning_gym", ASK, read)


# --- entries as JSON -------------------------------------------------------------------------------------------------

_TUPLE, _PAIRS, _FRACTION = "!tuple", "!pairs", "!fraction"


def pack(value: Any) -> Any:
    """An entry as JSON that `unpack` turns back into the same entry: the scorers tell tuples from lists."""
    if isinstance(value, tuple):
        return {_TUPLE: [pack(item) for item in value]}
    if isinstance(value, list):
        return [pack(item) for item in value]
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("!") for key in value):
            return {key: pack(item) for key, item in value.items()}
        return {_PAIRS: [[pack(key), pack(item)] for key, item in value.items()]}
    if isinstance(value, Fraction):
        return {_FRACTION: [value.numerator, value.denominator]}
    return value


def unpack(value: Any) -> Any:
    """The entry that `pack` was given."""
    if isinstance(value, list):
        return [unpack(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    if set(value) == {_TUPLE}:
        return tuple(unpack(item) for item in value[_TUPLE])
    if set(value) == {_FRACTION}:
        return Fraction(*value[_FRACTION])
    if set(value) == {_PAIRS}:
        return {unpack(key): unpack(item) for key, item in value[_PAIRS]}
    return {key: unpack(item) for key, item in value.items()}
