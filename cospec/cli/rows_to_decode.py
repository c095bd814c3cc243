"""The rows of `cospec generate` and `cospec rollout`."""

from __future__ import annotations

from pathlib import Path

import typer

from cospec.prompt_rows import PromptRow, load_prompt_rows

#: Fields whose names promise what only an option, or a `Request` in Python, does.
_LIKE_OPTIONS = (
    *("max_new_tokens", "max_tokens", "temperature", "top_k", "top_p", "min_p"),
    *("repetition_penalty", "seed", "stop", "sampling"),
)


def rows_to_decode(path: Path) -> list[PromptRow]:
    """All rows; fields that look like settings of a row are said to be none, in one line on stderr."""
    rows = load_prompt_rows(path, require_gold=False)
    if fields := [name for name in _LIKE_OPTIONS if any(name in row.extra for row in rows)]:
        typer.echo(
            f"cospec: {path}: the rows' {', '.join(fields)} do not change how they are decoded, the options do, for "
            "all rows alike (in Python each `Request` takes its own)",
            err=True,
        )
    return rows
