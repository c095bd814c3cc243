"""What a task is: where its rows come from, how one is read, how it is asked and who scores the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Problem:
    """One question of a benchmark.

    ``gold`` is the answer as the scorer reads it, None where something in ``extra`` takes its place (aliases, tests, or
    nothing for questions without a right answer). ``worked`` is a full answer in the form the task asks for, used as a
    few-shot example. ``extra`` is what the scorer reads beside the gold answer.
    """

    id: str
    question: str
    gold: str | None
    worked: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


class UnusableRow(ValueError):
    """A row whose gold answer cannot be read: it is dropped and counted, where any other ValueError stops the load."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as it lies in the data, with where it comes from: ``where`` is file:line, ``part`` names one of several
    files of a split (the language of MGSM), ``index`` counts from 0 within split and part."""

    fields: Mapping[str, Any]
    split: str
    part: str
    index: int
    seed: int
    where: str

    def text(self, *names: str) -> str:
        """The first of these fields that is there, as a non-empty string; ValueError names file and line."""
        for name in names:
            value = self.fields.get(name)
            if isinstance(value, str) and value.strip():
                return value
        wanted = " or ".join(repr(name) for name in names)
        found = ", ".join(map(str, self.fields)) or "none"
        raise ValueError(f"{self.where}: no text in field {wanted} (fields: {found}): not this task's format")

    def get(self, name: str) -> Any:
        """A field that may be missing."""
        return self.fields.get(name)


@dataclass(frozen=True, slots=True)
class RawRows:
    """Rows, read as they are taken, the split they are, and what they are a version of: a Hub revision, the digest of
    files, a generator's release."""

    rows: Iterable[RawRow]
    split: str
    source: str
    version: str
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowRequest:
    """What is asked of a source; None leaves the choice to it. ``num`` is a hint: more rows may come."""

    path: Path | None = None
    split: str | None = None
    num: int | None = None
    seed: int = 0
    revision: str | None = None


class Source(Protocol):
    """Where rows come from."""

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits; the first is the one taken unless another is asked for."""

    def read(self, request: RowRequest) -> RawRows:
        """Rows in their own order; ValueError for an option that does not fit and for data that cannot be had."""


@dataclass(frozen=True, slots=True)
class SplitShots:
    """Few-shot examples are drawn from a split of the task itself."""

    split: str


Shots = SplitShots | tuple[Problem, ...] | None
Template = str | Callable[[Problem], str]


@dataclass(frozen=True, slots=True)
class Task:
    """A benchmark.

    ``instruction`` asks a chat model and ``plain`` a base model: templates with ``{question}``, or functions of the
    problem. ``shots`` are few-shot examples written for the task, the split they come from, or None where there are
    none. ``scorer`` is the scorer's name, None where no scorer can judge. ``row_fields`` are fields that a row to be
    scored must carry beside its gold answer.
    """

    name: str
    licence: str
    source: Source
    scorer: str | None
    instruction: Template
    read: Callable[[RawRow], Problem]
    plain: Template = "Question: {question}\nAnswer:"
    shots: Shots = None
    row_fields: tuple[str, ...] = ()

    def ask(self, problem: Problem, *, chat: bool) -> str:
        """The text that puts one problem to a model."""
        template = self.instruction if chat else self.plain
        if callable(template):
            return template(problem)
        # Not str.format: questions hold braces of their own.
        return template.replace("{question}", problem.question)
