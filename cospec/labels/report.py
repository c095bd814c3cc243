"""The complementarity report: on which side of the mismatches the right answers lie (Proposition 3.1 of the paper)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cospec.labels.record import RolloutLabels


@dataclass(frozen=True, slots=True)
class Complementarity:
    """Counts over scored mismatches; an oracle arbiter beats the target exactly where ``only_draft`` is not 0."""

    num_mismatches: int
    only_draft: int
    only_target: int
    both: int
    none: int
    num_failed: int

    def shares(self) -> dict[str, float]:
        """The four counts as shares of the scored mismatches."""
        total = max(1, self.num_mismatches)
        names = ("only_draft", "only_target", "both", "none")
        return {name: getattr(self, name) / total for name in names}


def complementarity(rows: Iterable[RolloutLabels]) -> Complementarity:
    """Count the outcomes of both branches over all labelled mismatches."""
    outcomes = [(label.draft_right, label.target_right) for row in rows for label in row.labels]
    scored = [outcome for outcome in outcomes if None not in outcome]
    return Complementarity(
        num_mismatches=len(scored),
        only_draft=scored.count((True, False)),
        only_target=scored.count((False, True)),
        both=scored.count((True, True)),
        none=scored.count((False, False)),
        num_failed=len(outcomes) - len(scored),
    )
