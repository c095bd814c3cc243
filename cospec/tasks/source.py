"""Rows from published files: a local copy, or the Hub at a pinned revision."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from cospec.jsonl import require_file
from cospec.tasks.base import RawRow, RawRows, RowRequest
from cospec.tasks.formats import SUFFIXES, NumberedRows, file_digest, read_rows


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a split.

    ``names`` are its names without suffix in a local directory, any of which will do; ``hub`` is the name of the Hub's
    split, or of the file where the Hub's repository holds plain files. ``keep`` chooses the rows that belong to the
    split where several splits share a file.
    """

    names: tuple[str, ...]
    hub: str
    label: str = ""
    keep: Callable[[RawRow], bool] | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """A benchmark's files: ``parts`` of each split, the default split first.

    ``config`` is the Hub data set's configuration. ``plain_files`` is for repositories that ship a loading script,
    which `datasets` no longer runs: their files are fetched as they are. ``columns`` names the columns of .tsv files
    without a header. ``variants`` are the names of the files of all the task's variants: one that is not among the
    parts holds other problems.
    """

    repo: str
    revision: str
    parts: Mapping[str, tuple[Part, ...]]
    config: str | None = None
    plain_files: bool = False
    columns: tuple[str, ...] | None = None
    variants: tuple[str, ...] = ()

    @property
    def splits(self) -> tuple[str, ...]:
        """Names of the splits, the default first."""
        return tuple(self.parts)

    def read(self, request: RowRequest) -> RawRows:
        """Rows of one split in file order, from ``request.path`` or the Hub."""
        if request.path is None:
            return self._from_hub(request)
        if request.revision is not None:
            raise ValueError("a revision names a version on the Hub and the rows are local: leave one of the two out")
        return self._from_files(request)

    def read_all(self, request: RowRequest) -> RawRows:
        """Rows of every split that is there, each file once, for finding rows by their own ids."""
        parts = [part for group in self.parts.values() for part in group]
        if request.path is None:
            every = {(part.hub, part.label): part for part in parts}
            return replace(self, parts={"all": tuple(every.values())})._from_hub(request)
        if request.path.is_dir():
            there = {part.names: replace(part, keep=None) for part in parts if _candidates(request.path, part)}
            if not there:
                _find(request.path, parts[0], self.splits[0])
            united = tuple(there.values())
        else:
            self._refuse_other_variant(request.path)
            united = (Part((_stem(request.path),), ""),)
        return replace(self, parts={"all": united})._from_files(request)

    def files(self, path: Path) -> list[Path]:
        """The files of any split that lie at ``path``, a directory or a file."""
        if not path.is_dir():
            return [path]
        parts = [part for group in self.parts.values() for part in group]
        return list(dict.fromkeys(file for part in parts for file in _candidates(path, part)))

    # --- local files -------------------------------------------------------------------------------------------------

    def _from_files(self, request: RowRequest) -> RawRows:
        assert request.path is not None
        if request.path.is_dir():
            split = request.split or self.splits[0]
            found = [(part, _find(request.path, part, split)) for part in self.parts[split]]
        else:
            self._refuse_other_variant(request.path)
            split, part = self._part_of(require_file(request.path, "data file"), request.split)
            found = [(part, request.path)]
        rows = chain.from_iterable(
            _kept(part, read_rows(file, self.columns), split, request.seed, str(file)) for part, file in found
        )
        digests = {file.name: file_digest(file) for _, file in found}
        return RawRows(rows, split, ", ".join(digests), _version(digests), digests)

    def _refuse_other_variant(self, file: Path) -> None:
        own = {name for parts in self.parts.values() for part in parts for name in part.names}
        if _stem(file) in set(self.variants) - own:
            raise ValueError(
                f"{file} is of another variant of this task by its name: name that one, or rename the file"
            )

    def _part_of(self, file: Path, asked: str | None) -> tuple[str, Part]:
        """Which split and part a single file is, by its name; one of an unknown name is a split of its own, "file"."""
        group = {split: part for split, parts in self.parts.items() for part in parts if _stem(file) in part.names}
        if asked is None and group:
            asked = next(iter(group))
        if asked in group:
            if len(self.parts[asked]) > 1:
                raise ValueError(
                    f"{file} is one of several files of this task: give their directory, or name its variant"
                )
            return asked, group[asked]
        if group:
            raise ValueError(f"{file} is split {' or '.join(group)} by its name, not {asked!r}: give the other file")
        default = self.parts[asked or self.splits[0]]
        if len(default) > 1:
            names = ", ".join(part.names[0] for part in default)
            raise ValueError(f"{file}: which of the files {names} is this? Keep its name, or give their directory")
        if default[0].keep is not None or len(self.splits) == 1:
            return asked or self.splits[0], default[0]
        if asked is not None:
            raise ValueError(f"{file}: its name is no split's, so it is taken whole: leave the split {asked!r} out")
        return "file", default[0]

    # --- the Hub -----------------------------------------------------------------------------------------------------

    def _from_hub(self, request: RowRequest) -> RawRows:
        from cospec.tasks.hub import hub_file, hub_split

        split = request.split or self.splits[0]
        revision = request.revision or self.revision

        def rows_of(part: Part) -> Iterator[RawRow]:
            if self.plain_files:
                numbered = read_rows(hub_file(self.repo, part.hub, revision), self.columns)
            else:
                numbered = hub_split(self.repo, self.config, part.hub, revision)
            return _kept(part, numbered, split, request.seed, f"{self.repo}/{part.hub}")

        rows = chain.from_iterable(map(rows_of, self.parts[split]))
        source = " ".join(filter(None, (self.repo, self.config, *(part.hub for part in self.parts[split]))))
        return RawRows(rows, split, source, f"{self.repo}@{revision}")


def _kept(part: Part, numbered: NumberedRows, split: str, seed: int, where: str) -> Iterator[RawRow]:
    index = 0
    for number, fields in numbered:
        row = RawRow(fields, split, part.label, index, seed, f"{where}:{number}")
        if part.keep is None or part.keep(row):
            yield row
            index += 1


def _stem(path: Path) -> str:
    for suffix in reversed(SUFFIXES):
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return path.name


def _candidates(directory: Path, part: Part) -> list[Path]:
    return [file for name in part.names for suffix in SUFFIXES if (file := directory / f"{name}{suffix}").exists()]


def _find(directory: Path, part: Part, split: str) -> Path:
    found = _candidates(directory, part)
    if len(found) == 1:
        return found[0]
    if found:
        names = " and ".join(file.name for file in found)
        raise ValueError(f"{directory} holds {names}, either of which could be split {split!r}: give the file itself")
    wanted = " or ".join(part.names)
    raise ValueError(
        f"{directory} has no file for split {split!r}: looked for {wanted} with one of {', '.join(SUFFIXES)}"
    )


def _version(digests: Mapping[str, str]) -> str:
    if len(digests) == 1:
        return f"sha256:{next(iter(digests.values()))}"
    listed = "".join(f"{name} {digest}\n" for name, digest in sorted(digests.items()))
    return f"sha256:{hashlib.sha256(listed.encode()).hexdigest()}"
