"""What a draft step costs beside a target pass, measured."""

from __future__ import annotations

import statistics
import time

import torch
from transformers import PreTrainedModel

from cospec.engine.cached_model import CachedModel
from cospec.pair import Pair

_REPEATS = 7


@torch.no_grad()
def measure_cost_ratio(pair: Pair, batch_size: int, num_draft_tokens: int, context: int = 128) -> float:
    """Seconds of one draft step by those of a target pass over a block of ``num_draft_tokens``, medians of 7.

    Both at ``batch_size`` rows of about ``context`` tokens, as `Engine` calls them.
    """
    room = min(pair.draft_context, pair.target_context) - num_draft_tokens - 1
    length = max(1, min(context, room))
    step = _seconds(pair.require_draft("a measured cost ratio"), batch_size, 1, length)
    return step / _seconds(pair.target, batch_size, num_draft_tokens + 1, length)


def _seconds(model: PreTrainedModel, num_rows: int, width: int, length: int) -> float:
    cached = CachedModel(model, num_rows, length + width)
    ids = torch.zeros(num_rows, length + width, dtype=torch.long, device=cached.device)
    cached.prefill(ids, dict.fromkeys(range(num_rows), length), 512)
    start, counts = cached.cache.lengths, torch.full((num_rows,), width, device=cached.device)
    found = []
    for _ in range(_REPEATS + 1):
        cached.cache.lengths = start
        before = time.perf_counter()
        cached.append(ids[:, :width], counts, length)
        if cached.device.type == "cuda":
            torch.cuda.synchronize(cached.device)
        found.append(time.perf_counter() - before)
    return statistics.median(found[1:])
