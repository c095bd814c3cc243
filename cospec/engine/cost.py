"""What passes of the two models cost, measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from cospec.engine.cached_model import CachedModel
from cospec.pair import Pair

_REPEATS = 7


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Seconds of a draft step and of target passes, ``target_s`` by the number of tokens of a row.

    A pair without a draft model has no ``draft_step_s``, and no ratio can be asked for. ``cpu_share`` is how much of a
    core the process had while passes were timed, more than 1 on several threads; None where it was not measured.
    """

    draft_step_s: float | None
    target_s: Mapping[int, float]
    cpu_share: float | None = None

    @property
    def c_rel(self) -> float:
        """A draft step by a target step of one token: what the acceleration model calls c_rel."""
        assert self.draft_step_s is not None, "no draft model was measured"
        return self.draft_step_s / self.target_s[1]

    def cost_ratio(self, num_draft_tokens: int) -> float:
        """A draft step by a target pass over a whole block: what `Engine` calls its cost ratio."""
        assert self.draft_step_s is not None, "no draft model was measured"
        return self.draft_step_s / self.target_s[num_draft_tokens + 1]

    def verification(self, num_draft_tokens: int) -> float:
        """A target pass over a whole block by one over one token; the acceleration model takes it to be 1."""
        return self.target_s[num_draft_tokens + 1] / self.target_s[1]


@torch.no_grad()
def measure_passes(pair: Pair, batch_size: int, widths: Sequence[int], context: int = 128) -> PassCosts:
    """Medians of 7 single passes at ``batch_size`` rows of about ``context`` tokens, as `Engine` calls them.

    All kinds of passes take turns, so that a machine that slows down slows all of them. Of a width that no context has
    room for, the widest pass that fits is timed.
    """
    room = min(pair.draft_context, pair.target_context) - 1
    fitting = {width: min(width, room) for width in widths}
    widest = max(fitting.values())
    length = min(context, room + 1 - widest)
    target = _Prefilled(pair.target, batch_size, widest, length)
    passes = {("target", width): target.timed(fits) for width, fits in fitting.items()}
    if pair.draft is not None:
        passes["draft", 1] = _Prefilled(pair.draft, batch_size, 1, length).timed(1)
    found: dict[tuple[str, int], list[float]] = {key: [] for key in passes}
    began, busy = time.perf_counter(), time.process_time()
    for _ in range(_REPEATS + 1):
        for key, once in passes.items():
            found[key].append(once())
    share = (time.process_time() - busy) / (time.perf_counter() - began)
    # The first of each pays for first calls.
    medians = {key: statistics.median(times[1:]) for key, times in found.items()}
    draft = medians.pop(("draft", 1), None)
    return PassCosts(draft, {width: seconds for (_, width), seconds in medians.items()}, share)


def measure_cost_ratio(pair: Pair, batch_size: int, num_draft_tokens: int, context: int = 128) -> float:
    """Seconds of one draft step by those of a target pass over a block of ``num_draft_tokens``: not c_rel, which
    compares with a target step of one token."""
    pair.require_draft("a measured cost ratio")
    return measure_passes(pair, batch_size, (num_draft_tokens + 1,), context).cost_ratio(num_draft_tokens)


class _Prefilled:
    """A model's cache of ``length`` tokens a row, behind which passes are timed."""

    def __init__(self, model: PreTrainedModel, num_rows: int, widest: int, length: int) -> None:
        self.cached, self.length = CachedModel(model, num_rows, length + widest), length
        self.ids = torch.zeros(num_rows, length + widest, dtype=torch.long, device=self.cached.device)
        self.cached.prefill(self.ids, dict.fromkeys(range(num_rows), length), 512)
        self.start = self.cached.cache.lengths

    def timed(self, width: int) -> Callable[[], float]:
        """A pass of ``width`` tokens of every row, which returns its seconds."""
        cached, counts = self.cached, torch.full((len(self.ids),), width, device=self.cached.device)

        def once() -> float:
            cached.cache.lengths = self.start
            before = time.perf_counter()
            cached.append(self.ids[:, :width], counts, self.length)
            if cached.device.type == "cuda":
                torch.cuda.synchronize(cached.device)
            return time.perf_counter() - before

        return once
