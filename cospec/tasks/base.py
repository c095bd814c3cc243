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
    """A row whose gold answer cannot be read, or that says again what another row says: it is dropped and counted,
    where any other ValueError stops the load."""


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

    def value(self, *names: str) -> Any:
        """The first of these fields that is there, whatever it holds; ValueError where there is none."""
        for name in names:
            if name in self.fields:
                return self.fields[name]
        raise self.misfit(names[0], "is missing")

    def optional_text(self, name: str) -> str:
        """A text that may be missing, null or empty; ValueError for anything else."""
        value = self.fields.get(name)
        if value is not None and not isinstance(value, str):
            raise self.misfit(name, f"is a {type(value).__name__}: it must be a text")
        return value or ""

    def optional_list(self, name: str, kind: type = object) -> list[Any]:
        """A list of values of one kind that may be missing or null; ValueError for anything else."""
        value = self.fields.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, kind) for item in value):
            raise self.misfit(name, f"is no list{'' if kind is object else f' of {kind.__name__} values'}")
        return value

    def own_id(self, *names: str) -> str | None:
        """The first of these fields that is not null or empty, a text or a whole number; None where all are."""
        for name in names:
            value = self.fields.get(name)
            if value is None or value == "":
                continue
            if isinstance(value, bool) or not isinstance(value, str | int):
                raise self.misfit(name, f"is a {type(value).__name__}: it must be a text or a whole number")
            return str(value)
        return None

    def misfit(self, name: str, what: str) -> ValueError:
        """The error of a field that is not as it should be, with file and line."""
        return ValueError(f"{self.where}: field {name!r} {what}")


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
