"""Rewards and advantages: pure functions on rollout records and verdicts; imports no torch."""

from cospec.rewards.config import RewardConfig
from cospec.rewards.group import GroupResult, GroupStats, group_advantages, group_scales
from cospec.rewards.signal import decision_signal, kappa, rollout_reward, wrong_terms
from cospec.rewards.span import accepted_span

__all__ = [
    "GroupResult",
    "GroupStats",
    "RewardConfig",
    "accepted_span",
    "decision_signal",
    "group_advantages",
    "group_scales",
    "kappa",
    "rollout_reward",
    "wrong_terms",
]
