"""The EAGLE-3 head (Li et al. 2025, arXiv 2503.01840) as published checkpoints have it; chains only, no trees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen3 import modeling_qwen3 as qwen3

from cospec.engine.cache import cache_argument
from cospec.engine.heads.base import DraftHead, head_masks
from cospec.engine.hidden import BEFORE_LAST_NORM
from cospec.windows import window_of


class _Parts(NamedTuple):
    attention: type
    mlp: type
    norm: type
    rotary: type


_PARTS = {
    "llama": _Parts(llama.LlamaAttention, llama.LlamaMLP, llama.LlamaRMSNorm, llama.LlamaRotaryEmbedding),
    "qwen3": _Parts(qwen3.Qwen3Attention, qwen3.Qwen3MLP, qwen3.Qwen3RMSNorm, qwen3.Qwen3RotaryEmbedding),
}
#: Architectures of the head's decoder layer, by transformers' model types.
LAYER_TYPES = tuple(_PARTS)


@dataclass(frozen=True, slots=True)
class Variants:
    """In what published heads differ, named as the `speculators` library does.

    Whether the layer's residual is the normed hidden state; one norm over all features before ``fc``, or one for each
    layer's; and whether a head goes on from its normed states (EAGLE 3.1), not from those before the norm.
    """

    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False


@dataclass(frozen=True, slots=True)
class Eagle3Config:
    """The form of a head.

    ``layer`` is the config of its decoder layer; its ``vocab_size`` is the target's, of which the head drafts
    ``draft_vocab_size`` ids. ``tapped`` are the target's layers whose hidden states it reads, of ``target_hidden_size``
    each: j is what layer j reads, the number of layers what the last norm reads (as vLLM and `speculators` have it).
    ``target_name`` and ``target_architectures`` are what the checkpoint says it was made for, if anything.
    """

    layer: PretrainedConfig
    draft_vocab_size: int
    target_hidden_size: int
    tapped: tuple[int, ...]
    variants: Variants = field(default_factory=Variants)
    own_embedding: bool = False
    target_name: str | None = None
    target_architectures: tuple[str, ...] = ()


def default_layers(num_layers: int) -> tuple[int, ...]:
    """A low, a middle and a high layer, as EAGLE and vLLM choose them; a shallow target's first, middle and last."""
    wanted = (2, num_layers // 2, num_layers - 3)
    if 0 <= wanted[0] < wanted[1] < wanted[2]:
        return wanted
    return tuple(sorted({1, (num_layers + 1) // 2, num_layers}))


class Eagle3Layer(nn.Module):
    """A decoder layer whose attention reads embedding and hidden state side by side."""

    def __init__(self, config: PretrainedConfig, norm_before_residual: bool) -> None:
        super().__init__()
        parts, size = _PARTS[config.model_type], config.hidden_size
        self.norm_before_residual = norm_before_residual
        self.input_layernorm = parts.norm(size, eps=config.rms_norm_eps)
        self.hidden_norm = parts.norm(size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = parts.norm(size, eps=config.rms_norm_eps)
        self.self_attn = parts.attention(config, 0)
        for name in ("q_proj", "k_proj", "v_proj"):
            plain = getattr(self.self_attn, name)
            setattr(self.self_attn, name, nn.Linear(2 * size, plain.out_features, bias=plain.bias is not None))
        self.mlp = parts.mlp(config)
        self._cache_argument = cache_argument(self.self_attn)

    def forward(
        self, embeds: Tensor, hidden: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor, cache: Cache | None
    ) -> Tensor:
        """The layer's output (R, T, H) for embeddings and hidden states (R, T, H)."""
        normed = self.hidden_norm(hidden)
        residual = normed if self.norm_before_residual else hidden
        both = torch.cat([self.input_layernorm(embeds), normed], dim=-1)
        keywords: dict[str, Any] = {self._cache_argument: cache}
        attended, _ = self.self_attn(both, position_embeddings=rotary, attention_mask=mask, **keywords)
        hidden = residual + attended
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Eagle3Head(DraftHead):
    """Hidden states of three layers of the target through ``fc``, one decoder layer, an output over a draft vocabulary.

    Names of parameters are those of published checkpoints. Draft id i stands for the target's id i + d2t[i].
    """

    d2t: Tensor

    def __init__(self, config: Eagle3Config, target: PreTrainedModel) -> None:
        super().__init__(target)
        layer, size = config.layer, config.layer.hidden_size
        layer._attn_implementation = target.config._attn_implementation
        parts, num = _PARTS[layer.model_type], len(config.tapped)
        last = target.config.get_text_config().num_hidden_layers
        self.config = config
        self.tapped = tuple(BEFORE_LAST_NORM if number == last else number for number in config.tapped)
        self.max_context = int(layer.max_position_embeddings)
        self.fc = nn.Linear(num * config.target_hidden_size, size, bias=False)
        self.layers = nn.ModuleList([Eagle3Layer(layer, config.variants.norm_before_residual)])
        self.norm = parts.norm(size, eps=layer.rms_norm_eps)
        self.lm_head = nn.Linear(size, config.draft_vocab_size, bias=False)
        self.rotary_emb = parts.rotary(layer)
        self.embed_tokens = nn.Embedding(layer.vocab_size, size) if config.own_embedding else None
        wide = num * config.target_hidden_size
        self.input_norm = parts.norm(wide, eps=layer.rms_norm_eps) if config.variants.norm_before_fc else None
        norms = [parts.norm(config.target_hidden_size, eps=layer.rms_norm_eps) for _ in range(num)]
        self.fc_norm = nn.ModuleList(norms) if config.variants.fc_norm else None
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.long))
        self.masks = head_masks(target, window_of(layer), target.dtype)

    @property
    def target_ids(self) -> Tensor:
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def fuse(self, features: Tensor) -> Tensor:
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm is not None:
            parts = features.chunk(len(self.fc_norm), dim=-1)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        return self.fc(features)

    def read(self, ids: Tensor, hidden: Tensor, positions: Tensor, mask: Tensor, cache: Cache | None) -> Tensor:
        embeds = self.embedded(ids, hidden.dtype) if self.embed_tokens is None else self.embed_tokens(ids)
        states = self.layers[0](embeds, hidden, self.rotary_emb(hidden, positions), mask, cache)
        return self.norm(states) if self.config.variants.norm_output else states

    def draft_logits(self, states: Tensor) -> Tensor:
        return self.lm_head(states if self.config.variants.norm_output else self.norm(states))
