"""What code made a result: package versions, and the revision where it runs from a checkout."""

from __future__ import annotations

import importlib.metadata
import subprocess
from collections.abc import Sequence
from pathlib import Path


def package_versions(packages: Sequence[str]) -> dict[str, str]:
    """Installed versions by name; packages that are not installed are left out."""
    return {name: version for name in packages if (version := _version(name))}


def git_state() -> dict[str, str] | None:
    """Revision and uncommitted diff of the code, where it runs from a checkout."""
    revision = _ask_git("rev-parse", "HEAD")
    return {"revision": revision, "diff": _ask_git("diff", "HEAD", "--", ".") or ""} if revision else None


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _ask_git(*words: str) -> str | None:
    folder = Path(__file__).parent
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
