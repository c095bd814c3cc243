"""What a round of the engine costs at every K, passes and all that is around them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cospec.engine.decode import Engine
from cospec.engine.drafters import Drafter
from cospec.engine.record import Sampling
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.pair import Pair

#: Timed runs of each, and the fewest where they take longer than `_ENOUGH_S` in all: a long run scatters less.
_REPEATS, _FEWEST = 5, 2
_ENOUGH_S = 120.0
NUM_TURNS = _REPEATS + 1
#: Rounds of a timed run at least, whatever is accepted.
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class RoundCosts:
    """Seconds of a row's share of a round: ``step_s`` of the target alone, ``round_s`` of strict by K.

    ``c_rel`` is the drafter's time per token at the largest K by the target's own time in a step. ``cpu_share`` is the
    processor time of this process by the seconds of the runs that these numbers are of, None where another device does
    the work; ``num_runs`` is how many of each there were. All that was decoded for them is ``num_texts`` beginnings of
    texts, of ``num_tokens`` at most.
    """

    step_s: float
    round_s: Mapping[int, float]
    c_rel: float
    cpu_share: float | None = None
    num_runs: int = 0
    num_texts: int = 0
    num_tokens: int = 0


def measure_rounds(
    pair: Pair,
    requests: Sequence[Request],
    lengths: Sequence[int],
    sampling: Sampling,
    *,
    batch_size: int,
    drafter: Drafter | None = None,
    on_turn: Callable[[int], object] = lambda num: None,
) -> RoundCosts:
    """The fastest of 5 short runs of each, taking turns, on the first ``batch_size`` of ``requests``.

    The fastest, as whatever else the machine does only adds to a run. Once all turns have taken two minutes, as those
    of large models do, 2 are enough. ``on_turn`` is told how many of `NUM_TURNS` turns are done, or not needed.
    """
    rows = requests[:batch_size]
    found: dict[int, list[_RoundTime]] = {k: [] for k in (0, *lengths)}
    began = time.monotonic()
    for turn in range(NUM_TURNS):
        if turn > _FEWEST and time.monotonic() - began > _ENOUGH_S:
            on_turn(NUM_TURNS - turn)
            break
        for k, runs in found.items():
            runs.append(_round_time(pair, rows, k, sampling, drafter))
        on_turn(1)
    # The first of each pays for first calls.
    later = {k: runs[1:] for k, runs in found.items()}
    whole = {k: min(run.whole_s for run in runs) for k, runs in later.items()}
    fastest = [min(runs, key=lambda run: run.whole_s) for runs in later.values()]
    busy, seconds = (sum(getattr(run, name) for run in fastest) for name in ("cpu_s", "active_s"))
    step_s, longest = whole.pop(0), max(lengths)
    draft = min(run.draft_s for run in later[longest]) / longest
    return RoundCosts(
        step_s,
        whole,
        draft / min(run.target_s for run in later[0]),
        cpu_share=busy / seconds if busy else None,
        num_runs=len(later[0]),
        num_texts=len(rows) * sum(map(len, found.values())),
        num_tokens=len(rows) * sum(run.num_tokens for runs in found.values() for run in runs),
    )


@dataclass(frozen=True, slots=True)
class _RoundTime:
    """A row's share of a round in seconds, in a full batch: all of it, and its parts; and of the run it is of."""

    whole_s: float
    draft_s: float
    target_s: float
    active_s: float
    cpu_s: float
    num_tokens: int


def _round_time(pair: Pair, rows: Sequence[Request], k: int, sampling: Sampling, drafter: Drafter | None) -> _RoundTime:
    """A short run; K = 0 stands for the target alone."""
    engine = Engine(
        pair,
        rule_named("strict" if k else "target"),
        drafter=drafter if k else None,
        num_draft_tokens=max(k, 1),
        max_new_tokens=_ROUNDS * (k + 1) if k else 2 * _ROUNDS,
        sampling=sampling,
        eos_token_ids=(),
        batch_size=len(rows),
    )
    # Until the first row ends, the batch is full in every round: rows that stay behind would pay for the empty places.
    _, first = next(engine.run(rows))
    timing, num = first.timings, first.num_rounds
    whole = timing.active_s - timing.prefill_s / len(rows)
    parts = (whole / num, timing.draft_s / num, timing.target_s / num)
    return _RoundTime(*parts, timing.active_s, timing.cpu_s, len(first.output_ids))
