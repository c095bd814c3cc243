"""Models with sliding windows, beyond their windows: the text of transformers' own generate, token for token."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import BOS, EOS, PAD, VOCAB_SIZE, pair_of, perturbed, random_prompts
from reference import generated
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3TextConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3Config,
    SmolLM3Config,
)

from cospec.arbiter.layout import decisions_item, pack
from cospec.arbiter.model import ArbiterScorer, new_arbiter
from cospec.engine.decode import Engine
from cospec.engine.record import Bonus, ContextCache
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, rule_named
from cospec.evaluation.bench.plain import PlainPasses
from cospec.pair import Pair, context_limit
from cospec.windows import WINDOWED, window_of

WINDOW = 6
SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 160,
    "initializer_range": 0.3,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "sliding_window": WINDOW,
}
FAMILIES: dict[str, Callable[..., PretrainedConfig]] = {
    "qwen2": functools.partial(Qwen2Config, use_sliding_window=True, max_window_layers=1),
    "qwen3": functools.partial(Qwen3Config, use_sliding_window=True, max_window_layers=1),
    # Tied to embeddings scaled up, as theirs are, a tiny random model writes its last token again and again.
    "gemma2": functools.partial(Gemma2Config, tie_word_embeddings=False),
    "gemma3_text": functools.partial(Gemma3TextConfig, sliding_window_pattern=2, tie_word_embeddings=False),
    "mistral": MistralConfig,
    "smollm3": functools.partial(SmolLM3Config, use_sliding_window=True, no_rope_layer_interval=2),
}


def windowed(family: str, attn: str, **changes: Any) -> nn.Module:
    config = FAMILIES[family](**(SHAPE | changes))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attn, dtype=torch.float32)
    return model.eval().requires_grad_(False)


@functools.cache
def windowed_pair(family: str, attn: str) -> Pair:
    return pair_of(perturbed(windowed(family, attn), seed=2, scale=0.02), windowed(family, attn))


def test_every_family_with_windows_of_its_own_is_here() -> None:
    assert set(FAMILIES) == WINDOWED


#: Gemma 2 caps its attention scores, which transformers has for eager attention only.
CASES = [(family, attn) for family in FAMILIES for attn in ("sdpa", "eager") if (family, attn) != ("gemma2", "sdpa")]


@pytest.mark.parametrize(("family", "attn"), CASES)
def test_beyond_the_window_the_text_is_that_of_transformers(family: str, attn: str) -> None:
    pair = windowed_pair(family, attn)
    config = pair.target.config
    assert config.model_type == family
    window = window_of(config)
    assert window is not None
    assert window < 8
    assert context_limit(config, "target") == 160
    prompts = random_prompts(2, 5, 11, 23)
    texts = [generated(pair.target, prompt, 14) for prompt in prompts]
    whole = windowed(family, attn, sliding_window=150)
    assert texts != [generated(whole, prompt, 14) for prompt in prompts], "the window makes no difference"
    requests = [Request(i, prompt) for i, prompt in enumerate(prompts)]
    for rule, k in (("target", 1), ("strict", 2), ("strict", 7), ("never", 4)):
        engine = Engine(pair, rule_named(rule), num_draft_tokens=k, max_new_tokens=14, batch_size=3, prefill_chunk=4)
        assert [list(rollout.output_ids) for rollout in engine.rollouts(requests)] == texts


@pytest.mark.parametrize("family", ["qwen3", "mistral", "gemma3_text"])
@pytest.mark.parametrize("mode", ["own", "shared"])
@pytest.mark.parametrize("bonus", ["arbitrated", "target"])
def test_an_arbiter_over_a_windowed_draft_scores_in_decoding_as_in_training(
    family: str, mode: ContextCache, bonus: Bonus
) -> None:
    pair = windowed_pair(family, "sdpa")
    arbiter = new_arbiter(pair.draft, mode)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in arbiter.parameters():
            if weight.requires_grad:
                weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    rule = ArbiterRule(ArbiterScorer(arbiter, EOS))
    engine = Engine(pair, rule, num_draft_tokens=3, bonus=bonus, max_new_tokens=14, batch_size=2)
    prompts = random_prompts(9, 3, 17, seed=4)
    num_decisions = 0
    for rollout in engine.rollouts([Request(i, prompt) for i, prompt in enumerate(prompts)]):
        packed = pack([decisions_item(rollout)], EOS)
        with torch.no_grad():
            probs = torch.sigmoid(arbiter(**packed.tensors()))[packed.read_mask]
        decided = [decision.keep_prob for decision in rollout.decisions]
        assert decided == pytest.approx(probs.tolist(), abs=1e-5)
        num_decisions += len(decided)
    assert num_decisions > 4


@pytest.mark.parametrize(("family", "attn"), CASES)
def test_every_bare_pass_of_a_sweep_starts_from_the_same_text(family: str, attn: str) -> None:
    model, (prompt,) = windowed_pair(family, attn).target, random_prompts(4 * WINDOW)
    ids, context, seen = torch.tensor([prompt, prompt]), 3 * WINDOW, []
    passes = PlainPasses("target", model, ids, context)
    handle = model.register_forward_hook(lambda module, args, output: seen.append(output.logits))
    try:
        assert min(passes.seconds(width) for width in (1, WINDOW)) > 0
    finally:
        handle.remove()
    whole = model(input_ids=ids).logits
    assert len(seen) > 2
    for logits in seen:
        expected = whole[:, context : context + logits.shape[1]]
        torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
