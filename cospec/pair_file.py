"""PAIR.yaml files and the bundled pair by name."""

from __future__ import annotations

from pathlib import Path

from cospec.pair import PairSpec


def read_pair_spec(
    path: str, device: str | None = None, dtype: str | None = None, attn: str | None = None
) -> PairSpec:
    from cospec.cli.loading import read_pair_spec as read

    return read(Path(path), None, None, device, dtype, attn)
