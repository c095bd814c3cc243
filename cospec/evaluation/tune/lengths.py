"""Which K pays: tokens per round at every K from one run of strict, by the measured cost of a round at every K."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cospec.engine.cost import PassCosts
from cospec.engine.record import Rollout
from cospec.evaluation.comparison import Interval, mean_ratio
from cospec.evaluation.resampling import bootstrap_interval
from cospec.evaluation.tune.rounds import RoundCosts


@dataclass(frozen=True, slots=True)
class LengthGain:
    """What K draft tokens are worth: ``gain`` is tokens per round by ``round_cost``, a round in steps of the target.

    ``verification`` is a target pass over the block in the same steps. The interval of ``gain`` is over texts.
    """

    num_draft_tokens: int
    tokens_per_round: float
    verification: float
    round_cost: float
    gain: float
    gain_ci95: Interval | None

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return dataclasses.asdict(self) | {"gain_ci95": list(self.gain_ci95) if self.gain_ci95 else None}


def accepted_along(rollout: Rollout) -> list[bool]:
    """For each output token of a strict run, whether the draft's proposal for it was accepted.

    The proposals were made behind the committed text, so this is a property of the text and not of the blocks; only a
    target's bonus token was never proposed, and counts as accepted like the whole block before it.
    """
    found: list[bool] = []
    for block in rollout.blocks:
        written = len(block.emitted_ids) - block.accepted_len
        full = block.accepted_len == len(block.draft_ids)
        found += [True] * block.accepted_len + [full] * written
    return found


def num_rounds(accepted: Sequence[bool], num_draft_tokens: int) -> int:
    """Rounds in which strict writes such a text with blocks of ``num_draft_tokens``.

    A round commits what is accepted of its block and one token of the target's; exact for greedy texts.
    """
    rounds, place = 0, 0
    while place < len(accepted):
        block = accepted[place : place + num_draft_tokens]
        place += (block.index(False) if False in block else len(block)) + 1
        rounds += 1
    return rounds


def length_gains(probes: Sequence[Rollout], passes: PassCosts, rounds: RoundCosts) -> list[LengthGain]:
    """The gain of strict over the target alone at every K of ``rounds``, from texts drafted with the longest one.

    Expected tokens over expected cost (Leviathan et al. 2023, 3.5), the tokens counted along the texts instead of taken
    from a constant chance, and the cost measured instead of ``1 + K c_rel``: on many machines verification is not free.
    """
    texts = [accepted_along(rollout) for rollout in probes]
    found = []
    for k, seconds in rounds.round_s.items():
        columns = np.array([(len(text), num_rounds(text, k)) for text in texts], dtype=np.float64)
        per_round, cost = float(mean_ratio(columns.mean(0))), seconds / rounds.step_s
        interval = bootstrap_interval(columns, mean_ratio)
        bounds = (interval[0] / cost, interval[1] / cost) if interval else None
        found.append(LengthGain(k, per_round, passes.verification(k), cost, per_round / cost, bounds))
    return found


def best_gain(gains: Sequence[LengthGain]) -> LengthGain:
    """The K with the largest gain, the shortest of equals."""
    return max(gains, key=lambda entry: (entry.gain, -entry.num_draft_tokens))


def near_best(gains: Sequence[LengthGain], share: float = 0.02) -> list[int]:
    """Every K whose gain is within ``share`` of the best: there is nothing to choose between them."""
    best = best_gain(gains).gain
    return [entry.num_draft_tokens for entry in gains if entry.gain >= (1 - share) * best]


def as_json(gains: Sequence[LengthGain], passes: PassCosts, rounds: RoundCosts) -> Mapping[str, Any]:
    """All that decided K; ``c_rel`` with all that the engine does around its passes, whatever drafts."""
    return {
        "c_rel": rounds.c_rel,
        "target_pass": {str(width): seconds / passes.target_s[1] for width, seconds in passes.target_s.items()},
        "step_s": rounds.step_s,
        "lengths": [entry.to_json() for entry in gains],
    }
