"""SlotCache: preallocated keys and values with a length per row, and PassCache, what one forward pass sees of it.

Layout of every buffer along its token axis: ``[scratch | position 0, position 1, ...]``. A context token's slot is
``scratch + position``. The scratch slots hold what must never stay (an arbiter's region), so such a pass overwrites
nothing, and ordinary passes see a plain view that starts behind them. Rolling back only lowers a length: stale values
behind it are never attended (the mask stops at each query's own position) and are overwritten by the next tokens.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache


class SlotCache:
    """Keys and values of ``num_rows`` independent rows; ours.

    ``lengths`` (B,) counts the valid context tokens of each row. ``keys`` and ``values`` hold a buffer (B, H, scratch +
    capacity, D) for each layer once the first pass has made them.
    """

    def __init__(self, num_rows: int, capacity: int, scratch: int, device: torch.device) -> None:
        self.num_rows, self.capacity, self.scratch = num_rows, capacity, scratch
        self.lengths = torch.zeros(num_rows, dtype=torch.long, device=device)
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        # Every position, the last one and every row: no pass has to make them anew.
        self.line = torch.arange(capacity, device=device)
        self.last = self.line[-1]
        self.every_row = torch.arange(num_rows, device=device)

    def buffer(self, states: Tensor) -> Tensor:
        """An empty buffer for keys or values like ``states`` (R, H, T, D)."""
        shape = (self.num_rows, states.shape[1], self.scratch + self.capacity, states.shape[3])
        # Zeros, not empty: a masked slot still enters softmax(...) @ v with weight 0, and 0 * NaN is NaN.
        return states.new_zeros(shape)

    def behind(self, starts: Tensor, counts: Tensor, width: int, line: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Places and positions (R, T) of ``width`` tokens behind ``starts`` (R,), and what they may see (R, T, S).

        The first ``counts`` (R,) of a row are real; ``line`` (S,) are the positions that may be read, from 0 on.
        """
        # Padding may run past the buffer's end; its last slot lies behind every real token and holds nothing.
        places = torch.minimum(starts[:, None] + line[:width], self.last)
        # A padding token repeats the last real position, so that no rotary embedding sees one beyond the context.
        positions = torch.minimum(places, (starts + counts - 1).clamp_min(0)[:, None])
        # It attends at least to itself, so that no query row is empty.
        return places, positions, line <= places[:, :, None]

    def select_rows(self, rows: Tensor) -> None:
        """Keep only ``rows`` (R,), in that order; the memory of the others is given back."""
        for buffers in (self.keys, self.values):
            for layer, buffer in enumerate(buffers):
                buffers[layer] = buffer.index_select(0, rows)
        self.lengths = self.lengths[rows]
        self.num_rows = len(rows)
        self.every_row = self.every_row[: self.num_rows]


class PassCache(Cache):
    """A SlotCache during one forward pass, which writes to ``slots`` (R, T) and reads slots ``begin`` to ``stop``.

    ``rows`` (R,) are those that take part, None for all of them.
    """

    def __init__(self, store: SlotCache, slots: Tensor, begin: int, stop: int, rows: Tensor | None) -> None:
        super().__init__(layers=[])
        self._store, self._slots, self._begin, self._stop, self._rows = store, slots, begin, stop, rows
        self._places = (store.every_row if rows is None else rows)[:, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Store this layer's new keys and values (R, H, T, D); return what the pass may attend to (R, H, S, D)."""
        store = self._store
        while len(store.keys) <= layer_idx:
            store.keys.append(store.buffer(key_states))
            store.values.append(store.buffer(value_states))
        return self._put(store.keys[layer_idx], key_states), self._put(store.values[layer_idx], value_states)

    def _put(self, buffer: Tensor, states: Tensor) -> Tensor:
        buffer.transpose(1, 2)[self._places, self._slots] = states.transpose(1, 2)
        view = buffer[:, :, self._begin : self._stop]
        return view if self._rows is None else view.index_select(0, self._rows)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Where a model would count positions from; it never does, as every pass is given its own."""
        return self._stop - self._begin

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        return self._stop - self._begin, 0


def cache_argument(model: PreTrainedModel) -> str:
    """The forward argument that takes the cache: ``cache`` from transformers 5.24 on, ``past_key_values`` before."""
    parameters = inspect.signature(type(model).forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"
