"""What was found, in one JSON file that is written anew with every step, and the time that is left."""

from __future__ import annotations

import json
import os
import time
import traceback
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any


class Results:
    """The file; ``found`` is its contents. No new work may be begun once ``left_s`` is below 0."""

    def __init__(self, path: Path, limit_s: float) -> None:
        self.path, self.limit_s = path, limit_s
        self.found: dict[str, Any] = {
            "finished": False,
            # Names of the checks that do not hold and of the parts that broke.
            "failures": [],
            # What there was no time for.
            "left_out": [],
            "parts": {},
            "checks": [],
        }
        self._started = time.perf_counter()

    @property
    def left_s(self) -> float:
        return self.limit_s - (time.perf_counter() - self._started)

    def put(self, **entries: Any) -> None:
        """Set top-level entries and write the file."""
        self.found |= entries
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")
        os.replace(part, self.path)

    def check(self, name: str, difference: str | None) -> None:
        """Note what must be the same; ``difference`` says where it is not."""
        self.found["checks"].append({"name": name, "holds": difference is None, "difference": difference})
        if difference is not None:
            self.found["failures"].append(name)
            say(f"DIFFERENT: {name}: {difference}")
        self.put()

    def leave_out(self, what: str) -> None:
        """Note what there is no time for."""
        self.found["left_out"].append(what)
        say(f"no time for {what}")

    def part(self, name: str) -> AbstractContextManager[None]:
        """Around one part of the work: its seconds are noted, and its failure, which does not end the others."""
        return _Part(self, name)


class _Part:
    def __init__(self, results: Results, name: str) -> None:
        self.results, self.name = results, name

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        # A device is lent for minutes: what breaks one part is kept, fails the run, and must not cost the other parts.
        broke = isinstance(error, Exception)
        entry: dict[str, Any] = {"seconds": round(time.perf_counter() - self.started, 3), "error": None}
        if broke:
            entry["error"] = "".join(traceback.format_exception(error))
            self.results.found["failures"].append(self.name)
            say(f"BROKEN: {self.name}\n{entry['error']}")
        self.results.found["parts"][self.name] = entry
        self.results.put()
        return broke


def say(line: str) -> None:
    print(line, flush=True)
