"""What decoding a long context takes: run as a program, so that a peak belongs to one run alone.

    python tests/memory_probe.py RULE NUM_TOKENS

RULE is strict, shared or own (an arbiter with that context cache). Prints one JSON object, sizes in bytes: ``before``
(resident, models loaded), ``peak`` (resident at most), ``caches`` (keys and values of draft and target), ``arbiter``
(those of the arbiter alone), ``num_new`` and ``num_decisions``.
"""

from __future__ import annotations

import json
import os
import sys

import psutil
import torch
from conftest import EOS, pair_of, perturbed, random_prompts, tiny_config, tiny_model
from test_arbiter import fresh_arbiter
from torch import nn

from cospec.arbiter.model import ArbiterScorer
from cospec.engine.cached_model import CachedModel
from cospec.engine.decode import Engine, _Batch
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, rule_named
from cospec.evaluation.bench.memory import peak_mb, reset_peak

NUM_NEW = 24
SHAPE = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32}


def long_model() -> nn.Module:
    return tiny_model(tiny_config("llama", **SHAPE, max_position_embeddings=16384, initializer_range=0.1), seed=1)


def cache_bytes(cached: CachedModel) -> int:
    return sum(buffer.nbytes for buffer in (*cached.cache.keys, *cached.cache.values))


def main(rule_name: str, num_tokens: int) -> None:
    draft = perturbed(long_model(), seed=2, scale=0.05)
    pair = pair_of(draft, long_model())
    scorer = None if rule_name == "strict" else ArbiterScorer(fresh_arbiter(pair.draft, rule_name), EOS)
    rule = ArbiterRule(scorer) if scorer else rule_named("strict")
    engine = Engine(pair, rule, num_draft_tokens=4, max_new_tokens=NUM_NEW, prefill_chunk=256)
    # Libraries set themselves up at the first passes.
    engine.rollouts([Request(0, prompt) for prompt in random_prompts(300)])
    # The peak that getrusage tells of a program begins with that of the process that started it.
    assert reset_peak(torch.device("cpu")), "the kernel's high-water mark cannot be set back here"
    before = psutil.Process().memory_info().rss
    (prompt,) = random_prompts(num_tokens - NUM_NEW)
    with torch.no_grad():
        batch, found = _Batch(engine, [Request(1, prompt)], reads_along=False), []
        # Counted while the row is in flight, since an ended one gives its caches back.
        target, drafts = batch.models.target, batch.models.drafter.cached
        caches = cache_bytes(target) + cache_bytes(drafts)
        arbiter = cache_bytes(batch.scorer.cached) if rule_name == "own" else 0
        while batch.rows:
            found += [rollout for _, rollout in batch.advance()]
    sizes = {"before": before, "caches": caches, "arbiter": arbiter}
    sizes["peak"] = round((peak_mb(torch.device("cpu")) or 0.0) * 1e6)
    counts = {"num_new": len(found[0].output_ids), "num_decisions": len(found[0].decisions)}
    print(json.dumps(sizes | counts))


if __name__ == "__main__":
    assert os.environ.get("OMP_NUM_THREADS") == "1", "more threads have buffers of their own"
    main(sys.argv[1], int(sys.argv[2]))
