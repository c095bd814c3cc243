"""A second module tree over the same weights."""

from __future__ import annotations

import copy

from transformers import PreTrainedModel


def shared_copy(module: PreTrainedModel) -> PreTrainedModel:
    """A copy of the module tree whose parameters and buffers are the original tensors."""
    tensors = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(tensor): tensor for tensor in tensors})
