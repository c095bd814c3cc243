"""Python values as JSON between the program and its tests: plain types alone, each by its exact type.

What arrives is always one of the interpreter's own types, so no class of the program takes part in a comparison. An
object of any other type travels as a handle: a number that only the side which has the object can use.
"""

import builtins
import importlib
from collections.abc import Callable
from typing import Any

_MAX_JSON_INT = 1 << 53

HANDLES = ("handle", "function")
"""Objects of the program, and functions of the tests: the other side knows them by number."""

_Parts = Callable[[Any], list[Any]]


_BUILTIN_TYPES = {kind: name for name, kind in vars(builtins).items() if type(kind) is type}


class NotPlainError(Exception):
    """A value that cannot travel: a reference to itself, or a type that no handle may stand for."""


def encode(value: Any, handle: Callable[[Any], Any]) -> Any:
    """``value`` as JSON; ``handle`` gives the JSON of an object that is not plain, or raises NotPlainError."""
    try:
        return _encode(value, handle)
    except RecursionError as error:
        raise NotPlainError(f"a {type(value).__name__} that is nested too deeply, or holds itself") from error


def decode(data: Any, handle: Callable[[str, list[Any]], Any]) -> Any:
    """The value of ``data``; ``handle`` resolves handles, given one of `HANDLES` and what follows.

    NotPlainError for anything `encode` does not write.
    """
    try:
        return _decode(data, handle)
    except (
        RecursionError,
        TypeError,
        ValueError,
        LookupError,
        ArithmeticError,
        AttributeError,
        StopIteration,
    ) as error:
        raise NotPlainError(f"no value in a message ({type(error).__name__}: {error})") from error


def _encode(value: Any, handle: Callable[[Any], Any]) -> Any:
    kind = type(value)
    if kind in (type(None), bool, str, float):
        return value
    if kind is int:
        return value if -_MAX_JSON_INT < value < _MAX_JSON_INT else ["int", hex(value)]
    if kind is type and value in _BUILTIN_TYPES:
        return ["type", _BUILTIN_TYPES[value]]
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name in _PARTS:
        return [name, *(_encode(part, handle) for part in _PARTS[name](value))]
    plain = _plain_form(value, kind)
    return handle(value) if plain is value else _encode(plain, handle)


def _plain_form(value: Any, kind: type) -> Any:
    """Named tuples, enumerated integers and numpy's scalars as the plain value they compare as, else ``value``."""
    for base, copy in _COPIES.items():
        # A type that compares in its own way is none of ours to judge.
        if isinstance(value, base) and kind.__eq__ is base.__eq__:
            return copy(value)
    if kind.__module__ == "numpy" and getattr(value, "ndim", None) == 0 and kind.__name__ != "ndarray":
        item = value.item()
        return item if type(item) in (bool, int, float, complex, str, bytes) else value
    return value


def _decode(data: Any, handle: Callable[[str, list[Any]], Any]) -> Any:
    if data is None or type(data) in (bool, int, float, str):
        return data
    if type(data) is not list:
        raise TypeError(f"a JSON {type(data).__name__}")
    name, *parts = data
    if name in HANDLES:
        return handle(name, parts)
    if name == "int":
        return int(parts[0], 16)
    if name == "type":
        return next(kind for kind, known in _BUILTIN_TYPES.items() if known == parts[0])
    return _MAKERS[name]([_decode(part, handle) for part in parts])


def _pairs(value: Any) -> list[Any]:
    return [part for pair in value.items() for part in pair]


def _from_pairs(parts: list[Any]) -> dict[Any, Any]:
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _bounds(value: Any) -> list[Any]:
    return [value.start, value.stop, value.step]


def _iso(value: Any) -> list[Any]:
    return [value.isoformat()]


def _standard(module: str, name: str) -> Any:
    # Imported when such a value comes up: the start of the interpreter is most of what a run costs.
    return getattr(importlib.import_module(module), name)


# Type -> what it is made of, as a list of values that can travel.
_PARTS: dict[str, _Parts] = {
    "builtins.list": list,
    "builtins.tuple": list,
    "builtins.set": list,
    "builtins.frozenset": list,
    "builtins.dict": _pairs,
    "builtins.dict_keys": list,
    "builtins.dict_values": list,
    "builtins.dict_items": list,
    "builtins.complex": lambda value: [value.real, value.imag],
    "builtins.bytes": lambda value: [value.hex()],
    "builtins.bytearray": lambda value: [value.hex()],
    "builtins.range": _bounds,
    "builtins.slice": _bounds,
    "builtins.ellipsis": lambda value: [],
    "collections.OrderedDict": _pairs,
    "collections.defaultdict": _pairs,
    "collections.Counter": _pairs,
    "collections.deque": lambda value: [list(value), value.maxlen],
    "array.array": lambda value: [value.typecode, value.tolist()],
    "decimal.Decimal": lambda value: [str(value)],
    "fractions.Fraction": lambda value: [value.numerator, value.denominator],
    "datetime.date": _iso,
    "datetime.time": _iso,
    "datetime.datetime": _iso,
    "datetime.timedelta": lambda value: [value.days, value.seconds, value.microseconds],
}
# The same types -> the value, from those parts.
_MAKERS: dict[str, Callable[[list[Any]], Any]] = {
    "builtins.list": list,
    "builtins.tuple": tuple,
    "builtins.set": set,
    "builtins.frozenset": frozenset,
    "builtins.dict": _from_pairs,
    "builtins.dict_keys": lambda parts: dict.fromkeys(parts).keys(),
    "builtins.dict_values": lambda parts: dict(enumerate(parts)).values(),
    "builtins.dict_items": lambda parts: dict(parts).items(),
    "builtins.complex": lambda parts: complex(*parts),
    "builtins.bytes": lambda parts: bytes.fromhex(*parts),
    "builtins.bytearray": lambda parts: bytearray.fromhex(*parts),
    "builtins.range": lambda parts: range(*parts),
    "builtins.slice": lambda parts: slice(*parts),
    "builtins.ellipsis": lambda parts: Ellipsis,
    "collections.OrderedDict": lambda parts: _standard("collections", "OrderedDict")(_from_pairs(parts)),
    "collections.defaultdict": lambda parts: _standard("collections", "defaultdict")(None, _from_pairs(parts)),
    "collections.Counter": lambda parts: _standard("collections", "Counter")(_from_pairs(parts)),
    "collections.deque": lambda parts: _standard("collections", "deque")(*parts),
    "array.array": lambda parts: _standard("array", "array")(*parts),
    "decimal.Decimal": lambda parts: _standard("decimal", "Decimal")(*parts),
    "fractions.Fraction": lambda parts: _standard("fractions", "Fraction")(*parts),
    "datetime.date": lambda parts: _standard("datetime", "date").fromisoformat(*parts),
    "datetime.time": lambda parts: _standard("datetime", "time").fromisoformat(*parts),
    "datetime.datetime": lambda parts: _standard("datetime", "datetime").fromisoformat(*parts),
    "datetime.timedelta": lambda parts: _standard("datetime", "timedelta")(*parts),
}
# No type here is a subclass of another one, so their order does not matter (bool cannot be subclassed).
_COPIES: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes(memoryview(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    list: lambda value: list(list.__iter__(value)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
