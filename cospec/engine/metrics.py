"""Acceptance over many rollouts, as sums and counts that can be added, and the ratios people compare (vLLM's terms)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest

from cospec.engine.record import Rollout


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Sums over rollouts; the counters are those of method section 1.

    ``accepted_at[i]`` counts the rounds in which the draft token at position i was committed.
    """

    num_rollouts: int = 0
    num_tokens: int = 0
    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    num_mismatches: int = 0
    num_kept: int = 0
    num_truncated: int = 0
    accepted_at: tuple[int, ...] = ()

    def __add__(self, other: Acceptance) -> Acceptance:
        counts = {name: getattr(self, name) + getattr(other, name) for name in self.__slots__[:-1]}
        places = zip_longest(self.accepted_at, other.accepted_at, fillvalue=0)
        return Acceptance(**counts, accepted_at=tuple(a + b for a, b in places))

    @property
    def tokens_per_round(self) -> float | None:
        """Output tokens by rounds, the bonus included; a round is one target pass."""
        return ratio(self.num_tokens, self.num_rounds)

    @property
    def acceptance_rate(self) -> float | None:
        """vLLM's draft acceptance rate: accepted by drafted tokens."""
        return ratio(self.num_accepted, self.num_drafted)

    @property
    def mean_acceptance_length(self) -> float | None:
        """vLLM's: 1 + accepted tokens by rounds. Only where a bonus follows is it a number of tokens."""
        length = ratio(self.num_accepted, self.num_rounds)
        return None if length is None else 1 + length

    @property
    def acceptance_by_position(self) -> list[float]:
        """vLLM's per-position rate: of all rounds, the share that committed the draft token at this position."""
        return [count / self.num_rounds for count in self.accepted_at]

    @property
    def keep_rate(self) -> float | None:
        """Kept by executed mismatches."""
        return ratio(self.num_kept, self.num_mismatches)


def acceptance(rollouts: Iterable[Rollout]) -> Acceptance:
    """The sums of these rollouts."""
    return sum((_of_one(rollout) for rollout in rollouts), Acceptance())


def ratio(part: float, whole: float) -> float | None:
    """``part / whole``, None where there is nothing to divide by."""
    return part / whole if whole else None


def _of_one(rollout: Rollout) -> Acceptance:
    longest = max((block.accepted_len for block in rollout.blocks), default=0)
    return Acceptance(
        num_rollouts=1,
        num_tokens=len(rollout.output_ids),
        num_rounds=rollout.num_rounds,
        num_drafted=rollout.num_drafted,
        num_accepted=rollout.num_accepted,
        num_mismatches=rollout.num_mismatches,
        num_kept=rollout.num_kept,
        num_truncated=int(rollout.finish_reason == "length"),
        accepted_at=tuple(sum(block.accepted_len > i for block in rollout.blocks) for i in range(longest)),
    )
