"""Hidden states of the target at labelled mismatches, as verification sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cospec.engine.cached_model import CachedModel
from cospec.pair import Pair
from cospec.training.sft import SftExample


@torch.no_grad()
def judged_states(
    pair: Pair,
    layer: int,
    examples: Sequence[SftExample],
    *,
    batch_size: int,
    prefill_chunk: int = 512,
    on_batch: Callable[[int], None] = lambda num: None,
) -> list[Tensor]:
    """Per example, the states (M, H) of ``layer`` at its labelled draft tokens, in the order of its labels.

    Each block is read behind its own context, over a cache that holds the text once, ``batch_size`` texts at a time.
    ``on_batch`` is told how many texts a batch had.
    """
    found: list[Tensor] = []
    for first in range(0, len(examples), batch_size):
        batch = examples[first : first + batch_size]
        found += _Readers(pair, layer, batch).states(prefill_chunk)
        on_batch(len(batch))
    return found


class _Readers:
    """One row of a cache for each text; all rows read their next labelled block in one pass."""

    def __init__(self, pair: Pair, layer: int, examples: Sequence[SftExample]) -> None:
        self.items = [example.item for example in examples]
        longest = max(len(item.context_ids) for item in self.items)
        block = max(len(block.draft_ids) for item in self.items for block in item.blocks)
        self.ids = torch.zeros(len(self.items), longest, dtype=torch.long, device=pair.device)
        for row, item in enumerate(self.items):
            self.ids[row, : len(item.context_ids)] = torch.tensor(item.context_ids)
        self.layer = layer
        # A pass is as wide as what lies between two blocks, and its padding needs room too.
        self.cached = CachedModel(pair.target, len(self.items), longest + block + 2, layers=(layer,))

    def states(self, prefill_chunk: int) -> list[Tensor]:
        starts = {row: item.blocks[0].start for row, item in enumerate(self.items)}
        self.cached.prefill(self.ids, starts, prefill_chunk)
        num_blocks = max(len(item.blocks) for item in self.items)
        parts: list[list[Tensor]] = [[] for _ in self.items]
        for number in range(num_blocks):
            for row, states in self._read(number).items():
                parts[row].append(states)
        return [torch.cat(states) for states in parts]

    def _read(self, number: int) -> dict[int, Tensor]:
        """The states of block ``number`` by row, of the rows that have one; the cache then ends in front of it."""
        cache = self.cached.cache
        have = cache.lengths.tolist()
        rows = [row for row, item in enumerate(self.items) if number < len(item.blocks)]
        fed = {row: self._fed(row, number, have[row]) for row in rows}
        width = max(len(ids) for ids in fed.values())
        ids = torch.zeros(len(self.items), width, dtype=torch.long, device=self.ids.device)
        for row, tokens in fed.items():
            ids[row, : len(tokens)] = torch.tensor(tokens)
        counts = torch.tensor([len(fed.get(row, ())) for row in range(len(self.items))], device=ids.device)
        self.cached.append(ids, counts, max(have))
        assert self.cached.hidden is not None
        hidden = self.cached.hidden.of((self.layer,))
        found = {}
        for row in rows:
            item, start = self.items[row], self.items[row].blocks[number].start
            places = [start - have[row] + position for position in item.read[number]]
            found[row] = hidden[row, places].float().cpu()
            cache.lengths[row] = start
        return found

    def _fed(self, row: int, number: int, have: int) -> list[int]:
        """What the row's cache lacks of the block's context, then its drafts up to the last labelled one."""
        item = self.items[row]
        block, last = item.blocks[number], max(item.read[number])
        return [*item.context_ids[have : block.start], *block.draft_ids[: last + 1]]
