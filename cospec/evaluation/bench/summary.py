"""From repeats to numbers: one entry per cell, ratios taken repeat by repeat, and the limit."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from cospec.evaluation.bench.cells import OURS, PARTS, CellKey, Contender, Sample
from cospec.evaluation.bench.limit import limit_shares
from cospec.evaluation.bench.ours import STRICT, TARGET
from cospec.evaluation.bench.rounds import Repeat
from cospec.evaluation.bench.transformers_engine import ASSISTED
from cospec.evaluation.bench.transformers_engine import ENGINE as TRANSFORMERS
from cospec.evaluation.bench.vllm_engine import DRAFT_MODEL
from cospec.evaluation.bench.vllm_engine import ENGINE as VLLM


@dataclass(frozen=True, slots=True)
class PairedRatio:
    """A ratio of tokens/s, taken within each repeat."""

    median: float
    least: float
    most: float

    def to_json(self) -> dict[str, float]:
        return {"median": self.median, "min": self.least, "max": self.most}


def paired_ratio(key: CellKey, other: CellKey, repeats: Sequence[Repeat]) -> PairedRatio | None:
    """Tokens/s of ``key`` over those of ``other``; None where there is no such cell."""
    if other not in repeats[0].samples:
        return None
    ratios = [repeat.samples[key].tokens_per_s / repeat.samples[other].tokens_per_s for repeat in repeats]
    return PairedRatio(statistics.median(ratios), min(ratios), max(ratios))


def results(repeats: Sequence[Repeat], contenders: Sequence[Contender]) -> dict[str, Any]:
    """What `cospec bench --json` prints of a comparison, but for the machine."""
    notes = {key: contender.note(key) for contender in contenders for key in contender.keys}
    limits = limit_shares(repeats)
    smallest = min(key.batch for key in repeats[0].samples)
    ours = [found.share for found in limits if found.key == CellKey(OURS, STRICT, smallest)]
    return {
        "cells": [_cell(key, repeats, notes.get(key)) for key in repeats[0].samples],
        "model_limit_share": ours[0] if ours else None,
        "limits": [found.to_json() for found in limits],
    }


def _cell(key: CellKey, repeats: Sequence[Repeat], note: str | None) -> dict[str, Any]:
    samples = [repeat.samples[key] for repeat in repeats]
    tokens, rounds = sum(sample.tokens for sample in samples), [sample.num_rounds for sample in samples]
    peaks = [sample.peak_mb for sample in samples if sample.peak_mb is not None]
    same = _num_identical(key, repeats)
    return {
        "engine": key.engine,
        "method": key.method,
        "batch": key.batch,
        "tokens_per_s": [sample.tokens_per_s for sample in samples],
        "tokens_per_round": None if None in rounds else tokens / sum(num or 0 for num in rounds),
        "share": share(samples),
        "peak_mb": max(peaks, default=None),
        "identical_to_target": same == len(samples[0].digests),
        "num_identical": same,
        "num_prompts": len(samples[0].digests),
        "num_tokens": samples[0].tokens,
        "ratio_to_target": _ratio(key, OURS, TARGET, repeats),
        "ratio_to_assisted": _ratio(key, TRANSFORMERS, ASSISTED, repeats),
        "ratio_to_vllm": _ratio(key, VLLM, DRAFT_MODEL, repeats),
        "overhead": _median(sample.overhead for sample in samples),
        "cpu_share": _median(sample.cpu_share for sample in samples),
        "prefill_share": _median(sample.prefill_share for sample in samples),
        "note": note,
    }


def _ratio(key: CellKey, engine: str, method: str, repeats: Sequence[Repeat]) -> dict[str, float] | None:
    found = paired_ratio(key, CellKey(engine, method, key.batch), repeats)
    return found.to_json() if found else None


def share(samples: Sequence[Sample]) -> dict[str, float | None]:
    """Shares of all repeats' wall time: the models' passes, and what is left."""
    whole = sum(sample.seconds for sample in samples)
    found = [sample.forwards for sample in samples if sample.forwards is not None]
    if len(found) < len(samples):
        return dict.fromkeys((*PARTS, "rest"))
    parts: dict[str, float | None] = {part: sum(f.seconds(part) for f in found) / whole for part in PARTS}
    return parts | {"rest": 1.0 - sum(value or 0.0 for value in parts.values())}


def _median(values: Iterable[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


def _num_identical(key: CellKey, repeats: Sequence[Repeat]) -> int:
    """Prompts whose text is, in every repeat, what the target alone wrote in this engine at the smallest batch."""
    smallest = min(other.batch for other in repeats[0].samples)
    wanted = repeats[0].samples[CellKey(OURS, TARGET, smallest)].digests
    rows = zip(wanted, *(repeat.samples[key].digests for repeat in repeats), strict=True)
    return sum(len(set(row)) == 1 for row in rows)
