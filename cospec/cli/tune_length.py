"""How `cospec tune` chooses K: what rounds cost at every K, what strict accepts, and what to say of both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cospec.cli.progress import progress

if TYPE_CHECKING:
    from cospec.engine.record import Rollout
    from cospec.engine.request import Request
    from cospec.evaluation import EvalSettings, Method
    from cospec.evaluation.tune.lengths import LengthGain
    from cospec.evaluation.tune.rounds import RoundCosts
    from cospec.pair import Pair
    from cospec.prompt_rows import PromptRow

Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ChosenLength:
    """The best K, the numbers behind it as JSON, strict's texts by their K, and what was decoded for the clock."""

    best: LengthGain
    numbers: Mapping[str, Any]
    probes: Mapping[int, Sequence[Rollout]]
    costs: RoundCosts

    @property
    def texts(self) -> list[Rollout]:
        """Strict's texts, whatever their K."""
        return [rollout for rollouts in self.probes.values() for rollout in rollouts]


def choose_length(
    pair: Pair,
    strict: Method,
    settings: EvalSettings,
    lengths: Sequence[int],
    probe: Sequence[PromptRow],
    others: Sequence[PromptRow],
    warn: Warn,
) -> ChosenLength:
    """The K of ``lengths``, ascending, that pays best on the ``probe``; ``others`` help to fill the timed batches."""
    from cospec.engine.cost import measure_passes
    from cospec.evaluation.method import requests_of
    from cospec.evaluation.tune.lengths import as_json, best_gain, length_gains, near_best
    from cospec.evaluation.tune.rounds import NUM_TURNS, measure_rounds

    batch, drafter = settings.batch_size, settings.drafter
    timed = requests_of(pair, [*probe, *others][:batch], raw=settings.raw)
    full = [timed[place % len(timed)] for place in range(batch)]
    passes = measure_passes(pair, batch, [1, *(k + 1 for k in lengths)])
    with progress("tune: what rounds cost", NUM_TURNS, "turns") as step:
        costs = measure_rounds(pair, full, lengths, settings.sampling, batch_size=batch, drafter=drafter, on_turn=step)
    probes = _probes(pair, strict, settings, lengths, requests_of(pair, probe, raw=settings.raw))
    gains = length_gains(probes, passes, costs)
    best = best_gain(gains)
    _warn_of_load(costs, warn)
    if best.gain <= 1:
        warn(
            f"no K pays here for strict: with the best, {best.num_draft_tokens}, it is {best.gain:.2f} times as fast "
            "as the target alone"
        )
    if len(lengths) > 1 and best.num_draft_tokens == lengths[-1]:
        warn(f"K = {lengths[-1]} is the largest that was offered: offer larger ones")
    c_rel = passes.c_rel if _is_model(settings) else costs.c_rel
    numbers = {**as_json(gains, probes, passes, costs, c_rel), "near_best": near_best(gains)}
    return ChosenLength(best, numbers, probes, costs)


def _probes(
    pair: Pair, strict: Method, settings: EvalSettings, lengths: Sequence[int], requests: Sequence[Request]
) -> dict[int, list[Rollout]]:
    """Strict's texts by K: those of the draft model at the largest tell of all others."""
    offered = lengths[-1:] if _is_model(settings) else lengths
    found = {}
    with progress("tune: strict's texts", len(offered) * len(requests), "texts") as step:
        for k in offered:
            engine = strict.engine(pair, dataclasses.replace(settings, num_draft_tokens=k))
            found[k] = engine.rollouts(requests, lambda _: step())
    return found


def _is_model(settings: EvalSettings) -> bool:
    return settings.drafter is None or settings.drafter.runs_draft_model


def _warn_of_load(costs: RoundCosts, warn: Warn) -> None:
    from cospec.evaluation.table import is_starved

    if is_starved(costs.cpu_share):
        warn(
            f"this process had {costs.cpu_share:.0%} of a core in the runs that time a round: the machine is busy, and "
            "its seconds say little"
        )
