"""What a round of the engine costs at every K, passes and all that is around them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cospec.engine.decode import Engine
from cospec.engine.record import Bonus, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.pair import Pair

_REPEATS = 3
#: Rounds of a timed run at least, whatever is accepted.
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """Seconds of a row's share of a round: ``step_s`` of the target alone, ``round_s`` of strict by K."""

    step_s: float
    round_s: Mapping[int, float]


def measure_rounds(
    pair: Pair,
    requests: Sequence[Request],
    lengths: Sequence[int],
    sampling: Sampling,
    *,
    batch_size: int,
    bonus: Bonus = "target",
) -> RoundCosts:
    """Medians of 3 short runs of each, taking turns, on the first ``batch_size`` of ``requests``.

    ``bonus`` is the form whose rounds are timed: an arbitrated bonus drafts one token more.
    """
    rows = requests[:batch_size]
    found: dict[int, list[float]] = {k: [] for k in (0, *lengths)}
    for _ in range(_REPEATS + 1):
        for k, times in found.items():
            times.append(_round_s(pair, rows, k, sampling, bonus))
    # The first of each pays for first calls.
    medians = {k: statistics.median(times[1:]) for k, times in found.items()}
    return RoundCosts(medians.pop(0), medians)


def _round_s(pair: Pair, rows: Sequence[Request], k: int, sampling: Sampling, bonus: Bonus) -> float:
    """Seconds of a row's share of a round; K = 0 stands for the target alone."""
    engine = Engine(
        pair,
        rule_named("strict" if k else "target"),
        num_draft_tokens=max(k, 1),
        bonus=bonus if k else None,
        max_new_tokens=_ROUNDS * (k + 1) + (0 if k else _ROUNDS),
        sampling=sampling,
        eos_token_ids=(),
        batch_size=len(rows),
    )
    rollouts = engine.rollouts(rows)
    seconds = sum(rollout.timings.active_s for rollout in rollouts) - engine.clock.prefill_s
    return seconds / sum(rollout.num_rounds for rollout in rollouts)
