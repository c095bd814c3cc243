"""SlotCache: preallocated keys and values with a length per row, and the forward passes that fill it.

Layout of every buffer along its token axis: ``[scratch | position 0, position 1, ...]``. A context token's slot is
``scratch + position``. The scratch slots hold what must never stay (an arbiter's region), so such a pass overwrites
nothing, and ordinary passes see a plain view that starts behind them. Rolling back only lowers a length: stale values
behind it are never attended (the mask stops at each query's own position) and are overwritten by the next tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from cospec.engine.masks import attention_masks


class SlotCache(Cache):
    """Keys and values of ``num_rows`` independent rows; ours.

    ``lengths`` (B,) counts the valid context tokens of each row. `plan` says where the next forward pass writes and
    what it may read; `update` is then called by the model, once per layer.
    """

    def __init__(self, num_rows: int, capacity: int, scratch: int = 0) -> None:
        super().__init__(layers=[])
        self.num_rows, self.capacity, self.scratch = num_rows, capacity, scratch
        self.lengths = torch.zeros(num_rows, dtype=torch.long)
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._rows: Tensor | None = None
        self._places = torch.empty(0, 1, dtype=torch.long)
        self._slots = torch.empty(0, 0, dtype=torch.long)
        self._read = slice(0, 0)

    def plan(self, slots: Tensor, read: slice, rows: Tensor | None = None) -> None:
        """Set the next pass: write to ``slots`` (R, T), read the buffer's ``read`` range; ``rows`` (R,) or all rows."""
        self._slots, self._read, self._rows = slots, read, rows
        self._places = (torch.arange(self.num_rows, device=slots.device) if rows is None else rows)[:, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store this layer's new keys and values (R, H, T, D); return what the pass may attend to (R, H, S, D)."""
        while len(self._keys) <= layer_idx:
            self._keys.append(self._buffer(key_states))
            self._values.append(self._buffer(value_states))
        return self._store(self._keys[layer_idx], key_states), self._store(self._values[layer_idx], value_states)

    def _buffer(self, states: Tensor) -> Tensor:
        shape = (self.num_rows, states.shape[1], self.scratch + self.capacity, states.shape[3])
        # Zeros, not empty: a masked slot still enters softmax(...) @ v with weight 0, and 0 * NaN is NaN.
        return states.new_zeros(shape)

    def _store(self, buffer: Tensor, states: Tensor) -> Tensor:
        buffer.transpose(1, 2)[self._places, self._slots] = states.transpose(1, 2)
        view = buffer[:, :, self._read]
        return view if self._rows is None else view.index_select(0, self._rows)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The longest row; models ask for it only where no position ids are given, which never happens here."""
        return int(self.lengths.max())

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self._read.stop - self._read.start, 0

    def select_rows(self, rows: Tensor) -> None:
        """Keep only ``rows`` (R,), in that order; the memory of the others is given back."""
        for buffers in (self._keys, self._values):
            for layer, buffer in enumerate(buffers):
                buffers[layer] = buffer.index_select(0, rows.to(buffer.device))
        self.lengths = self.lengths[rows.to(self.lengths.device)]
        self.num_rows = len(rows)


class CachedModel:
    """A causal LM over a SlotCache: append tokens at each row's end, or look at a region that leaves no trace."""

    def __init__(self, model: PreTrainedModel, num_rows: int, capacity: int, scratch: int = 0) -> None:
        self.model = model
        self.device = next(model.parameters()).device
        self.cache = SlotCache(num_rows, capacity, scratch)
        self.cache.lengths = self.cache.lengths.to(self.device)
        self._cache_argument = cache_argument(model)

    def append(
        self, ids: Tensor, counts: Tensor, longest: int, rows: Tensor | None = None, *, head: bool = True
    ) -> Any:
        """Feed ``ids`` (R, T), of which the first ``counts`` (R,) of each row are real and lengthen it.

        ``longest`` is at least the length of every row that is fed (the caller knows it on the host; asking the device
        would wait for it). Returns the model's output, without ``head`` that of its backbone. Padding behind the real
        tokens is written beyond the row's length and attends at least to itself, so no query row is empty.
        """
        cache = self.cache
        starts = cache.lengths if rows is None else cache.lengths[rows]
        steps = torch.arange(ids.shape[1], device=self.device)
        # Padding may run past the buffer's end; its last slot lies behind every real token and holds nothing.
        places = (starts[:, None] + steps).clamp_max(cache.capacity - 1)
        # A padding token repeats the last real position, so that no rotary embedding sees one beyond the context.
        positions = torch.minimum(places, (starts + counts - 1).clamp_min(0)[:, None])
        stop = min(longest + ids.shape[1], cache.capacity)
        allowed = torch.arange(stop, device=self.device) <= places[:, :, None]
        cache.plan(cache.scratch + places, slice(cache.scratch, cache.scratch + stop), rows)
        if rows is None:
            cache.lengths = starts + counts
        else:
            cache.lengths[rows] = starts + counts
        return self.forward(ids, positions, allowed, torch.arange(stop, device=self.device)[None], head=head)

    def prefill(self, ids: Tensor, lengths: Mapping[int, int], chunk: int) -> None:
        """Rows start anew: read the first ``lengths[row] - 1`` tokens of ``ids`` (B, C), ``chunk`` at a time.

        The last token is left out, as it is the first input of a row's first round.
        """
        if lengths:
            self.cache.lengths[list(lengths)] = 0
        for start in range(0, max(lengths.values(), default=1) - 1, chunk):
            counts = {row: min(length - 1 - start, chunk) for row, length in lengths.items() if length - 1 > start}
            rows = torch.tensor(list(counts), device=self.device)
            columns = slice(start, start + max(counts.values()))
            self.append(
                ids[rows, columns], torch.tensor(list(counts.values()), device=self.device), start, rows, head=False
            )

    def forward(
        self, ids: Tensor, positions: Tensor, allowed: Tensor, key_positions: Tensor, *, head: bool = True
    ) -> Any:
        """One planned pass; ``allowed`` (R, T, S) is True where a query may attend, keys being at ``key_positions``."""
        mask = attention_masks(allowed, positions, key_positions, self.model)
        model = self.model if head else self.model.base_model
        return model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **{self._cache_argument: self.cache},
        )


def cache_argument(model: PreTrainedModel) -> str:
    """The forward argument that takes the cache: ``cache`` from transformers 5.24 on, ``past_key_values`` before."""
    parameters = inspect.signature(type(model).forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"
