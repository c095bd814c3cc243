"""The signal of one rollout, per decision or as one scalar, and its terms for the log (method section 4, ours)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cospec.rewards.config import RewardConfig
from cospec.rewards.span import accepted_span

if TYPE_CHECKING:
    from cospec.engine.record import Decision, Rollout


def kappa(prob: float, tau: float, p_min: float) -> float:
    """clip(log(tau / p) / log(tau / p_min), 0, 1): 0 at p >= tau, 1 at p <= p_min, and at p = 0.

    ``prob`` is the target's probability of the draft's token, softmax at temperature 1 before any processing.
    """
    assert 0.0 <= prob <= 1.0 + 1e-6, f"{prob} is no probability"
    if prob <= p_min:
        return 1.0
    return min(1.0, max(0.0, math.log(tau / prob) / math.log(tau / p_min)))


@dataclass(frozen=True, slots=True)
class WrongTerms:
    """Risk and fallback of one wrong rollout, summed over its executed decisions; divide by ``num_decisions``.

    ``risk`` is the sum of lambda_risk * kappa over kept mismatches, ``fallback`` lambda_fb times the others' number.
    """

    risk: float
    fallback: float
    num_kept: int
    num_decisions: int


def wrong_terms(rollout: Rollout, config: RewardConfig) -> WrongTerms:
    """The two penalties that a wrong rollout earns, apart from each other."""
    decisions = rollout.decisions
    num_kept = sum(decision.kept for decision in decisions)
    return WrongTerms(
        risk=sum(_risk(decision, config) for decision in decisions if decision.kept),
        fallback=config.lambda_fb * (len(decisions) - num_kept),
        num_kept=num_kept,
        num_decisions=len(decisions),
    )


def decision_signal(rollout: Rollout, is_right: bool, config: RewardConfig) -> list[float]:
    """u of every executed decision, in order.

    Right: u = 1 + alpha * rho. Wrong: u = -(c_keep + lambda_risk * kappa) for a kept mismatch, -lambda_fb for a
    fallback.
    """
    if is_right:
        return [1.0 + config.alpha * accepted_span(rollout)] * len(rollout.decisions)
    return [
        -(config.c_keep + _risk(decision, config)) if decision.kept else -config.lambda_fb
        for decision in rollout.decisions
    ]


def rollout_reward(rollout: Rollout, is_right: bool, config: RewardConfig) -> float:
    """The scalar reading: 1 + alpha * rho if right, else -(lambda_risk * mean kappa + lambda_fb * reject share).

    Both means are over all executed decisions, a fallback having no risk, so that with c_keep = 0 the scalar is the
    mean of `decision_signal`. A wrong rollout without a decision earns 0.
    """
    if is_right:
        return 1.0 + config.alpha * accepted_span(rollout)
    terms = wrong_terms(rollout, config)
    return 0.0 - (terms.risk + terms.fallback) / max(1, terms.num_decisions)


def _risk(decision: Decision, config: RewardConfig) -> float:
    return config.lambda_risk * kappa(decision.target_prob_of_draft, config.tau, config.p_min)
