"""The few installed libraries that programs and tests may import."""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence


def allow(libraries: Sequence[tuple[str, str]]) -> None:
    """Make these importable, each from its own folder; the folder around them stays out of sight."""
    sys.meta_path.append(_LibraryFinder(dict(libraries)))


class _LibraryFinder:
    """Finds the allowed libraries in their own folders; the folder around them stays out of sight."""

    def __init__(self, folders: dict[str, str]) -> None:
        self.folders = folders

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        """The module's specification, None for anything but an allowed library."""
        folder = self.folders.get(name)
        if folder is None:
            return None
        return importlib.util.spec_from_file_location(
            name, f"{folder}/__init__.py", submodule_search_locations=[folder]
        )
