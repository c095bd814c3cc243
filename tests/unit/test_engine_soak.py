"""Many mixed requests through one engine: every output is that of its request alone, and memory stays flat."""

from __future__ import annotations

import gc
import random
from collections import Counter

import psutil
import pytest
from conftest import CONTEXT, EOS, VOCAB_SIZE, family_pair
from engine_checks import assert_counters, trace
from test_arbiter import live_arbiter

from cospec.arbiter.model import ArbiterScorer
from cospec.engine.decode import Engine
from cospec.engine.record import Sampling
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, Rule, rule_named

#: What the allocator may keep back between two measurements, in bytes; 1,500 leaked caches would be 20 times as much.
TOLERANCE = 8 * 2**20


def mixed_request(number: int, rng: random.Random) -> Request:
    """Any length up to a nearly full context, now and then a cap, stop strings, sampling or a seed of its own."""
    length = rng.choice([rng.randint(1, 12), rng.randint(1, 60), rng.randint(1, CONTEXT - 1)])
    sampling = Sampling(
        temperature=rng.choice([0.0, 0.0, 0.6, 1.0, 1.7]),
        top_k=rng.choice([0, 0, 5, 30]),
        top_p=rng.choice([1.0, 0.9]),
        min_p=rng.choice([0.0, 0.05]),
        repetition_penalty=rng.choice([1.0, 1.0, 1.2]),
    )
    return Request(
        id=rng.choice([number, f"request {number}"]),
        prompt_ids=tuple(rng.randrange(4, VOCAB_SIZE) for _ in range(length)),
        max_new_tokens=rng.choice([None, 1, rng.randint(2, 30)]),
        stop=tuple(f"w{rng.randrange(7, VOCAB_SIZE)}" for _ in range(rng.choice([0, 0, 1, 2]))),
        sampling=rng.choice([None, sampling]),
        seed=rng.choice([None, rng.randrange(2**32)]),
    )


def engine_of(rule: str, batch_size: int) -> Engine:
    pair = family_pair("llama", "sdpa")
    chosen: Rule = (
        ArbiterRule(ArbiterScorer(live_arbiter(pair.draft, "shared"), EOS)) if rule == "arbiter" else rule_named(rule)
    )
    return Engine(
        pair,
        chosen,
        num_draft_tokens=4,
        max_new_tokens=20,
        sampling=Sampling(0.8, 20),
        eos_token_ids=[EOS, 40],
        stop=["w9 w1"],
        batch_size=batch_size,
        prefill_chunk=32,
    )


def resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def soak(rule: str, num_runs: int, per_run: int) -> list[int]:
    """Decode ``num_runs`` times ``per_run`` requests at batch 8, each also alone; resident bytes after every run."""
    crowd, single = engine_of(rule, 8), engine_of(rule, 1)
    rng, reasons, memory = random.Random(7), Counter[str](), []
    for run in range(num_runs):
        requests = [mixed_request(run * per_run + place, rng) for place in range(per_run)]
        seen = set()
        for index, rollout in crowd.run(requests):
            assert trace(rollout) == trace(single.rollouts([requests[index]])[0])
            assert_counters(rollout)
            seen.add(index)
            reasons[rollout.finish_reason] += 1
        assert len(seen) == per_run
        memory.append(resident())
    shares = {reason: count / reasons.total() for reason, count in reasons.items()}
    print(f"\n{rule}: {dict(reasons)}, MB after each run: {[round(size / 2**20, 1) for size in memory]}")
    assert len(shares) == 3
    assert min(shares.values()) > 0.04, "one kind of ending hardly occurs"
    return memory


@pytest.mark.parametrize("rule", ["strict", "arbiter"])
def test_sixty_mixed_requests_are_decoded_as_alone(rule: str) -> None:
    soak(rule, 2, 30)


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["strict", "arbiter"])
def test_two_thousand_mixed_requests_leave_memory_flat(rule: str) -> None:
    first, *_, last = soak(rule, 4, 500)
    assert last - first < TOLERANCE
