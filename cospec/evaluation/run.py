"""The directory of an evaluation: every sample as it ends, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cospec.evaluation.method import Sample, sample_from_json
from cospec.jsonl import append_jsonl, drop_torn_tail, dumps, read_jsonl, write_json_atomic

SETTINGS, SAMPLES, RESULTS = "settings.json", "samples.jsonl", "results.json"


class EvalRun:
    """``settings`` holds what is common to all methods and, under "methods", what is particular to each.

    Samples are kept by method and belong to one settings file. Opening a directory whose settings differ in anything
    common, or in a method of the same name, raises ValueError that names the difference; other methods may be added.
    """

    def __init__(self, directory: Path, settings: Mapping[str, Any]) -> None:
        self.directory = directory
        wanted = json.loads(dumps(settings))
        path = directory / SETTINGS
        if path.exists():
            wanted = _merged(json.loads(path.read_text(encoding="utf-8")), wanted, directory)
        elif (directory / SAMPLES).exists():
            raise ValueError(f"{directory} holds {SAMPLES} without {SETTINGS}: it is no evaluation; name another --out")
        write_json_atomic(path, wanted)
        drop_torn_tail(directory / SAMPLES)

    def samples(self) -> dict[str, list[Sample]]:
        """All samples written so far, by method."""
        found: dict[str, list[Sample]] = defaultdict(list)
        path = self.directory / SAMPLES
        for row in read_jsonl(path) if path.exists() else ():
            found[str(row.pop("method", None))].append(sample_from_json(row))
        return dict(found)

    def add(self, method: str, sample: Sample) -> None:
        """Write one sample."""
        append_jsonl(self.directory / SAMPLES, [{"method": method} | sample.to_json()])

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary."""
        write_json_atomic(self.directory / RESULTS, summary)


def _merged(before: dict[str, Any], wanted: dict[str, Any], directory: Path) -> dict[str, Any]:
    methods = before["methods"] | wanted["methods"]
    differences = _differences(before | {"methods": {}}, wanted | {"methods": {}})
    for name in before["methods"].keys() & wanted["methods"].keys():
        lines = _differences(before["methods"][name], wanted["methods"][name])
        differences += [f"{name}.{line}" for line in lines]
    if differences:
        raise ValueError(
            f"{directory} holds an evaluation under other settings ({'; '.join(differences[:4])}): name another --out, "
            "or remove the directory"
        )
    return wanted | {"methods": methods}


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    keys = sorted(old.keys() | new.keys())
    return [f"{key} was {old.get(key)!r}, now {new.get(key)!r}" for key in keys if old.get(key) != new.get(key)]
