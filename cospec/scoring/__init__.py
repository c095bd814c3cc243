"""From a text to a verdict with a reason; imports no torch."""

from cospec.scoring.custom import load_scorer, safe_score
from cospec.scoring.registry import scorer_for
from cospec.scoring.verdict import UserScorer, Verdict

__all__ = ["UserScorer", "Verdict", "load_scorer", "safe_score", "scorer_for"]
