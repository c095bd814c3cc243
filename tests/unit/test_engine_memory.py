"""The memory of a long context: that of the caches, and no second one for an arbiter that shares the draft's."""

from __future__ import annotations

import functools
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from conftest import CONTEXT, EOS, family_pair, random_prompts
from test_arbiter import MODES, live_arbiter

from cospec.arbiter.model import ArbiterScorer
from cospec.engine.cached_model import CachedModel
from cospec.engine.decode import Engine
from cospec.engine.record import ContextCache
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, RoundView, Verdict

TESTS = Path(__file__).parents[1]
#: The probe's own: tokens of a prompt that are read at a time.
CHUNK = 256
#: Bytes for each pair of a token that is read and one it may see: its mask, as bool and in the attention's own form,
#: and what the two are made of. A whole prompt at once would need 32 times as many; its scores, several times that.
PAIR_BYTES = 16
#: What two runs of a program differ by.
NOISE = 16 * 2**20


class Measuring(ArbiterRule):
    """An arbiter that also takes stock of all tensors that are alive behind its first decision."""

    def __init__(self, scorer: ArbiterScorer) -> None:
        super().__init__(scorer)
        # One for all runs of the rule.
        self.taken: list[tuple[int, int]] = []

    def decide(self, view: RoundView) -> Verdict:
        verdict = super().decide(view)
        if not self.taken:
            gc.collect()
            tensors = [found for found in gc.get_objects() if type(found) in (torch.Tensor, torch.nn.Parameter)]
            storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors}
            models = [found for found in gc.get_objects() if type(found) is CachedModel]
            # The shared cache belongs to two models.
            stores = {id(model.cache): model.cache for model in models}.values()
            caches = sum(buffer.nbytes for store in stores for buffer in (*store.keys, *store.values))
            self.taken.append((sum(storages.values()), caches))
        return verdict


def live_bytes(mode: ContextCache, num_tokens: int) -> tuple[int, int]:
    """Bytes of all tensors, and of the caches among them, in a context of that many tokens."""
    pair = family_pair("llama", "sdpa")
    rule = Measuring(ArbiterScorer(live_arbiter(pair.draft, mode), EOS))
    engine = Engine(pair, rule, num_draft_tokens=3, max_new_tokens=8)
    engine.rollouts([Request(0, random_prompts(num_tokens - 8)[0])])
    ((live, caches),) = rule.taken
    assert live > caches > 0
    return live, caches


def test_a_shared_cache_holds_nothing_of_the_context_beside_draft_and_target() -> None:
    growths = []
    for mode in MODES:
        short, long = (live_bytes(mode, num_tokens) for num_tokens in (CONTEXT // 4, CONTEXT))
        growths.append((long[0] - short[0], long[1] - short[1]))
    (shared, caches), (own, all_three) = growths
    assert all_three == pytest.approx(1.5 * caches), "draft, target and arbiter are of one size"
    # Beside the caches a token has its id and its position in either cache.
    assert caches <= shared < 1.1 * caches
    assert own > 1.4 * caches


@functools.cache
def probe(rule: str, num_tokens: int) -> dict[str, int]:
    """What tests/memory_probe.py finds."""
    paths = [str(TESTS.parent), str(TESTS), str(TESTS / "unit")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(TESTS / "memory_probe.py"), rule, str(num_tokens)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    assert found["num_new"] == 24
    assert found["num_decisions"] > 5, "the arbiter has hardly anything to do"
    return found


def growth(rule: str, name: str) -> int:
    """By how much a part grows from 1,024 to 8,192 tokens of context."""
    short, long = (probe(rule, num_tokens) for num_tokens in (1024, 8192))
    if name == "peak":
        return (long["peak"] - long["before"]) - (short["peak"] - short["before"])
    return long[name] - short[name]


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["strict", "shared", "own"])
def test_eight_thousand_tokens_take_the_caches_and_one_chunks_masks(rule: str) -> None:
    caches = growth(rule, "caches") + growth(rule, "arbiter")
    peak = growth(rule, "peak")
    print(f"\n{rule}: the peak grows by {peak / 2**20:.1f} MB, the caches by {caches / 2**20:.1f} MB")
    assert caches > 50 * 2**20
    assert peak < caches + CHUNK * (8192 - 1024) * PAIR_BYTES + NOISE
    assert peak > 0.8 * caches, "the peak says nothing of the caches"


@pytest.mark.slow
def test_an_arbiter_over_a_shared_cache_needs_no_memory_that_grows_with_context() -> None:
    assert growth("shared", "arbiter") == 0
    assert growth("shared", "peak") < growth("strict", "peak") + NOISE
    assert growth("own", "peak") > growth("shared", "peak") + growth("own", "arbiter") / 4
