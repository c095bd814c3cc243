"""Rows of a data set on the Hugging Face Hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any


def hub_split(repo: str, config: str | None, split: str, revision: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rows of one split with their positions from 1, through `datasets`; ValueError says why they cannot be had."""
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise ValueError(
            "rows from the Hub need the package datasets: pip install 'cospec[eval]', or give local rows with --data"
        ) from error
    try:
        rows = load_dataset(repo, config, split=split, revision=revision)
    # OSError covers a missing or gated data set and a missing connection.
    except (OSError, ValueError, RuntimeError) as error:
        raise _not_to_be_had(repo, revision, error) from error
    yield from enumerate(rows, start=1)


def hub_file(repo: str, name: str, revision: str) -> Path:
    """A file of a data set repository as it lies there, from the cache or fetched."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repo, name, repo_type="dataset", revision=revision))
    except (OSError, ValueError) as error:
        raise _not_to_be_had(f"{repo}/{name}", revision, error) from error


def _not_to_be_had(what: str, revision: str, error: Exception) -> ValueError:
    reason = str(error).strip().split("\n")[0]
    return ValueError(
        f"cannot read {what} at revision {revision} from the Hub ({type(error).__name__}: {reason}): check the "
        "connection (a gated data set needs `hf auth login`), or give local rows with --data"
    )
