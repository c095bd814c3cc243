"""Where the benchmark files lie; tests that need them skip without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def benchmark(name: str) -> Path:
    """The directory of one benchmark below COSPEC_DATA."""
    root = os.environ.get("COSPEC_DATA")
    if root is None:
        pytest.skip("COSPEC_DATA is not set: no benchmark files")
    return Path(root) / name
