"""How a round's cost grows with the context or the batch, beside what the bare models' passes cost there."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from transformers import PreTrainedModel

from cospec.arbiter.layout import region_width
from cospec.arbiter.model import ArbiterScorer
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, Rule
from cospec.evaluation.bench.cells import PARTS, CellKey, Part, Sample
from cospec.evaluation.bench.ours import OurContender
from cospec.evaluation.bench.plain import PlainPasses
from cospec.evaluation.bench.probe import tiled
from cospec.evaluation.bench.rounds import ProbeTime, Repeat
from cospec.evaluation.bench.workload import Workload, room_needed, tighter_context
from cospec.pair import Pair

SweepKind = Literal["context", "batch"]
#: First and last point; every point is twice the one before.
RANGES: dict[str, tuple[int, int]] = {"context": (256, 8192), "batch": (1, 32)}


@dataclass(frozen=True, slots=True)
class Points:
    """Where a sweep measures; ``clipped`` says why it ends early, if it does."""

    kind: SweepKind
    at: tuple[int, ...]
    clipped: str | None = None


def points(kind: SweepKind, last: int | None, pair: Pair, work: Workload, arbiters: bool = False) -> Points:
    """The points of a sweep that fit this pair, of which the last is ``last`` if that is given."""
    first, end = RANGES[kind]
    wanted = end if last is None else last
    if wanted < first:
        raise ValueError(f"--sweep-to {wanted} is below the first point of --sweep {kind}, which is {first}")
    if kind == "batch":
        return Points(kind, _doubling(first, wanted))
    role, context = tighter_context(pair)
    room = room_needed(work.num_draft_tokens, work.max_new_tokens, arbiters)
    if context - room < 1:
        raise ValueError(
            f"the {role}'s context of {context} has no room for a prompt before {room} tokens: lower --max-new-tokens"
        )
    if wanted <= context - room:
        return Points(kind, _doubling(first, wanted))
    clipped = (
        f"ends at a prompt of {context - room} tokens instead of {wanted}: the {role}'s context holds {context}, and "
        f"{room} must fit behind the prompt (the text{' and a region of the arbiter' if arbiters else ''})"
    )
    return Points(kind, _doubling(min(first, context - room), context - room), clipped)


def _doubling(first: int, last: int) -> tuple[int, ...]:
    """first, 2 first, 4 first, ... and ``last`` itself."""
    found = []
    while first < last:
        found.append(first)
        first *= 2
    return (*found, last)


def sweep_contenders(
    found: Points, pair: Pair, work: Workload, rules: Mapping[str, Rule], batch: int
) -> list[OurContender]:
    """Every rule at every point. The rows of a batch are copies of one prompt and no text ends before its cap.

    So all rows do the same at the same time and a round always has all of them.
    """
    contenders = []
    for at in found.at:
        length, num_rows = (at, batch) if found.kind == "context" else (_typical(work), at)
        (prompt,) = _prompts(work, length)
        requests = tuple(Request(row, prompt) for row in range(num_rows))
        here = replace(work, requests=requests, eos_token_ids=())
        context = length if found.kind == "context" else None
        contenders += [OurContender(pair, here, name, rule, num_rows, context=context) for name, rule in rules.items()]
    return contenders


def _typical(work: Workload) -> int:
    return round(statistics.median(map(len, work.prompts)))


def _prompts(work: Workload, length: int) -> list[list[int]]:
    """One row of ``length`` ids that ends as the last prompt does."""
    (row,) = tiled([prompt[::-1] for prompt in work.prompts[::-1]], 1, length)
    return [row[::-1]]


@dataclass(frozen=True, slots=True)
class PlainProbes:
    """Single passes in transformers' own terms at every point: one token, a whole block, an arbiter's region."""

    pair: Pair
    work: Workload
    rules: Mapping[str, Rule]

    def __call__(self, samples: Mapping[CellKey, Sample]) -> tuple[ProbeTime, ...]:
        places = sorted({(key.batch, key.context) for key in samples}, key=lambda place: (place[0], place[1] or 0))
        return tuple(probe for batch, context in places for probe in self._at(batch, context))

    def _at(self, batch: int, context: int | None) -> list[ProbeTime]:
        block = self.work.num_draft_tokens + 1
        region = region_width(block)
        # Half-way through the text.
        length = (context or _typical(self.work)) + self.work.max_new_tokens // 2
        rows = _prompts(self.work, length + region) * batch
        ids = torch.tensor(rows, device=self.pair.device)
        found = []
        shapes: list[tuple[Part, PreTrainedModel, tuple[int, ...]]]
        shapes = [("target", self.pair.target, (1, block)), ("draft", self.pair.draft, (1,))]
        for part, model, widths in shapes:
            passes = PlainPasses(part, model, ids, length)
            found += [ProbeTime("plain", batch, part, batch, w, context or 0, passes.seconds(w)) for w in widths]
        for method, rule in self.rules.items():
            if isinstance(rule, ArbiterRule):
                assert isinstance(rule.scorer, ArbiterScorer)
                net = rule.scorer.net
                spent = PlainPasses("arbiter", net.backbone, ids, length, net.head).seconds(region)
                found.append(ProbeTime("plain", batch, "arbiter", batch, region, context or 0, spent, method))
        return found


def sweep_results(found: Points, repeats: Sequence[Repeat], num_drafts: int) -> dict[str, Any]:
    """The sweep as JSON: by method and point, seconds of a round, their parts, and those of bare passes."""
    keys = list(repeats[0].samples)
    return {
        "sweep": found.kind,
        "clipped": found.clipped,
        "points": [_point(key, found.kind, repeats, num_drafts) for key in keys],
    }


def _point(key: CellKey, kind: SweepKind, repeats: Sequence[Repeat], num_drafts: int) -> dict[str, Any]:
    samples = [repeat.samples[key] for repeat in repeats]
    rounds = [_rounds(sample) for sample in samples]
    spent = [sample.decode_s / num for sample, num in zip(samples, rounds, strict=True)]
    bare = [bare_round_s(repeat.samples[key], repeat.probes, num_drafts) for repeat in repeats]
    peaks = [sample.peak_mb for sample in samples if sample.peak_mb is not None]
    tokens, alone = sum(sample.tokens for sample in samples), sum(sample.num_rounds or 0 for sample in samples)
    return {
        "method": key.method,
        "at": key.context if kind == "context" else key.batch,
        "batch": key.batch,
        "seconds_per_round": spent,
        "parts_s": _parts(samples, rounds),
        "bare_s": statistics.median(bare),
        "over_bare": statistics.median(one / other for one, other in zip(spent, bare, strict=True)),
        "tokens_per_round": tokens / alone,
        "arbiter_share_of_rounds": _num(samples, "arbiter") / sum(rounds),
        "peak_mb": max(peaks, default=None),
        "cpu_share": statistics.median(sample.cpu_share or 0.0 for sample in samples),
    }


def _rounds(sample: Sample) -> int:
    """Rounds of the batch."""
    assert sample.forwards is not None
    return sample.forwards.num("target")


def _num(samples: Sequence[Sample], part: Part) -> int:
    return sum(sample.forwards.num(part) for sample in samples if sample.forwards)


def _parts(samples: Sequence[Sample], rounds: Sequence[int]) -> dict[str, float]:
    """Median seconds of a round by part; the rest is what is left of it."""
    found: dict[str, list[float]] = {part: [] for part in (*PARTS, "rest")}
    for sample, num in zip(samples, rounds, strict=True):
        assert sample.forwards is not None
        parts = {part: sample.forwards.round_s(part) / num for part in PARTS}
        for part, seconds in parts.items():
            found[part].append(seconds)
        found["rest"].append(sample.decode_s / num - sum(parts.values()))
    return {part: statistics.median(times) for part, times in found.items()}


def bare_round_s(sample: Sample, probes: Sequence[ProbeTime], num_drafts: int) -> float:
    """Seconds of the passes of this run's mean round, each as transformers runs it.

    A block is shorter than ``num_drafts`` + 1 near the cap: in between, the target's pass is taken as linear in width.
    """
    key, forwards = sample.key, sample.forwards
    assert forwards is not None
    here = [probe for probe in probes if (probe.batch, probe.context) == (key.batch, key.context or 0)]
    one, block = (_seconds(here, "target", width) for width in (1, num_drafts + 1))
    rounds = forwards.num("target")
    width = sum(entry.num * entry.width for entry in forwards.of("target")) / rounds
    verify = one + (block - one) * (width - 1) / num_drafts
    arbiters = [probe.seconds for probe in here if probe.method == key.method]
    arbiter = forwards.num("arbiter") / rounds * arbiters[0] if arbiters else 0.0
    return verify + forwards.num("draft") / rounds * _seconds(here, "draft", 1) + arbiter


def _seconds(probes: Sequence[ProbeTime], part: str, width: int) -> float:
    return next(probe.seconds for probe in probes if (probe.part, probe.width) == (part, width))
