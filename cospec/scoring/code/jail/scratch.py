"""The scratch directory: how full it is, and how to be rid of it whatever a program built in it."""

import contextlib
import itertools
import os
import stat
from collections.abc import Iterator


def is_over(path: str, max_bytes: int, max_files: int) -> bool:
    """Whether the files beneath ``path`` are more, or larger in sum, than allowed."""
    num_bytes = 0
    for number, entry in enumerate(_walk(path)):
        # A file of many holes counts by what it fills.
        with contextlib.suppress(OSError):
            num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
        if number >= max_files or num_bytes > max_bytes:
            return True
    return False


def _walk(path: str) -> Iterator["os.DirEntry[str]"]:
    folders = [path]
    while folders:
        # Removed, or locked, since it was seen.
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)


def remove(path: str) -> None:
    """Remove the directory and all beneath it, however deep: what lies deeper is moved to the top first.

    Symbolic links are removed, never followed. OSError when something cannot be removed.
    """
    names = (os.path.join(path, f"moved-{number}") for number in itertools.count())
    os.chmod(path, stat.S_IRWXU)
    while entries := list(os.scandir(path)):
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _empty_into(entry.path, names)
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)
    os.rmdir(path)


def _empty_into(folder: str, free_names: Iterator[str]) -> None:
    os.chmod(folder, stat.S_IRWXU)
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, stat.S_IRWXU)
            os.rename(entry.path, next(name for name in free_names if not os.path.lexists(name)))
        else:
            os.unlink(entry.path)
