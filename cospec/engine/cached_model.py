"""CachedModel: a causal LM over a SlotCache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cospec.engine.cache import PassCache, SlotCache, cache_argument
from cospec.engine.grouped_attention import use_grouped_attention
from cospec.engine.hidden import HiddenStates, Taps
from cospec.engine.masks import Masks

#: How `append_pass` is run: as it is, or compiled (`cospec.engine.compiled`).
AppendPass = Callable[["CachedModel", Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class PromptPart:
    """What one pass over prompts read: of row ``rows[i]`` the ``counts[i]`` tokens from position ``starts[i]`` on.

    ``hidden`` (R, T, H by layer) belongs to them; ``stop`` is where the longest of them ends.
    """

    rows: tuple[int, ...]
    starts: Tensor
    counts: Tensor
    hidden: HiddenStates
    stop: int

    def among(self, wanted: Mapping[int, int]) -> PromptPart | None:
        """The part of the rows that are ``wanted``, None if there are none."""
        kept = [place for place, row in enumerate(self.rows) if row in wanted]
        if len(kept) in (0, len(self.rows)):
            return self if kept else None
        index = torch.tensor(kept, device=self.counts.device)
        rows = tuple(self.rows[place] for place in kept)
        return PromptPart(rows, self.starts[index], self.counts[index], self.hidden.rows(index), self.stop)


class CachedModel:
    """A causal LM over a SlotCache: append tokens at each row's end, or look at a region that leaves no trace.

    ``run`` takes the passes over all rows, None for `append_pass` itself. ``hidden`` holds the hidden states of
    ``layers`` at the tokens that were fed last, None where no layers are named.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        num_rows: int,
        capacity: int,
        scratch: int = 0,
        run: AppendPass | None = None,
        layers: Sequence[int] = (),
    ) -> None:
        use_grouped_attention()
        self.model = model
        self.device = next(model.parameters()).device
        self.cache = SlotCache(num_rows, capacity, scratch, self.device)
        self.masks = Masks.of(model)
        self.taps = Taps(model, layers) if layers else None
        self.hidden: HiddenStates | None = None
        self._run = run
        self._cache_argument = cache_argument(model)

    def append(self, ids: Tensor, counts: Tensor, longest: int) -> Tensor:
        """Feed ``ids`` (B, T), of which the first ``counts`` (B,) of each row are real and lengthen it.

        ``longest`` is at least the length of every row (the caller knows it on the host; asking the device would wait
        for it). Returns the logits (B, T, V). Padding behind the real tokens is written beyond the row's length.
        """
        cache = self.cache
        starts, line = cache.lengths, cache.line[: longest + ids.shape[1]]
        cache.lengths = starts + counts
        # The first pass makes the buffers, which a compiled one must find.
        run = self._run if self._run and cache.keys else append_pass
        return run(self, ids, starts, counts, line)

    def prefill(
        self,
        ids: Tensor,
        lengths: Mapping[int, int],
        chunk: int,
        on_part: Callable[[PromptPart], None] | None = None,
    ) -> None:
        """Rows start anew: read the first ``lengths[row] - 1`` tokens of ``ids`` (B, C), ``chunk`` a pass.

        The last token is left out, as it is the first input of a row's first round. The head is not needed. Rows share
        the passes evenly, so that a short prompt among long ones is not padded to their length. ``on_part`` is told of
        each pass's hidden states.
        """
        cache = self.cache
        if lengths:
            cache.lengths[list(lengths)] = 0
        start = 0
        while left := {row: length - 1 - start for row, length in lengths.items() if length - 1 > start}:
            width = max(1, chunk // len(left))
            counts = {row: min(num, width) for row, num in left.items()}
            rows = torch.tensor(list(counts), device=self.device)
            num = torch.tensor(list(counts.values()), device=self.device)
            stop = start + max(counts.values())
            starts, line = cache.lengths[rows], cache.line[:stop]
            cache.lengths[rows] = starts + num
            # To name every row would copy what the pass reads.
            among = None if list(counts) == list(range(cache.num_rows)) else rows
            _append(self, self.model.base_model, ids[rows, start:stop], starts, num, line, among)
            if on_part:
                assert self.hidden, "no layers were named"
                on_part(PromptPart(tuple(counts), starts, num, self.hidden, stop))
                self.hidden = None
            start = stop

    def forward(
        self,
        module: PreTrainedModel,
        ids: Tensor,
        positions: Tensor,
        slots: Tensor,
        mask: Tensor | dict[str, Tensor],
        *,
        begin: int,
        stop: int,
        rows: Tensor | None = None,
    ) -> Any:
        """One pass of the model or its backbone, writing to ``slots`` (R, T), reading slots ``begin`` to ``stop``."""
        return module(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            **{self._cache_argument: PassCache(self.cache, slots, begin, stop, rows)},
        )


def append_pass(cached: CachedModel, ids: Tensor, starts: Tensor, counts: Tensor, line: Tensor) -> Tensor:
    """Logits (B, T, V) of ``ids`` (B, T) behind ``starts`` (B,) tokens, ``counts`` (B,) real ones in each row.

    ``line`` (S,) are the positions that may be read, from 0 on. Tensors alone decide the shapes and nothing is asked of
    the host, so that the pass can be compiled and captured.
    """
    return _append(cached, cached.model, ids, starts, counts, line, None).logits


def _append(
    cached: CachedModel,
    module: PreTrainedModel,
    ids: Tensor,
    starts: Tensor,
    counts: Tensor,
    line: Tensor,
    rows: Tensor | None,
) -> Any:
    cache = cached.cache
    places, positions, allowed = cache.behind(starts, counts, ids.shape[1], line)
    mask = cached.masks(allowed, positions, line[None])
    begin = cache.scratch
    stop = begin + len(line)
    if cached.taps is None:
        return cached.forward(module, ids, positions, begin + places, mask, begin=begin, stop=stop, rows=rows)
    with cached.taps.open() as found:
        output = cached.forward(module, ids, positions, begin + places, mask, begin=begin, stop=stop, rows=rows)
    cached.hidden = HiddenStates(found)
    return output
