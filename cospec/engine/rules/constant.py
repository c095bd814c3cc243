"""Rules that need no arbiter and no rows: strict, never, always, target.

The target's token is already coupled with the draft's (method section 1, step 2), so a mismatch *is* a rejection of
lossless speculative sampling, and ``strict`` and ``never`` differ in nothing but their bonus form.
"""

from __future__ import annotations

from dataclasses import dataclass

from cospec.engine.record import Bonus
from cospec.engine.rules.base import RoundView, Rule, Verdict
from cospec.engine.rules.spec import RuleInfo


@dataclass(frozen=True, slots=True)
class ConstantRule(Rule):
    """Keeps every mismatch or none."""

    name: str
    default_bonus: Bonus
    keep: bool
    drafts: bool = True

    def decide(self, view: RoundView) -> Verdict:
        keep = view.mismatch if self.keep else view.mismatch & False
        return Verdict(accept=view.match | keep, keep_probs=keep.float())


class LosslessRule(ConstantRule):
    """Keeps no mismatch: its own law of a bonus is the target's, so that `bonus: rule` writes the target's token."""

    has_own_bonus = True
    own_bonus_reads_draft = False


def strict() -> ConstantRule:
    """Lossless speculative sampling (Leviathan et al. 2023, Chen et al. 2023)."""
    return LosslessRule("strict", "target", keep=False)


def never() -> ConstantRule:
    """The arbiter that never keeps: target decoding, token for token."""
    return LosslessRule("never", "arbitrated", keep=False)


def always() -> ConstantRule:
    """The arbiter that always keeps: the ceiling of the speed, the draft's own text when the bonus is arbitrated."""
    return ConstantRule("always", "arbitrated", keep=True)


def target() -> ConstantRule:
    """Plain autoregressive decoding with the target: nothing is drafted, every round is one token."""
    return ConstantRule("target", "target", keep=False, drafts=False)


INFOS = (
    RuleInfo(
        name="target",
        summary="The target alone: nothing is drafted, every round is one token.",
        formula="y ~ p",
        source="",
        greedy="argmax p",
        drafters="none",
        make=target,
        strict_point="target",
    ),
    RuleInfo(
        name="strict",
        summary="Lossless speculative sampling: the text has exactly the target's law.",
        formula="accept with probability min(1, p/q), else y ~ norm([p - q]+)",
        source="Leviathan et al. 2023 (2211.17192), Chen et al. 2023 (2302.01318)",
        greedy="accept the argmax of p only: the target's own text, token for token",
        drafters="any",
        make=strict,
        strict_point="strict",
    ),
    RuleInfo(
        name="never",
        summary="Strict with an arbitrated bonus: the arbiter that never keeps.",
        formula="as strict; the token behind a full block is a draft token like any other",
        source="CoSpec's control",
        greedy="as strict",
        drafters="any",
        make=never,
        strict_point="never",
    ),
    RuleInfo(
        name="always",
        summary="Keeps every draft token: the draft's own text, the ceiling of the speed.",
        formula="accept",
        source="CoSpec's control",
        greedy="accept everything",
        drafters="any",
        make=always,
        relaxed_point="everywhere",
    ),
)
