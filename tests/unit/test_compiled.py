"""Compiled and recorded passes against plain ones."""

from __future__ import annotations

import gc
import shutil
import weakref
from collections.abc import Sequence

import pytest
import torch
from conftest import family_pair, random_prompts
from engine_checks import decode
from test_windows import windowed_pair
from torch import Tensor

from cospec.engine import compiled
from cospec.engine.cached_model import CachedModel, append_pass
from cospec.engine.compiled import RecordedPasses
from cospec.engine.decode import Engine
from cospec.engine.record import Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.pair import Pair

SAMPLED = Sampling(temperature=0.9, top_p=0.95)
NUM_NEW = 24


class FixedInputs:
    """A recording without a device: runs the plain pass again on tensors of its own, whatever the caller's are."""

    made: list[tuple[int, int]]

    def __init__(self, cached: CachedModel, inputs: tuple[Tensor, Tensor, Tensor], line: Tensor) -> None:
        # As a graph, it keeps nothing alive but the tensors.
        self._cached, self._line = weakref.ref(cached), line
        self._inputs = tuple(tensor.clone() for tensor in inputs)
        self._buffers = [buffer.data_ptr() for buffer in (*cached.cache.keys, *cached.cache.values)]
        FixedInputs.made.append((len(inputs[0]), inputs[0].shape[1]))

    def __call__(self, inputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        cached = self._cached()
        assert cached is not None
        cache = cached.cache
        assert [buffer.data_ptr() for buffer in (*cache.keys, *cache.values)] == self._buffers, "the buffers have moved"
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        return append_pass(cached, *self._inputs, self._line)


def recorded(pair: Pair, rule: str, prompts: Sequence[Sequence[int]], **settings: object) -> list[Rollout]:
    """As `decode`, its passes recorded and replayed."""
    FixedInputs.made = []
    engine = Engine(pair, rule_named(rule), max_new_tokens=NUM_NEW, **settings)
    engine._pass = RecordedPasses(FixedInputs)
    return engine.rollouts([Request(place, list(prompt)) for place, prompt in enumerate(prompts)])


def texts(rollouts: Sequence[Rollout]) -> list[tuple[int, ...]]:
    return [rollout.output_ids for rollout in rollouts]


@pytest.mark.parametrize("stride", [8, 512])
@pytest.mark.parametrize("rule", ["target", "strict", "never", "always"])
def test_recorded_passes_write_what_plain_ones_do(
    pair: Pair, prompts: list[list[int]], rule: str, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_STRIDE", stride)
    for batch_size in (1, 4):
        plain = decode(pair, rule, prompts, max_new_tokens=NUM_NEW, batch_size=batch_size)
        assert texts(recorded(pair, rule, prompts, batch_size=batch_size)) == texts(plain)
        assert FixedInputs.made, "nothing was recorded"


@pytest.mark.parametrize("family", ["gemma3_text", "mistral"])
def test_recorded_passes_keep_to_sliding_windows(family: str) -> None:
    pair, prompts = windowed_pair(family, "sdpa"), random_prompts(2, 11, 23)
    plain = decode(pair, "strict", prompts, max_new_tokens=NUM_NEW, batch_size=3)
    assert texts(recorded(pair, "strict", prompts, batch_size=3)) == texts(plain)


def test_recorded_passes_sample_what_plain_ones_do(llama: Pair) -> None:
    prompts = random_prompts(4, 9, 2, 6, seed=5)
    plain = decode(llama, "strict", prompts, max_new_tokens=NUM_NEW, batch_size=4, sampling=SAMPLED)
    assert texts(recorded(llama, "strict", prompts, batch_size=4, sampling=SAMPLED)) == texts(plain)


def test_fewer_rows_are_recorded_anew(llama: Pair) -> None:
    prompts = random_prompts(4, 4, 4, seed=7)
    requests = [Request(i, prompt, max_new_tokens=6 + 6 * i) for i, prompt in enumerate(prompts)]
    engine = Engine(llama, rule_named("target"), batch_size=3)
    engine._pass, FixedInputs.made = RecordedPasses(FixedInputs), []
    found = engine.rollouts(requests)
    assert texts(found) == texts(Engine(llama, rule_named("target"), batch_size=3).rollouts(requests))
    assert {rows for rows, _ in FixedInputs.made} == {1, 2, 3}


def test_recordings_end_with_their_caches(llama: Pair) -> None:
    engine = Engine(llama, rule_named("strict"), max_new_tokens=NUM_NEW)
    engine._pass = RecordedPasses(FixedInputs)
    FixedInputs.made = []
    engine.rollouts([Request(0, [5, 6, 7])])
    assert FixedInputs.made
    gc.collect()
    assert not engine._pass._shapes


def test_graphs_need_a_cuda_device(llama: Pair) -> None:
    with pytest.raises(ValueError, match="the pair is on cpu: use 'inductor'"):
        Engine(llama, rule_named("strict"), compile_mode="graphs")
    with pytest.raises(ValueError, match="choose 'inductor' or 'graphs'"):
        Engine(llama, rule_named("strict"), compile_mode="fast")  # type: ignore[arg-type]


def test_a_missing_compiler_is_named(llama: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(ValueError, match="install g\\+\\+"):
        Engine(llama, rule_named("strict"), compile_mode="inductor")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="inductor needs a C++ compiler: install g++")
@pytest.mark.parametrize("family", ["llama-sdpa", "gemma3_text"])
def test_inductor_writes_what_plain_passes_do(family: str) -> None:
    """Metamorphic: compiled or not, the same ids (fp32), greedy and sampled, alone and in batches."""
    pair = windowed_pair(family, "sdpa") if family == "gemma3_text" else family_pair(*family.split("-"))
    prompts = random_prompts(4, 9, 2, 23, seed=9)
    for rule in ("target", "strict", "always"):
        for batch_size in (1, 4):
            for sampling in (Sampling(), SAMPLED):
                settings = {"max_new_tokens": NUM_NEW, "batch_size": batch_size, "sampling": sampling}
                plain = decode(pair, rule, prompts, **settings)
                found = decode(pair, rule, prompts, **settings, compile_mode="inductor")
                assert texts(found) == texts(plain), (rule, batch_size, sampling)
    torch._dynamo.reset()
