"""Verification rules by name; a new rule is a class and a `RuleInfo` in its family's file."""

from __future__ import annotations

from cospec.engine.parameters import Parameter
from cospec.engine.rules import arbiter, cascades, constant, fixed, fuzzy, gates, judge, mentored, proposal, windowed
from cospec.engine.rules.arbiter import ArbiterRule, BlockScorer, BoundScorer
from cospec.engine.rules.base import Regions, RoundView, Rule, Verdict
from cospec.engine.rules.rows import Rows
from cospec.engine.rules.spec import RuleInfo, check_bonus, rule_of, split_specs

#: All there is to know of every rule, by name.
RULES: dict[str, RuleInfo] = {
    info.name: info
    for family in (constant, proposal, mentored, fixed, fuzzy, cascades, gates, windowed, judge, arbiter)
    for info in family.INFOS
}

__all__ = [
    "RULES",
    "ArbiterRule",
    "BlockScorer",
    "BoundScorer",
    "Parameter",
    "Regions",
    "RoundView",
    "Rows",
    "Rule",
    "RuleInfo",
    "Verdict",
    "check_bonus",
    "rule_named",
    "split_specs",
]


def rule_named(spec: str) -> Rule:
    """The rule that ``spec`` names: `NAME` or `NAME:param=value,param=value`; ValueError says what is wrong with it."""
    return rule_of(RULES, spec)
