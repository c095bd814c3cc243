"""Grouped-query attention that reads keys and values where they lie."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward

#: Queries of a pass up to which heads are folded: behind them the mask, which grows with the heads, is the larger part.
_FEW = 64
#: A module without groups, for which nothing is copied.
_UNGROUPED = nn.Module()


def use_grouped_attention() -> None:
    """Let transformers' `sdpa` fold the heads of a group in passes over few tokens, for all models of the process.

    Under a mask it copies keys and values for every query head, several times the cache, in every layer of every
    verification; for a single token it folds heads too.
    """
    AttentionInterface.register("sdpa", grouped_attention)


def grouped_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **settings: Any
) -> tuple[Tensor, Tensor | None]:
    """Outputs (B, T, Hq, D) of queries (B, Hq, T, D) over keys and values (B, Hkv, S, D), as transformers' `sdpa`.

    The Hq / Hkv heads that share keys become further queries (B, Hkv, Hq / Hkv * T, D) where the mask (B, 1, T, S) is
    the same for all of them.
    """
    batch, num_heads, width, size = query.shape
    groups = num_heads // key.shape[1]
    folds = groups > 1 and 1 < width <= _FEW and settings.get("position_bias") is None
    if not folds or attention_mask is None or attention_mask.shape[1] != 1:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **settings)
    folded = query.reshape(batch, key.shape[1], groups * width, size)
    mask = attention_mask.expand(-1, groups, -1, -1).reshape(len(attention_mask), 1, groups * width, -1)
    output, weights = sdpa_attention_forward(_UNGROUPED, folded, key, value, mask, **settings)
    by_head = output.unflatten(1, (groups, width)).permute(0, 2, 3, 1, 4)
    return by_head.flatten(2, 3), weights
