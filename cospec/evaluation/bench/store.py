"""The directory of a bench: every finished repeat, so that an interrupted bench goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from cospec.evaluation.bench.cells import CellKey
from cospec.evaluation.bench.rounds import Repeat, repeat_from_json
from cospec.jsonl import append_jsonl, drop_torn_tail, dumps, read_jsonl, write_json_atomic

SETTINGS, RESULTS = "settings.json", "results.json"


class BenchRun:
    """``settings`` decide the numbers, the machine among them; opening a directory of others raises ValueError.

    Each measurement has a file of its own with one line per repeat. The number of repeats is no setting: the same
    command with more of them goes on.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        self.directory = directory
        self._settings: Any = json.loads(dumps(settings))
        path = directory / SETTINGS
        files = list(directory.glob("*.jsonl"))
        if path.exists():
            _require_same(json.loads(path.read_text(encoding="utf-8")), self._settings, directory)
        elif files:
            raise ValueError(
                f"{directory} holds {files[0].name} without {SETTINGS}: it is no bench; name another --out"
            )

    def repeats(self, name: str, keys: Collection[CellKey]) -> list[Repeat]:
        """All repeats of a measurement written so far; ValueError if they are not of these cells."""
        path = self._path(name)
        drop_torn_tail(path)
        found = [repeat_from_json(row) for row in read_jsonl(path)] if path.exists() else []
        for index, repeat in enumerate(found):
            if repeat.index != index or set(repeat.samples) != set(keys):
                raise ValueError(f"{path} does not hold the repeats of this bench: name another --out")
        return found

    def add(self, name: str, repeat: Repeat) -> None:
        """Write a repeat, and before the first one the settings: a bench that measured nothing leaves none."""
        if not (self.directory / SETTINGS).exists():
            write_json_atomic(self.directory / SETTINGS, self._settings)
        append_jsonl(self._path(name), [repeat.to_json()])

    def finish(self, results: Mapping[str, Any]) -> None:
        """Write what came out."""
        write_json_atomic(self.directory / RESULTS, results)

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.jsonl"


def _require_same(before: Mapping[str, Any], now: Mapping[str, Any], directory: Path) -> None:
    changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    if changed:
        shown = "; ".join(f"{name} was {_short(before.get(name))}, now {_short(now.get(name))}" for name in changed[:3])
        raise ValueError(
            f"{directory} holds a bench under other settings ({shown}): its numbers would not belong together, so name "
            "another --out or remove the directory"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
