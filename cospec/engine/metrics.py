"""Acceptance over many rollouts, as sums that can be added, the ratios people compare (vLLM's terms), and the speed
that the acceleration model makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from cospec.engine.record import Rollout


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Sums over rollouts; the counters are those of method section 1.

    ``num_drafts`` counts the rounds in which anything was drafted (vLLM's counter), ``accepted_at[i]`` those in which
    the draft token at position i was committed.
    """

    num_rollouts: int = 0
    num_tokens: int = 0
    num_rounds: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    num_mismatches: int = 0
    num_kept: int = 0
    num_truncated: int = 0
    num_drafts: int = 0
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
    def l_accept(self) -> float | None:
        """Accepted draft tokens by rounds; a target bonus is not counted, a round without a draft is a round."""
        return ratio(self.num_accepted, self.num_rounds)

    @property
    def mean_acceptance_length(self) -> float | None:
        """vLLM's: 1 + accepted tokens by drafts. Only where a bonus follows is it a number of tokens."""
        length = ratio(self.num_accepted, self.num_drafts)
        return None if length is None else 1 + length

    @property
    def acceptance_by_position(self) -> list[float]:
        """vLLM's per-position acceptance rate: of all drafts, the share that committed the token at this position."""
        return [count / self.num_drafts for count in self.accepted_at]

    @property
    def accepted_lengths(self) -> list[int]:
        """The histogram of accepted lengths: entry i counts the drafts of which i tokens were committed."""
        reached = (self.num_drafts, *self.accepted_at, 0)
        return [here - further for here, further in pairwise(reached)] if self.num_drafts else []

    @property
    def keep_rate(self) -> float | None:
        """Kept by executed mismatches."""
        return ratio(self.num_kept, self.num_mismatches)


def acceptance(rollouts: Iterable[Rollout]) -> Acceptance:
    """The sums of these rollouts."""
    return sum((_of_one(rollout) for rollout in rollouts), Acceptance())


@dataclass(frozen=True, slots=True)
class Acceleration:
    """How many times as soon as plain target decoding a method is done, as a model of the cost of a round has it.

    ``length`` is the target's mean text length by the method's, 1 in expectation for a lossless rule; ``rounds`` is
    tokens per round by the cost of a round, ``1 + N c_rel`` (Leviathan et al. 2023; Xia et al. 2026, S_relax).
    """

    length: float
    rounds: float

    @property
    def speedup(self) -> float:
        """Both factors together; to be compared with the target's seconds by the method's on the same problems."""
        return self.length * self.rounds


def acceleration(method: Acceptance, target: Acceptance, num_steps: float, c_rel: float) -> Acceleration | None:
    """The model's speed-up of a method over the target alone; None where either wrote nothing.

    Both are sums over the same samples: ratios are of pooled means. ``num_steps`` is N, the draft steps of a round (K,
    or K + 1 with an arbitrated bonus); ``c_rel`` a draft step's time by that of a target step of *one* token. The model
    takes verification to cost one such step and leaves out prefill, sampling and an arbiter's pass. Tokens per round
    are counted; the paper's ``l_accept + 1`` differs by what last rounds lack, and where the bonus is arbitrated.
    """
    assert method.num_rollouts == target.num_rollouts, "a ratio over other samples than the target's"
    per_round = method.tokens_per_round
    if not per_round or not target.num_tokens:
        return None
    return Acceleration(target.num_tokens / method.num_tokens, per_round / (1 + num_steps * c_rel))


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
        num_drafts=sum(bool(block.draft_ids) for block in rollout.blocks),
        accepted_at=tuple(sum(block.accepted_len > i for block in rollout.blocks) for i in range(longest)),
    )
