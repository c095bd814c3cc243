"""A task as an evaluation takes it: rows and the scorer that judges them."""

from __future__ import annotations

from dataclasses import dataclass

from cospec.prompt_rows import PromptRow
from cospec.scoring import UserScorer


@dataclass(frozen=True, slots=True)
class EvalTask:
    """``scores_in_parallel`` says that the scorer may be called from several threads at once."""

    name: str
    rows: tuple[PromptRow, ...]
    scorer: UserScorer
    scorer_name: str = ""
    scores_in_parallel: bool = False
