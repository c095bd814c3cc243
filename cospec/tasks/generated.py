"""Rows that are made up by a seeded generator instead of read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cospec.tasks.base import RawRow, RawRows, RowRequest

DEFAULT_NUM = 200


@dataclass(frozen=True, slots=True)
class Generated:
    """``generate(split, num, seed)`` makes the rows, the same for the same arguments; ``version()`` names a release."""

    name: str
    splits: tuple[str, ...]
    generate: Callable[[str, int, int], Sequence[Mapping[str, Any]]]
    version: Callable[[], str]

    def read(self, request: RowRequest) -> RawRows:
        """``request.num`` rows, 200 if it is None."""
        if request.path is not None or request.revision is not None:
            raise ValueError(f"the problems of {self.name} are generated: leave path and revision out")
        split = request.split or self.splits[0]
        made = self.generate(split, DEFAULT_NUM if request.num is None else request.num, request.seed)
        rows = [
            RawRow(fields, split, "", index, request.seed, f"{self.name} {split} {index}")
            for index, fields in enumerate(made)
        ]
        return RawRows(rows, split, f"{self.name} {split}", self.version())
