"""Local copies of benchmarks: a directory with one folder per task, named by an environment variable."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "COSPEC_DATA"
"""Names the directory; a task's folder in it is read where neither a path nor a Hub revision is given."""


def local_copy(task: str) -> Path | None:
    """The folder of a task (`mgsm` for `mgsm:de`) in that directory, None where there is none."""
    directory = os.environ.get(VARIABLE)
    folder = Path(directory) / task.partition(":")[0] if directory else None
    return folder if folder is not None and folder.is_dir() else None
