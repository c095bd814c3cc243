"""Verification rules by name; a new rule is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from cospec.engine.rules.arbiter import ArbiterRule, BlockScorer, BoundScorer
from cospec.engine.rules.base import Regions, RoundView, Rule, Verdict
from cospec.engine.rules.constant import always, never, strict, target

#: Rules that need nothing but their name. ``arbiter`` needs a scorer: build `ArbiterRule` with one.
RULES: dict[str, Callable[[], Rule]] = {"target": target, "strict": strict, "never": never, "always": always}

__all__ = [
    "RULES",
    "ArbiterRule",
    "BlockScorer",
    "BoundScorer",
    "Regions",
    "RoundView",
    "Rule",
    "Verdict",
    "rule_named",
]


def rule_named(name: str) -> Rule:
    """The rule of that name; ValueError lists the names there are."""
    if name == "arbiter":
        raise ValueError("rule 'arbiter' needs an arbiter: give its directory with --arbiter DIR")
    if name not in RULES:
        raise ValueError(f"there is no rule {name!r}: choose one of {', '.join([*RULES, 'arbiter'])}")
    return RULES[name]()
