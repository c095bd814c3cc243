"""Rules that need no arbiter: strict, never, always.

The target's token is already coupled with the draft's (method section 1, step 2), so a mismatch *is* a rejection of
lossless speculative sampling, and ``strict`` and ``never`` differ in nothing but their bonus form.
"""

from __future__ import annotations

from dataclasses import dataclass

from cospec.engine.record import Bonus
from cospec.engine.rules.base import RoundView, Verdict


@dataclass(frozen=True, slots=True)
class ConstantRule:
    """Keeps every mismatch or none."""

    name: str
    default_bonus: Bonus
    keep: bool
    drafts: bool = True

    def decide(self, view: RoundView) -> Verdict:
        keep = view.mismatch if self.keep else view.mismatch & False
        return Verdict(accept=view.match | keep, keep_probs=keep.float())


def strict() -> ConstantRule:
    """Lossless speculative sampling (Leviathan et al. 2023, Chen et al. 2023)."""
    return ConstantRule("strict", "target", keep=False)


def never() -> ConstantRule:
    """The arbiter that never keeps: target decoding, token for token."""
    return ConstantRule("never", "arbitrated", keep=False)


def always() -> ConstantRule:
    """The arbiter that always keeps: the ceiling of the speed, the draft's own text when the bonus is arbitrated."""
    return ConstantRule("always", "arbitrated", keep=True)


def target() -> ConstantRule:
    """Plain autoregressive decoding with the target: nothing is drafted, every round is one token."""
    return ConstantRule("target", "target", keep=False, drafts=False)
