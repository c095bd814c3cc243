"""Tiny random models, a tiny tokenizer and the pairs made of them: everything in float32 on the CPU, one thread."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import dataclasses
import functools
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from cospec.pair import ModelSpec, Pair, PairSpec

torch.set_num_threads(1)

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>")
VOCAB_SIZE = 48
CONTEXT = 160
#: Chosen so that about half of the drafted tokens match and every kind of block occurs.
NOISE = {"llama": 0.02, "llama-tied": 0.03, "qwen3": 0.02}
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ m['role'] }} {{ m['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}"
)


def tiny_config(family: str, **changes: object) -> PretrainedConfig:
    """Llama (GQA, tied or not) or Qwen3, with weights large enough that greedy text does not stand still."""
    values: dict[str, object] = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": CONTEXT,
        "initializer_range": 0.3,
        "tie_word_embeddings": family == "llama-tied",
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }
    kind = Qwen3Config if family == "qwen3" else LlamaConfig
    return kind(**(values | changes))


def tiny_model(config: PretrainedConfig, seed: int, attn: str = "sdpa") -> nn.Module:
    """A random model that does not touch the global generator's state."""
    kind = Qwen3ForCausalLM if isinstance(config, Qwen3Config) else LlamaForCausalLM
    config._attn_implementation = attn
    # Saving writes these two into the config, and models are shared: they are there from the start.
    config.architectures, config.dtype = [kind.__name__], torch.float32
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config).float().eval().requires_grad_(False)


def perturbed(model: nn.Module, seed: int, scale: float) -> nn.Module:
    """The same model with noise on its matrices: a draft that agrees with its target part of the time."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.add_(torch.randn(weight.shape, generator=generator) * scale)
    return model


def word_tokenizer(size: int = VOCAB_SIZE, *, adds_bos: bool = True, template: bool = True) -> PreTrainedTokenizerFast:
    """A word-level tokenizer of ``size`` ids: four special tokens, the chat roles, and w7, w8, ..."""
    words = [*SPECIALS, "user", "assistant", "system", *(f"w{i}" for i in range(7, size))][:size]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if adds_bos:
        backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    if template:
        tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def pair_of(draft: nn.Module | None, target: nn.Module, vocab_size: int = VOCAB_SIZE, **changes: object) -> Pair:
    """A pair of models that are already in memory, without an end id unless ``changes`` names one."""
    specs = [model and ModelSpec(role, device="cpu") for role, model in (("draft", draft), ("target", target))]
    pair = Pair(
        draft=draft,
        target=target,
        tokenizer=_tokenizer(),
        vocab_size=vocab_size,
        draft_context=(draft or target).config.max_position_embeddings,
        target_context=target.config.max_position_embeddings,
        eos_token_ids=(),
        spec=PairSpec(*specs),
        tokenizer_digest="",
    )
    return dataclasses.replace(pair, **changes)


@functools.cache
def _tokenizer() -> PreTrainedTokenizerFast:
    return word_tokenizer()


@functools.cache
def family_pair(family: str, attn: str) -> Pair:
    """Target and draft of one family; the draft is the target with noise, so blocks match, mismatch and run through."""
    target = tiny_model(tiny_config(family), seed=1, attn=attn)
    draft = perturbed(tiny_model(tiny_config(family), seed=1, attn=attn), seed=2, scale=NOISE[family])
    return pair_of(draft, target)


@pytest.fixture(params=["llama-sdpa", "llama-eager", "llama-tied-sdpa", "qwen3-sdpa", "qwen3-eager"])
def pair(request: pytest.FixtureRequest) -> Pair:
    """Every family, and every attention implementation."""
    return family_pair(*request.param.rsplit("-", 1))


@pytest.fixture(params=["llama-sdpa", "llama-eager", "qwen3-sdpa", "qwen3-eager"])
def untied(request: pytest.FixtureRequest) -> Pair:
    """Every backbone, for the arbiter, which has no output embedding."""
    return family_pair(*request.param.rsplit("-", 1))


@pytest.fixture(params=["sdpa", "eager"])
def llama(request: pytest.FixtureRequest) -> Pair:
    """One family, for properties that no other part of the architecture touches."""
    return family_pair("llama", request.param)


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    """Six ragged prompts; the first has one token."""
    return random_prompts(1, 3, 4, 7, 12, 19)


def random_prompts(*lengths: int, seed: int = 0, vocab_size: int = VOCAB_SIZE) -> list[list[int]]:
    generator = random.Random(seed)
    return [[generator.randrange(4, vocab_size) for _ in range(length)] for length in lengths]


def late_ids(texts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Two ids that, as end ids, cut two of the texts behind their third token and leave the others alone."""
    found: list[int] = []
    for text in texts:
        others = {token for other in texts if other is not text for token in other}
        found += [token for token in text[3:-1] if token not in others and token not in text[:3]][:1]
    assert len(found) >= 2, "the texts are too much alike"
    return tuple(found[:2])


@pytest.fixture
def save_pair(tmp_path: Path) -> Callable[..., PairSpec]:
    """Writes two model directories, each with its tokenizer, and returns the spec that `load_pair` takes."""

    def save(
        draft: nn.Module | None = None,
        target: nn.Module | None = None,
        tokenizers: Sequence[PreTrainedTokenizerFast] | None = None,
        **settings: object,
    ) -> PairSpec:
        loaded = {
            "draft": draft or tiny_model(tiny_config("llama", hidden_size=16), seed=3),
            "target": target or tiny_model(tiny_config("llama"), seed=1),
        }
        for (role, model), tokenizer in zip(loaded.items(), tokenizers or [_tokenizer()] * 2, strict=True):
            model.save_pretrained(tmp_path / role)
            tokenizer.save_pretrained(tmp_path / role)
        specs = {role: ModelSpec(str(tmp_path / role), device="cpu") for role in loaded}
        return PairSpec(**(specs | settings))

    return save
