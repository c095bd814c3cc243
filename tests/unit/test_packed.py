"""Packed weights against plain ones."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence

import pytest
import torch
from conftest import EOS, family_pair, random_prompts
from engine_checks import decode
from test_arbiter import live_arbiter
from test_windows import windowed_pair
from torch import nn

from cospec.arbiter.model import ArbiterScorer
from cospec.engine import packed
from cospec.engine.packed import check_packing, packed_pair
from cospec.engine.record import ContextCache, Rollout, Sampling
from cospec.engine.rules import ArbiterRule
from cospec.pair import Pair
from cospec.pins import model_pins

SAMPLED = Sampling(temperature=0.9, top_p=0.95)


def texts(rollouts: Sequence[Rollout]) -> list[tuple[int, ...]]:
    return [rollout.output_ids for rollout in rollouts]


@pytest.fixture
def every_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of any size are packed."""
    monkeypatch.setattr(packed, "_FEWEST_WEIGHTS", 1)


@pytest.mark.usefixtures("every_weight")
@pytest.mark.parametrize("family", ["llama-sdpa", "llama-eager", "qwen3-sdpa", "gemma3_text", "mistral"])
def test_packed_weights_write_what_plain_ones_do(family: str) -> None:
    """Metamorphic: the same ids (fp32), greedy and sampled, alone and in batches; prompts longer than a chunk too."""
    pair = family_pair(*family.split("-")) if "-" in family else windowed_pair(family, "sdpa")
    prompts = random_prompts(4, 9, 2, 23, seed=9)
    ours = packed_pair(pair)
    assert not any(type(module) is nn.Linear for module in ours.target.modules())
    for rule in ("target", "strict", "always"):
        for batch_size in (1, 4):
            for sampling in (Sampling(), SAMPLED):
                settings = {"max_new_tokens": 16, "batch_size": batch_size, "sampling": sampling, "prefill_chunk": 8}
                assert texts(decode(ours, rule, prompts, **settings)) == texts(decode(pair, rule, prompts, **settings))


@pytest.mark.usefixtures("every_weight")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_packed_logits_are_near_in_every_type(llama: Pair, dtype: torch.dtype) -> None:
    model = copy.deepcopy(llama.target).to(dtype)
    try:
        check_packing("cpu", dtype)
    except ValueError as error:
        pytest.skip(str(error))
    twin = packed._packed(model)
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        plain, ours = model(ids).logits, twin(ids).logits
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, plain, rtol=0.02, atol=1e-5 if dtype == torch.float32 else 0.02)


@pytest.mark.usefixtures("every_weight")
@pytest.mark.parametrize("context_cache", ["shared", "own"])
def test_an_arbiter_decides_the_same_over_packed_weights(llama: Pair, context_cache: ContextCache) -> None:
    rule, prompts = (
        ArbiterRule(ArbiterScorer(live_arbiter(llama.draft, context_cache), EOS)),
        random_prompts(4, 9, 2, 23, seed=9),
    )
    found = [texts(decode(pair, rule, prompts, max_new_tokens=20)) for pair in (llama, packed_pair(llama), llama)]
    assert found[0] == found[1] == found[2]
    layer = rule.scorer.net.backbone.layers[0].mlp.up_proj
    assert layer.base_layer is llama.draft.model.layers[0].mlp.up_proj, "bound to the pair that ran last"


@pytest.mark.usefixtures("every_weight")
def test_the_pair_itself_stays_as_it_was(llama: Pair) -> None:
    before = dict(llama.target.named_parameters())
    ours = packed_pair(llama)
    for model in (llama.target, ours.target):
        assert {name: id(tensor) for name, tensor in model.named_parameters()} == {n: id(t) for n, t in before.items()}
    assert model_pins(ours) == model_pins(llama)
    assert (ours.vocab_size, ours.eos_token_ids, ours.device) == (llama.vocab_size, llama.eos_token_ids, llama.device)


def test_small_weights_stay_as_they_are(llama: Pair) -> None:
    assert not any(isinstance(module, packed._PackedLinear) for module in packed_pair(llama).target.modules())


def test_a_pair_without_a_draft_is_packed(llama: Pair) -> None:
    alone = packed_pair(dataclasses.replace(llama, draft=None))
    assert alone.draft is None


def test_one_model_is_packed_once(llama: Pair) -> None:
    alone = packed_pair(llama.draft_alone())
    assert alone.draft is alone.target


def test_what_cannot_be_packed_is_named() -> None:
    with pytest.raises(ValueError, match="the pair is on cuda: drop --packed"):
        check_packing("cuda")
    with pytest.raises(ValueError, match=r"cannot multiply packed weights of torch\.float64"):
        check_packing("cpu", torch.float64)
