"""Rows that no text could be right for: found before anything is decoded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cospec.scoring.code.scorer import UnfitRowError, code_job
from cospec.scoring.custom import safe_score
from cospec.scoring.registry import is_built_in, scorer_for, scorer_of_task
from cospec.tasks.registry import is_task

_SHOWN = 3


def unfit_reason(scorer: str, row: Mapping[str, Any]) -> str | None:
    """Why no text can be judged by ``row``, None where one can; a user's own scorer is not asked.

    ``scorer`` is a scorer's or a task's name. ValueError where the package that it needs is missing.
    """
    if not is_built_in(scorer) and is_task(scorer):
        scorer = scorer_of_task(scorer)
    if scorer == "code":
        # Scoring would run a program, which needs consent.
        try:
            code_job("", row)
        except UnfitRowError as error:
            return str(error)
        return None
    if not is_built_in(scorer):
        return None
    # The scorers look at the row first, so that an empty text fails only where every text does.
    verdict = safe_score(scorer_for(scorer), "", row)
    return verdict.reason if verdict.is_failure else None


def require_readable_golds(rows: Iterable[Mapping[str, Any]], scorer: str) -> None:
    """ValueError that names the rows by whose gold answers ``scorer`` can judge no text."""
    unfit = [(row.get("id"), reason) for row in rows if (reason := unfit_reason(scorer, row)) is not None]
    if unfit:
        named = "; ".join(f"{id!r} ({reason})" for id, reason in unfit[:_SHOWN])
        more = f" and {len(unfit) - _SHOWN} more" if len(unfit) > _SHOWN else ""
        raise ValueError(f"scorer {scorer!r} cannot judge by these rows: {named}{more}: mend or remove them")
