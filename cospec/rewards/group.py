"""Advantages of the G rollouts of one prompt: the group scale (method section 4, ours)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cospec.rewards.config import RewardConfig
from cospec.rewards.signal import decision_signal, rollout_reward, wrong_terms
from cospec.rewards.span import accepted_span
from cospec.scoring.verdict import Verdict

if TYPE_CHECKING:
    from cospec.engine.record import Rollout

# A spread or an advantage below this is rounding, not a signal.
_NOISE = 1e-9


@dataclass(frozen=True, slots=True)
class GroupStats:
    """Sums and counts of groups; add them over groups and ranks, then divide. Failed rollouts are in num_failed only.

    ``rho_sum`` and ``reward_sum`` are over num_right + num_wrong rollouts, ``risk_sum`` and ``fallback_sum`` over
    ``num_wrong_decisions`` decisions, ``num_kept`` is out of ``num_decisions``.
    """

    num_groups: int = 0
    num_zero_variance: int = 0
    num_right: int = 0
    num_wrong: int = 0
    num_failed: int = 0
    num_without_decision: int = 0
    num_decisions: int = 0
    num_kept: int = 0
    num_wrong_decisions: int = 0
    rho_sum: float = 0.0
    reward_sum: float = 0.0
    risk_sum: float = 0.0
    fallback_sum: float = 0.0

    def __add__(self, other: GroupStats) -> GroupStats:
        return GroupStats(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class GroupResult:
    """One group, in the order of its rollouts.

    ``advantages`` has one list per rollout with an entry per executed decision (zeros for a failed rollout);
    ``rewards`` is the scalar reading, None for a failed rollout; ``zero_variance`` says that no decision of the group
    has a non-zero advantage, so that nothing is learnt from it.
    """

    advantages: list[list[float]]
    rewards: list[float | None]
    zero_variance: bool
    stats: GroupStats

    @property
    def num_failed(self) -> int:
        return self.stats.num_failed


def group_advantages(rollouts: Sequence[Rollout], verdicts: Sequence[Verdict], config: RewardConfig) -> GroupResult:
    """Score the rollouts of one prompt against each other.

    Decision reading: A = s * u with s+ = sqrt(n-/n+), s- = sqrt(n+/n-) when some are right and some wrong; else A = u
    minus the mean of u over all decisions of the group. Rollout reading: the z-score (population standard deviation) of
    the scalar rewards. A rollout whose scorer failed leaves n+, n- and G and gets advantage 0. One without a decision
    counts among right and wrong, and has nothing to learn from.
    """
    assert len(rollouts) == len(verdicts), f"{len(rollouts)} rollouts with {len(verdicts)} verdicts"
    scored = [index for index, verdict in enumerate(verdicts) if not verdict.is_failure]
    rewards: list[float | None] = [None] * len(rollouts)
    for index in scored:
        rewards[index] = rollout_reward(rollouts[index], verdicts[index].is_right, config)
    advantages = [[0.0] * len(rollout.decisions) for rollout in rollouts]
    scale = _scaled_signals if config.reading == "decision" else _z_scores
    values_of_scored = scale(
        [rollouts[index] for index in scored], [verdicts[index].is_right for index in scored], config
    )
    for index, values in zip(scored, values_of_scored, strict=True):
        advantages[index] = values
    zero_variance = not any(abs(value) > _NOISE for values in advantages for value in values)
    stats = _stats(rollouts, verdicts, rewards, zero_variance, config)
    return GroupResult(advantages=advantages, rewards=rewards, zero_variance=zero_variance, stats=stats)


def group_scales(num_right: int, num_wrong: int) -> tuple[float, float]:
    """(s+, s-), what a z-score gives for a 0/1 reward: n+ s+ = n- s-. Both are 1 if the group is not mixed."""
    if num_right == 0 or num_wrong == 0:
        return 1.0, 1.0
    return math.sqrt(num_wrong / num_right), math.sqrt(num_right / num_wrong)


def _scaled_signals(rollouts: Sequence[Rollout], right: Sequence[bool], config: RewardConfig) -> list[list[float]]:
    signals = [decision_signal(rollout, ok, config) for rollout, ok in zip(rollouts, right, strict=True)]
    num_right = sum(right)
    if 0 < num_right < len(right):
        scale_right, scale_wrong = group_scales(num_right, len(right) - num_right)
        scales = [scale_right if ok else scale_wrong for ok in right]
        return [[scale * u for u in signal] for scale, signal in zip(scales, signals, strict=True)]
    flat = [u for signal in signals for u in signal]
    mean = sum(flat) / max(1, len(flat))
    return [[u - mean for u in signal] for signal in signals]


def _z_scores(rollouts: Sequence[Rollout], right: Sequence[bool], config: RewardConfig) -> list[list[float]]:
    values = [rollout_reward(rollout, ok, config) for rollout, ok in zip(rollouts, right, strict=True)]
    mean = sum(values) / max(1, len(values))
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / max(1, len(values)))
    scores = [(value - mean) / deviation if deviation > _NOISE else 0.0 for value in values]
    return [[score] * len(rollout.decisions) for score, rollout in zip(scores, rollouts, strict=True)]


def _stats(
    rollouts: Sequence[Rollout],
    verdicts: Sequence[Verdict],
    rewards: Sequence[float | None],
    zero_variance: bool,
    config: RewardConfig,
) -> GroupStats:
    total = GroupStats(num_groups=1, num_zero_variance=int(zero_variance))
    for rollout, verdict, reward in zip(rollouts, verdicts, rewards, strict=True):
        if reward is None:
            total += GroupStats(num_failed=1)
            continue
        wrong = None if verdict.is_right else wrong_terms(rollout, config)
        total += GroupStats(
            num_right=int(verdict.is_right),
            num_wrong=int(not verdict.is_right),
            num_without_decision=int(not rollout.decisions),
            num_decisions=len(rollout.decisions),
            num_kept=rollout.num_kept,
            num_wrong_decisions=wrong.num_decisions if wrong else 0,
            rho_sum=accepted_span(rollout),
            reward_sum=reward,
            risk_sum=wrong.risk if wrong else 0.0,
            fallback_sum=wrong.fallback if wrong else 0.0,
        )
    return total
