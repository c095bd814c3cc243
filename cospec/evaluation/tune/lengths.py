"""Which K pays: tokens per round of strict at every K, by the measured cost of a round at every K."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cospec.engine.cost import PassCosts
from cospec.engine.metrics import acceptance, ratio
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
    """For each output token of a strict run with the draft model, whether the proposal for it was accepted.

    The model proposes behind the committed text, whatever the blocks are, so this is a property of the text. Only a
    bonus token behind a whole block was never proposed; it counts as accepted like the block before it. A shorter block
    ends where the text or the draft's context does, and behind it any block would.
    """
    found: list[bool] = []
    for block in rollout.blocks:
        written = len(block.emitted_ids) - block.accepted_len
        whole = block.accepted_len == rollout.settings.num_draft_tokens
        found += [True] * block.accepted_len + [whole] * written
    return found


def num_rounds(accepted: Sequence[bool], num_draft_tokens: int) -> int:
    """Rounds in which strict writes such a text with blocks of ``num_draft_tokens``.

    A round commits what is accepted of its block and one token of the target's. Exact for greedy texts, but for bonus
    tokens that were never proposed.
    """
    rounds, place = 0, 0
    while place < len(accepted):
        block = accepted[place : place + num_draft_tokens]
        place += (block.index(False) if False in block else len(block)) + 1
        rounds += 1
    return rounds


def rounds_along(rollout: Rollout, num_draft_tokens: int) -> int:
    """Rounds in which the draft model and strict would write this text with shorter blocks than its own."""
    accepted = accepted_along(rollout)
    assert num_rounds(accepted, rollout.settings.num_draft_tokens) == rollout.num_rounds, "not the run's own rounds"
    return num_rounds(accepted, num_draft_tokens)


def share_accepted(rollouts: Sequence[Rollout]) -> float | None:
    """Accepted by decided draft tokens, those behind a rejection left out; None where nothing was drafted."""
    accepted = sum(rollout.num_accepted for rollout in rollouts)
    blocks = [block for rollout in rollouts for block in rollout.blocks]
    rejected = sum(block.accepted_len < min(len(block.draft_ids), len(block.emitted_ids)) for block in blocks)
    return ratio(accepted, accepted + rejected)


def length_gains(probes: Mapping[int, Sequence[Rollout]], passes: PassCosts, rounds: RoundCosts) -> list[LengthGain]:
    """The gain of strict over the target alone at every K of ``rounds``, from its texts by their K.

    A K without texts is read off those of the largest, which only texts of the draft model allow: what another drafter
    proposes at a place may depend on where the block began, or be nothing.

    Expected tokens over expected cost (Leviathan et al. 2023, 3.5), the tokens counted instead of taken from a constant
    chance, and the cost measured instead of ``1 + K c_rel``: on many machines verification is not free.
    """
    found = []
    for k, seconds in rounds.round_s.items():
        texts = [(one, one.num_rounds) for one in probes.get(k, ())]
        texts = texts or [(one, rounds_along(one, k)) for one in probes[max(probes)]]
        columns = np.array([(len(one.output_ids), num) for one, num in texts], dtype=np.float64)
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


def as_json(
    gains: Sequence[LengthGain],
    probes: Mapping[int, Sequence[Rollout]],
    passes: PassCosts,
    rounds: RoundCosts,
    c_rel: float,
) -> Mapping[str, Any]:
    """All that decided K, and what was accepted of the longest blocks."""
    longest = max(probes)
    found = acceptance(probes[longest])
    return {
        "c_rel": c_rel,
        "target_pass": {str(width): seconds / passes.target_s[1] for width, seconds in passes.target_s.items()},
        "step_s": rounds.step_s,
        "cpu_share": rounds.cpu_share,
        "num_runs": rounds.num_runs,
        "lengths": [entry.to_json() for entry in gains],
        "acceptance": {
            "num_draft_tokens": longest,
            "acceptance_rate": found.acceptance_rate,
            "l_accept": found.l_accept,
            "mean_acceptance_length": found.mean_acceptance_length,
            "acceptance_by_position": found.acceptance_by_position if found.num_drafts else [],
        },
    }
