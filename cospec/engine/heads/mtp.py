"""The multi-token-prediction layer that some models ship beside their own (DeepSeek-AI 2024, arXiv 2412.19437, 2.2)."""

from __future__ import annotations

import copy
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.cache_utils import Cache

from cospec.engine.cache import cache_argument
from cospec.engine.heads.base import DraftHead, decoder_of, head_masks
from cospec.windows import window_of


def layer_config(target: PreTrainedModel) -> PretrainedConfig:
    """The config of the layer: the target's, its per-layer lists reduced to this one layer."""
    config = copy.deepcopy(target.config.get_text_config())
    config._attn_implementation = target.config._attn_implementation
    if getattr(config, "layer_types", None):
        config.layer_types = list(getattr(config, "mtp_layer_types", None) or ["full_attention"])[:1]
    if getattr(config, "mlp_layer_types", None):
        config.mlp_layer_types = list(getattr(config, "mtp_mlp_layer_types", None) or config.mlp_layer_types[-1:])[:1]
    if hasattr(config, "first_k_dense_replace"):
        # The layer is of the kind of the last ones, experts and all.
        config.first_k_dense_replace = 0
    config.num_hidden_layers = 1
    return config


class MtpHead(DraftHead):
    """Final hidden state and next embedding, each normed, projected together, through a decoder layer of the target's
    own kind; embedding and output are the target's.

    It predicts the token at t + 2 from the hidden state at t and the token at t + 1. Applied recursively it goes on
    from its own states (as vLLM and transformers do where there is one layer). Names of parameters are those of the
    `speculators` library, the decoder layer's own behind ``block.``.
    """

    def __init__(self, target: PreTrainedModel) -> None:
        super().__init__(target)
        decoder, config = decoder_of(target), layer_config(target)
        size, norm = config.hidden_size, type(decoder.norm)
        self.config, self.tapped = config, (len(decoder.layers),)
        self.max_context = int(config.max_position_embeddings)
        self.hidden_layernorm = norm(size, eps=config.rms_norm_eps)
        self.token_layernorm = norm(size, eps=config.rms_norm_eps)
        self.input_proj = nn.Linear(2 * size, size, bias=False)
        self.block = type(decoder.layers[-1])(config, 0)
        self.final_layernorm = norm(size, eps=config.rms_norm_eps)
        self.masks = head_masks(target, window_of(config), target.dtype)
        self._cache_argument = cache_argument(self.block)
        # A stack with one rotary embedding for each kind of layer is told which.
        by_kind = "layer_type" in signature(decoder.rotary_emb.forward).parameters
        self._rotary: dict[str, Any] = {"layer_type": config.layer_types[0]} if by_kind else {}

    def fuse(self, features: Tensor) -> Tensor:
        return features

    def read(self, ids: Tensor, hidden: Tensor, positions: Tensor, mask: Tensor, cache: Cache | None) -> Tensor:
        normed = [self.token_layernorm(self.embedded(ids, hidden.dtype)), self.hidden_layernorm(hidden)]
        if getattr(self.config, "mtp_hidden_states_first", False):
            normed.reverse()
        inputs = self.input_proj(torch.cat(normed, dim=-1))
        rotary = decoder_of(self.target).rotary_emb(inputs, positions, **self._rotary)
        keywords: dict[str, Any] = {self._cache_argument: cache}
        output = self.block(inputs, attention_mask=mask, position_ids=positions, position_embeddings=rotary, **keywords)
        return self.final_layernorm(output if isinstance(output, Tensor) else output[0])

    def draft_logits(self, states: Tensor) -> Tensor:
        return self.target.get_output_embeddings()(states.to(self.target.dtype)).to(states.device)
