"""The hidden states of chosen layers, taken from a model while it does what it does anyway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

#: What the last layer writes, before the last norm.
BEFORE_LAST_NORM = -1


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """What one pass left behind: ``by_layer`` holds (R, T, H) for every layer that was asked for.

    Layers are counted as in transformers' ``hidden_states``: 0 is the embeddings, i what layer i reads, and the number
    of layers what the output head reads, behind the last norm; `BEFORE_LAST_NORM` is the same state before that norm.
    These are the pass's own tensors, not copies.
    """

    by_layer: Mapping[int, Tensor]

    def of(self, layers: Sequence[int]) -> Tensor:
        """The states of ``layers`` side by side (R, T, len(layers) * H)."""
        states = [self.by_layer[layer] for layer in layers]
        return torch.cat([state.to(states[0].device) for state in states], dim=-1)

    def rows(self, index: Tensor) -> HiddenStates:
        """The states of these rows (R',) alone."""
        return HiddenStates({layer: state[index.to(state.device)] for layer, state in self.by_layer.items()})


class Taps:
    """Hooks on one model that keep the hidden states of ``layers`` while they are open.

    Raises ValueError for a layer the model does not have.
    """

    def __init__(self, model: PreTrainedModel, layers: Sequence[int]) -> None:
        self._decoder: nn.Module = model.get_decoder()
        self._blocks = self._decoder.layers
        self.layers, last = tuple(dict.fromkeys(layers)), len(self._blocks)
        for layer in self.layers:
            if not 0 <= layer <= last and layer != BEFORE_LAST_NORM:
                raise ValueError(
                    f"hidden states of layer {layer} are asked for, and this {type(model).__name__} has 0 (the "
                    f"embeddings) to {last} (behind its last norm): name one of these"
                )

    @contextmanager
    def open(self) -> Iterator[dict[int, Tensor]]:
        """A mapping that fills with the states by layer while the model runs."""
        found: dict[int, Tensor] = {}

        with ExitStack() as stack:
            for layer in self.layers:
                stack.callback(self._hook(layer, found).remove)
            yield found

    def _hook(self, layer: int, found: dict[int, Tensor]) -> RemovableHandle:
        def read(_module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
            found[layer] = args[0] if args else kwargs["hidden_states"]

        def written(_module: nn.Module, _args: Any, output: Any) -> None:
            found[layer] = output if isinstance(output, Tensor) else output[0]

        if layer == BEFORE_LAST_NORM:
            return self._blocks[-1].register_forward_hook(written)
        if layer == len(self._blocks):
            return self._decoder.register_forward_hook(written)
        return self._blocks[layer].register_forward_pre_hook(read, with_kwargs=True)
