"""PAIR.yaml files, and the bundled pair by its name."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from cospec.config import load_config
from cospec.pair import ModelSpec, PairSpec

#: The name by which the bundled pair goes, in place of a file.
TINY = "tiny"
TINY_DIRECTORY = Path(__file__).parent / "assets" / "tiny"


def read_pair_file(path: str | Path) -> PairSpec:
    """The pair that a PAIR.yaml describes; `tiny` is the bundled one.

    Relative model paths count from the file's own folder where they exist there. ValueError for what cannot be read.
    """
    if str(path) == TINY:
        return _bundled_pair()
    if Path(path).is_dir():
        raise ValueError(
            f"--pair {str(path)!r} is a directory: name a PAIR.yaml, or give models with --draft MODEL --target MODEL"
        )
    if not Path(path).is_file():
        raise ValueError(f"pair file {str(path)!r} does not exist: name a PAIR.yaml, or {TINY!r}, the bundled pair")
    return _relative_to(load_config(PairSpec, path, []), Path(path).parent)


def override(spec: PairSpec, device: str | None = None, dtype: str | None = None, attn: str | None = None) -> PairSpec:
    """The same pair with these in place of what it says of both models; ValueError for a path that does not exist."""
    given = {"device": device, "dtype": dtype, "attn": attn}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    # A device of the caller's replaces the file's whole placement.
    changes |= {"device_map": None} if device else {}
    models: dict[str, Any] = {role: dataclasses.replace(model, **changes) for role, model in spec.models.items()}
    for role, model in models.items():
        _require_local(model, role)
    return dataclasses.replace(spec, **models)


def _bundled_pair() -> PairSpec:
    if not (TINY_DIRECTORY / "target").is_dir():
        raise ValueError(
            f"the bundled pair is not in this installation ({TINY_DIRECTORY} is missing): build it with "
            "`python -m data.tiny_pair.build`, or name another pair"
        )
    return PairSpec(ModelSpec(str(TINY_DIRECTORY / "draft")), ModelSpec(str(TINY_DIRECTORY / "target")))


def _relative_to(spec: PairSpec, folder: Path) -> PairSpec:
    models: dict[str, Any] = {}
    for role, model in spec.models.items():
        beside = folder / Path(model.path).expanduser()
        models[role] = dataclasses.replace(model, path=str(beside)) if beside.exists() else model
    return dataclasses.replace(spec, **models)


def _require_local(model: ModelSpec, role: str) -> None:
    """A name that can only be a path must exist: looking for it on the Hub would end in a riddle, and late."""
    path = model.path
    is_path = path.startswith((".", "/", "~")) or path.count("/") > 1 or path.endswith(".gguf")
    if is_path and not Path(path).exists():
        raise ValueError(
            f"the {role}'s path {path!r} does not exist (looked in {Path.cwd()}): give a model directory, a GGUF file "
            "or a Hub id"
        )
