"""4-D attention masks in the form that a model's attention takes, its sliding windows included."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cospec.windows import window_of


def attention_masks(
    allowed: Tensor, positions: Tensor, key_positions: Tensor, model: PreTrainedModel
) -> Tensor | dict[str, Tensor]:
    """The mask of a pass, or one for each kind of layer where some have a sliding window.

    ``allowed`` (R, T, S) is True where a query at ``positions`` (R, T) may attend to a key at ``key_positions``
    (R or 1, S). Raises ValueError for an attention implementation that ignores 4-D masks.
    """
    config = model.config.get_text_config()
    window = window_of(config)
    if window is None:
        return _in_form(allowed, model)
    near = key_positions[:, None] > positions[..., None] - window
    kinds = getattr(config, "layer_types", None)
    if not kinds:
        return _in_form(allowed & near, model)
    return {kind: _in_form(allowed & near if kind == "sliding_attention" else allowed, model) for kind in set(kinds)}


def _in_form(allowed: Tensor, model: PreTrainedModel) -> Tensor:
    """(R, 1, T, S): bool for sdpa, additive for eager."""
    implementation = model.config._attn_implementation
    if implementation == "sdpa":
        return allowed[:, None]
    if implementation == "eager":
        dtype = next(model.parameters()).dtype
        return torch.where(allowed[:, None], 0.0, torch.finfo(dtype).min).to(dtype)
    raise ValueError(
        f"attention implementation {implementation!r} cannot take the engine's 4-D mask: set attn to 'sdpa' or 'eager'"
    )
