"""Drafters by name: what proposes a block. A new one is one file and one entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cospec.engine.drafters.base import BoundDrafter, Draft, Drafter, Outcome, RunShape, check_use
from cospec.engine.drafters.model import BoundModelDrafter, ModelDrafter
from cospec.engine.drafters.none import NoDrafter
from cospec.engine.parameters import Parameter, read_values, split_spec

__all__ = [
    "DRAFTERS",
    "BoundDrafter",
    "BoundModelDrafter",
    "Draft",
    "Drafter",
    "DrafterInfo",
    "ModelDrafter",
    "NoDrafter",
    "Outcome",
    "RunShape",
    "check_use",
    "drafter_named",
]


@dataclass(frozen=True, slots=True)
class DrafterInfo:
    """A kind of drafter: ``make`` takes its parameters by name and, where it lives in files, its ``path``.

    ``path`` says in words what the path names, None where there is none; ``source`` is where the method comes from.
    """

    name: str
    about: str
    source: str
    make: Callable[..., Drafter]
    parameters: tuple[Parameter, ...] = ()
    path: str | None = None


#: In the order in which docs list them.
DRAFTERS: dict[str, DrafterInfo] = {
    info.name: info
    for info in (
        DrafterInfo(
            "model",
            "the pair's draft model",
            "Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023 (arXiv 2302.01318)",
            ModelDrafter,
        ),
    )
}


def drafter_named(spec: str) -> Drafter:
    """The drafter of a spec, ``NAME[:PATH][:param=value,...]``; its models and files are loaded by the engine.

    ValueError for a name, path or parameter that cannot be.
    """
    parts = split_spec(spec)
    info = DRAFTERS.get(parts.name)
    if info is None:
        raise ValueError(f"there is no drafter {parts.name!r}: choose one of {', '.join(DRAFTERS)}")
    where = f"drafter {spec!r}"
    if parts.path is not None and info.path is None:
        raise ValueError(f"{where} names {parts.path!r}, and {info.name} has no files: write param=value, or drop it")
    if parts.path is None and info.path is not None:
        raise ValueError(f"{where} lacks {info.path}: write {info.name}:PATH")
    values: dict[str, Any] = read_values(parts, info.parameters, where)
    return info.make(**({} if parts.path is None else {"path": parts.path}), **values)
