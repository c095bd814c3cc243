"""What a task is: where its rows come from, how one is read, how it is asked and who scores the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """One question; ``worked`` is a full answer, ``extra`` what the scorer reads beside the gold answer."""

    id: str
    question: str
    gold: str | None
    worked: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Task:
    """A benchmark; ``read`` gives ``num`` problems of a split."""

    name: str
    licence: str
    source: str
    scorer: str | None
    instruction: str
    read: Callable[[int, int, str], Iterable[Problem]]
