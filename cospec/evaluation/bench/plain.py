"""What a forward pass costs in transformers' own terms, for a comparison that nothing of the engine is part of."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedModel

from cospec.engine.cache import cache_argument
from cospec.evaluation.bench.cells import Part
from cospec.evaluation.bench.forwards import ForwardTimer
from cospec.evaluation.bench.probe import typical_s

_CHUNK = 512


class PlainPasses:
    """A model as transformers runs it: a growing cache and no mask of ours, ``context`` tokens in each row.

    ``model`` is a language model, or with ``head`` a backbone that goes with it.
    """

    def __init__(
        self, part: Part, model: PreTrainedModel, ids: Tensor, context: int, head: nn.Module | None = None
    ) -> None:
        self._part, self._model, self._ids, self._context, self._head = part, model, ids, context, head
        backbone = model.base_model
        self._cache, self._name = DynamicCache(config=backbone.config), cache_argument(backbone)
        with torch.no_grad():
            for start in range(0, context, _CHUNK):
                self._call(backbone, ids[:, start : min(start + _CHUNK, context)], self._cache)

    def seconds(self, width: int) -> float:
        """A pass of ``width`` tokens of every row."""
        return typical_s(lambda: self._pass(width), self._timer, self._ids.device)

    def _pass(self, width: int) -> None:
        # Layers grow into new tensors, so that copies of them leave the context as it is. To crop them instead would
        # not do: one that has slid past its window does not know any more what it let go.
        cache = copy.copy(self._cache)
        cache.layers = [copy.copy(layer) for layer in self._cache.layers]
        output = self._call(self._model, self._ids[:, self._context : self._context + width], cache)
        if self._head is not None:
            self._head(output.last_hidden_state)

    def _timer(self) -> ForwardTimer:
        timer = ForwardTimer(self._ids.device)
        if self._head is None:
            timer.watch(self._part, self._model)
        else:
            timer.watch_parts(self._part, self._model, self._head)
        return timer

    def _call(self, model: nn.Module, ids: Tensor, cache: DynamicCache) -> Any:
        return model(input_ids=ids, use_cache=True, **{self._name: cache})
