"""Families by how they do their attention: exact in ragged batches, or refused by name before weights are read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import BOS, EOS, PAD, VOCAB_SIZE, pair_of, perturbed, random_prompts
from reference import generated
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from cospec.engine.decode import Engine
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.pair import context_limit

CONTEXT = 64
SPECIAL: dict[str, Any] = {"vocab_size": VOCAB_SIZE, "pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
SHAPE: dict[str, Any] = SPECIAL | {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
    "tie_word_embeddings": False,
}
GPT: dict[str, Any] = SPECIAL | {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": CONTEXT}
BERT: dict[str, Any] = SHAPE | {"is_decoder": True}
EXACT: dict[str, dict[str, Any]] = {
    "gpt2": GPT | {"initializer_range": 0.3},
    "opt": SHAPE | {"ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.3},
    "biogpt": SHAPE,
    "falcon": SHAPE | {"alibi": False},
    "stablelm": SHAPE | {"num_key_value_heads": 4},
    "gpt_neox": SHAPE,
    "gpt_neox_japanese": SHAPE | {"intermediate_multiple_size": 2},
    "megatron-bert": BERT,
    "rembert": BERT,
    "xglm": SPECIAL
    | {"d_model": 32, "ffn_dim": 48, "num_layers": 2, "attention_heads": 4}
    | {"max_position_embeddings": CONTEXT, "init_std": 0.3, "tie_word_embeddings": False},
}
#: Families that know no sdpa.
EAGER = ("gpt_neox_japanese", "megatron-bert", "rembert", "xglm")
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "gpt_neo": (SHAPE | {"num_layers": 2, "attention_types": [[["global", "local"], 1]]}, "an attention of its own"),
    "bloom": (SPECIAL, "an attention of its own"),
    "mpt": (SPECIAL, "an attention of its own"),
    "openai-gpt": (GPT, "an attention of its own"),
    "cpmant": (SPECIAL, "an attention of its own"),
    "falcon": (SHAPE | {"alibi": True}, "ALiBi"),
    "bart": (SPECIAL, "encoder-decoder"),
    "marian": (SPECIAL | {"decoder_vocab_size": VOCAB_SIZE}, "encoder-decoder"),
}


def model_of(config: PretrainedConfig, attn: str, scale: float) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attn).float().eval()
    return perturbed(model.requires_grad_(False), seed=2, scale=scale)


@pytest.mark.parametrize("family", EXACT)
def test_ragged_batches_up_to_the_contexts_end_write_what_transformers_writes(family: str) -> None:
    """Learned positions among them, of which there are no more than the context has."""
    config = AutoConfig.for_model(family, **EXACT[family])
    assert context_limit(config, "target") in (CONTEXT, 1 << 30)
    prompts = random_prompts(1, 5, 12, 30, CONTEXT - 9, seed=3)
    for attn in ("eager",) if family in EAGER else ("sdpa", "eager"):
        target = model_of(config, attn, 0.2)
        draft = perturbed(model_of(config, attn, 0.2), seed=4, scale=0.03)
        pair = pair_of(draft, target, draft_context=CONTEXT, target_context=CONTEXT)
        engine = Engine(pair, rule_named("strict"), num_draft_tokens=4, batch_size=3, max_new_tokens=CONTEXT)
        found = engine.rollouts([Request(i, prompt) for i, prompt in enumerate(prompts)])
        assert all(len(rollout.prompt_ids) + len(rollout.output_ids) == CONTEXT for rollout in found)
        assert max(len(set(rollout.output_ids)) for rollout in found) > 3, "a text that stands still says little"
        assert any(rollout.num_accepted for rollout in found)
        for prompt, rollout in zip(prompts, found, strict=True):
            assert list(rollout.output_ids) == generated(target, prompt, CONTEXT - len(prompt))


@pytest.mark.parametrize("family", REFUSED)
def test_models_that_make_masks_or_positions_themselves_are_refused_by_name(family: str) -> None:
    values, reason = REFUSED[family]
    config = AutoConfig.for_model(family, **values)
    with pytest.raises(ValueError, match=f"the draft \\({family}\\) .*{reason}.*choose a model of another family"):
        context_limit(config, "draft")
