"""What a single forward pass costs by itself, on caches as the engine makes them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from cospec.arbiter.layout import region_width
from cospec.engine.cached_model import CachedModel
from cospec.engine.rules import ArbiterRule, Regions
from cospec.evaluation.bench.cells import OURS, CellKey, Part, Sample
from cospec.evaluation.bench.forwards import ForwardTimer, wait_for
from cospec.evaluation.bench.ours import TARGET, pair_timer, watch_arbiter
from cospec.evaluation.bench.rounds import ProbeTime
from cospec.evaluation.bench.workload import Workload
from cospec.pair import Pair

_CHUNK = 512
_MODELS: tuple[Part, ...] = ("draft", "target")
#: A pass is timed at least so often, and again until so many seconds are spent or it was timed so often.
_FEWEST, _BUDGET_S, _MOST = 5, 0.25, 20


def typical_s(
    once: Callable[[], object],
    new_timer: Callable[[], ForwardTimer],
    device: torch.device,
    prepare: Callable[[], object] = lambda: None,
) -> float:
    """The median of the forward passes' seconds in ``once``; what ``prepare`` does before each is not counted."""
    times: list[float] = []
    with torch.no_grad():
        prepare()
        once()
        while len(times) < _FEWEST or (sum(times) < _BUDGET_S and len(times) < _MOST):
            prepare()
            with new_timer() as timer:
                once()
                wait_for(device)
            times.append(timer.forwards().total_s)
    return statistics.median(times)


def tiled(prompts: Sequence[Sequence[int]], num_rows: int, length: int) -> list[list[int]]:
    """``num_rows`` rows of ``length`` ids: the prompts over and over, each row beginning with another one."""
    rows = []
    for row in range(num_rows):
        turned = [*prompts[row % len(prompts) :], *prompts[: row % len(prompts)]]
        joined = [token_id for prompt in turned for token_id in prompt]
        rows.append((joined * (length // len(joined) + 1))[:length])
    return rows


class EnginePasses:
    """Both models over caches as the engine makes them, every row holding ``context`` tokens."""

    def __init__(self, pair: Pair, prompts: Sequence[Sequence[int]], batch: int, context: int, widest: int) -> None:
        self.pair, self.batch, self.context = pair, batch, context
        capacity = context + widest + 1
        self.ids = torch.tensor(tiled(prompts, batch, capacity), device=pair.device)
        scratch = region_width(widest)
        self._cached = {
            "target": CachedModel(pair.target, batch, capacity),
            "draft": CachedModel(pair.draft, batch, capacity, scratch=scratch),
        }
        with torch.no_grad():
            for cached in self._cached.values():
                cached.prefill(self.ids, self._lengths(context + 1), _CHUNK)

    def model_s(self, part: Part, width: int) -> float:
        """A pass of ``width`` tokens of every row."""
        cached = self._cached[part]
        lengths, counts = self._filled(self.context), self._filled(width)
        ids = self.ids[:, self.context : self.context + width]

        def once() -> None:
            cached.cache.lengths = lengths.clone()
            cached.append(ids, counts, self.context)

        return typical_s(once, lambda: pair_timer(self.pair), self.pair.device)

    def arbiter_s(self, rule: ArbiterRule, num_positions: int, num_rows: int, num_pending: int) -> float:
        """An arbiter's pass over blocks of ``num_positions`` in ``num_rows`` rows.

        With a cache of its own the pass also reads ``num_pending`` committed tokens.
        """
        blocks = self.ids[:, :num_positions]
        regions = Regions(
            ids=self.ids,
            lengths=self._filled(self.context),
            draft_ids=blocks,
            target_ids=blocks.flip(1),
            num_positions=self._filled(num_positions),
        )
        rows = torch.arange(num_rows, device=self.ids.device)
        read = self._lengths(max(1, self.context + 1 - num_pending))
        scorer = rule.scorer.bind(self._cached["draft"])

        def new_timer() -> ForwardTimer:
            timer = ForwardTimer(self.pair.device)
            watch_arbiter(timer, rule)
            return timer

        def prepare() -> None:
            scorer.admit(self.ids, read, _CHUNK)

        return typical_s(lambda: scorer.score(regions, rows), new_timer, self.pair.device, prepare)

    def _filled(self, value: int) -> Tensor:
        return torch.full((self.batch,), value, dtype=torch.long, device=self.ids.device)

    def _lengths(self, length: int) -> dict[int, int]:
        return dict.fromkeys(range(self.batch), length)


@dataclass(frozen=True, slots=True)
class EngineProbes:
    """The single passes of a comparison: every width that occurred, at each batch size and its runs' mean context."""

    pair: Pair
    work: Workload
    arbiters: Mapping[str, ArbiterRule]

    def __call__(self, samples: Mapping[CellKey, Sample]) -> tuple[ProbeTime, ...]:
        own = {key: sample for key, sample in samples.items() if key.engine == OURS}
        batches = sorted({key.batch for key in own})
        return tuple(probe for batch in batches for probe in self._at(batch, own))

    def _at(self, batch: int, own: Mapping[CellKey, Sample]) -> list[ProbeTime]:
        found = [sample for key, sample in own.items() if key.batch == batch and sample.forwards]
        if not found:
            return []
        context = self._context(own[CellKey(OURS, TARGET, batch)])
        widths = {part: _widths(found, part) for part in _MODELS}
        widest = max(1, *widths["draft"], *widths["target"], self.work.num_draft_tokens + 1)
        times: list[ProbeTime] = []
        # At one row too: towards the end of a run there are fewer rows than the batch.
        for rows in sorted({1, batch}):
            passes = EnginePasses(self.pair, self.work.prompts, rows, context, widest)
            times += [
                ProbeTime("engine", batch, part, rows, width, context, passes.model_s(part, width))
                for part in _MODELS
                for width in widths[part]
            ]
        for method, rule in self.arbiters.items():
            sample = own[CellKey(OURS, method, batch)]
            times += _arbiter_time(passes, method, rule, sample, self.work.num_draft_tokens + 1)
        return times

    def _context(self, sample: Sample) -> int:
        """Where a text is half written, on average."""
        prompts = self.work.prompts
        return round((sum(map(len, prompts)) + sample.tokens / 2) / len(prompts))


def _arbiter_time(
    passes: EnginePasses, method: str, rule: ArbiterRule, sample: Sample, num_positions: int
) -> list[ProbeTime]:
    assert sample.forwards is not None
    found = sample.forwards.of("arbiter")
    num = sum(entry.num for entry in found)
    if num == 0:
        return []
    rows = max(1, round(sum(entry.num * entry.rows for entry in found) / num))
    width = round(sum(entry.num * entry.width for entry in found) / num)
    pending = max(0, width - region_width(num_positions)) if rule.scorer.context_cache == "own" else 0
    seconds = passes.arbiter_s(rule, num_positions, rows, pending)
    return [ProbeTime("engine", sample.key.batch, "arbiter", rows, width, passes.context, seconds, method)]


def _widths(samples: Sequence[Sample], part: Part) -> list[int]:
    found = {entry.width for sample in samples if sample.forwards for entry in sample.forwards.of(part)}
    return sorted(found | ({1} if part == "target" else set()))
