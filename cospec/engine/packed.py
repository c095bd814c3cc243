"""Weights laid out once for a CPU's matrix kernels, where plain ones are laid out anew in every pass."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from cospec.engine.shared_copy import shared_copy
from cospec.pair import Pair

#: Smaller weights stay in a core's cache, and the call costs more than it saves.
_FEWEST_WEIGHTS = 1 << 20
#: The rows that the layout is chosen for; any number can be multiplied.
_ROWS = 8


def packed_pair(pair: Pair) -> Pair:
    """The pair over packed copies of its large weights, to decode with; ours.

    All else is shared with the models of ``pair``. An arbiter is built from ``pair`` itself. ValueError where packing
    cannot work (`check_packing`).
    """
    for model in (pair.draft, pair.target):
        if model is not None:
            weight = next(model.parameters())
            check_packing(weight.device.type, weight.dtype)
    target = _packed(pair.target)
    if pair.draft is None or pair.draft is pair.target:
        return dataclasses.replace(pair, draft=pair.draft and target, target=target)
    return dataclasses.replace(pair, draft=_packed(pair.draft), target=target)


def check_packing(device_type: str, dtype: torch.dtype | None = None) -> None:
    """ValueError for a device (torch's name of its type) or a type of weights that oneDNN does not pack here."""
    if device_type != "cpu":
        raise ValueError(f"packed weights are for CPUs, and the pair is on {device_type}: drop --packed")
    if not torch.backends.mkldnn.is_available():
        raise ValueError("packed weights need a torch built with oneDNN, and this one is not: drop --packed")
    if dtype is not None and not _has_kernels(dtype):
        raise ValueError(f"this CPU cannot multiply packed weights of {dtype}: set --dtype float32, or drop --packed")


def _has_kernels(dtype: torch.dtype) -> bool:
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return dtype == torch.float32


def _packed(model: PreTrainedModel) -> PreTrainedModel:
    twin = shared_copy(model)
    for name, module in list(twin.named_modules()):
        # Quantised and other kinds of linear layers keep their own kernels.
        if type(module) is nn.Linear and module.weight.numel() >= _FEWEST_WEIGHTS:
            twin.set_submodule(name, _PackedLinear(module))
    return twin


class _PackedLinear(nn.Module):
    """As `nn.Linear` over (..., in) in a layout of its own; without a gradient."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        # Still the model's parameters, for whoever looks at them; no second copy.
        self.weight, self.bias = linear.weight, linear.bias
        self._laid_out = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS)

    def forward(self, states: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(states, self._laid_out, self.bias, "none", [], "")
