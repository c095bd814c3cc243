"""Local copies of benchmarks: a directory with one folder per task, named by an environment variable."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "COSPEC_DATA"
"""Names the directory; a task's folder in it is read where neither a path nor a Hub revision is given."""


def local_copy(task: str) -> Path | None:
    """The folder of a task (`mgsm` for `mgsm:de`) in that directory, None where there is none.

    ValueError where the variable names no directory.
    """
    directory = os.environ.get(VARIABLE)
    if not directory:
        return None
    if not Path(directory).is_dir():
        raise ValueError(f"{VARIABLE} is {directory!r}, which is no directory: mend it, or unset it for the Hub's rows")
    folder = Path(directory) / task.partition(":")[0]
    return folder if folder.is_dir() else None
