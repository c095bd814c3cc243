"""How an arbiter sees a block: ``SEP d_1..d_n SEP t_1..t_n SEP`` behind its context (method section 2).

The context is causal and the first SEP is the last causal row; every row from d_1 to the last SEP sees the whole
context and the whole region. Positions run on over the concatenation. `region_rows` lays out the blocks of one round,
`pack` a whole rollout: its committed text once, then the region of every chosen block, each bound to its own start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from cospec.engine.record import Block, Rollout


@dataclass(frozen=True, slots=True)
class RegionRows:
    """Regions side by side: ``ids`` and ``positions`` (R, W); ``among`` (R, W, W) is the mask inside the region.

    ``real`` (R, W) marks tokens that are no padding; padding sees itself alone. d_i stands at column i (from 1).
    """

    ids: Tensor
    positions: Tensor
    real: Tensor
    among: Tensor


def region_width(num_positions: int) -> int:
    """Tokens of a region of n positions."""
    return 2 * num_positions + 3


def region_rows(draft_ids: Tensor, target_ids: Tensor, num_positions: Tensor, starts: Tensor, sep: int) -> RegionRows:
    """Lay out blocks ``draft_ids``, ``target_ids`` (R, N) of ``num_positions`` (R,) behind ``starts`` (R,) tokens."""
    num, widest = num_positions[:, None], draft_ids.shape[1]
    column = torch.arange(region_width(widest), device=draft_ids.device).expand(len(draft_ids), -1)
    ids = torch.full_like(column, sep)
    in_draft = (column >= 1) & (column <= num)
    in_target = (column >= num + 2) & (column <= 2 * num + 1)
    last = max(widest - 1, 0)
    ids = torch.where(in_draft, draft_ids.gather(1, (column - 1).clamp(0, last)), ids)
    ids = torch.where(in_target, target_ids.gather(1, (column - num - 2).clamp(0, last)), ids)
    real = column <= 2 * num + 2
    whole = real[:, :, None] & real[:, None, :] & (column >= 1)[:, :, None]
    itself = torch.eye(column.shape[1], dtype=torch.bool, device=column.device)
    positions = starts[:, None] + torch.minimum(column, 2 * num + 2)
    return RegionRows(ids, positions, real, whole | itself)


@dataclass(frozen=True, slots=True)
class Packed:
    """Whole rollouts as tensors, right-padded: one row per rollout.

    ``context_ids`` (B, C) with ``context_lengths`` (B,); ``region_ids``, ``region_positions`` and ``region_starts``
    (B, G), the last being how much context a region token sees; ``region_blocks`` (B, G) tells regions apart (-1:
    padding) and ``region_causal`` (B, G) marks each first SEP. ``read_at`` (B, T) are the columns of the region at
    which the decisions are read, ``read_mask`` (B, T) which of them are real.
    """

    context_ids: Tensor
    context_lengths: Tensor
    region_ids: Tensor
    region_positions: Tensor
    region_starts: Tensor
    region_blocks: Tensor
    region_causal: Tensor
    read_at: Tensor
    read_mask: Tensor

    def tensors(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def to(self, device: torch.device) -> Packed:
        return Packed(**{name: tensor.to(device) for name, tensor in self.tensors().items()})


@dataclass(frozen=True, slots=True)
class PackItem:
    """A text and the blocks of it to score; ``read`` names per block the 0-based positions to read."""

    context_ids: Sequence[int]
    blocks: Sequence[Block]
    read: Sequence[Sequence[int]]


def decisions_item(rollout: Rollout) -> PackItem:
    """The executed decisions of a rollout, in order; blocks without one get no region."""
    blocks = [block for block in rollout.blocks if block.decisions]
    read = [[decision.position for decision in block.decisions] for block in blocks]
    return PackItem(rollout.prompt_ids + rollout.output_ids, blocks, read)


def pack(items: Sequence[PackItem], sep: int) -> Packed:
    """Lay out one row per item. The context is cut behind the last token any of its regions sees."""
    rows = [_pack_row(item, sep) for item in items]
    columns = list(zip(*rows, strict=True))
    fill = [0, 0, 0, 0, -1, False, 0, False]
    context, ids, positions, starts, blocks, causal, read_at, read_mask = (
        _padded(column, value) for column, value in zip(columns, fill, strict=True)
    )
    return Packed(
        context_ids=context.long(),
        context_lengths=torch.tensor([len(row[0]) for row in rows]),
        region_ids=ids.long(),
        region_positions=positions.long(),
        region_starts=starts.long(),
        region_blocks=blocks.long(),
        region_causal=causal.bool(),
        read_at=read_at.long(),
        read_mask=read_mask.bool(),
    )


def _pack_row(item: PackItem, sep: int) -> tuple[list[int], ...]:
    longest = max((block.start for block in item.blocks), default=1)
    ids: list[int] = []
    positions: list[int] = []
    starts: list[int] = []
    numbers: list[int] = []
    causal: list[int] = []
    read_at: list[int] = []
    for number, (block, wanted) in enumerate(zip(item.blocks, item.read, strict=True)):
        width = region_width(len(block.draft_ids))
        read_at += [len(ids) + 1 + position for position in wanted]
        ids += [sep, *block.draft_ids, sep, *block.target_ids, sep]
        positions += range(block.start, block.start + width)
        starts += [block.start] * width
        numbers += [number] * width
        causal += [1] + [0] * (width - 1)
    return list(item.context_ids[:longest]), ids, positions, starts, numbers, causal, read_at, [1] * len(read_at)


def _padded(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    # At least one column: an item without regions still is a row, all of it padding.
    width = max(1, *(len(row) for row in rows))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows])


def context_mask(packed: Packed) -> Tensor:
    """Causal mask (B, C, C) of the context."""
    size = packed.context_ids.shape[1]
    causal = torch.ones(size, size, dtype=torch.bool, device=packed.context_ids.device).tril()
    return causal.expand(len(packed.context_ids), -1, -1)


def region_mask(packed: Packed) -> Tensor:
    """Mask (B, G, C + G) of the region rows over context and regions: each sees its own block's start and region."""
    blocks, causal = packed.region_blocks, packed.region_causal
    context = torch.arange(packed.context_ids.shape[1], device=blocks.device) < packed.region_starts[:, :, None]
    same = (blocks[:, :, None] == blocks[:, None, :]) & (blocks >= 0)[:, :, None] & ~causal[:, :, None]
    itself = torch.eye(blocks.shape[1], dtype=torch.bool, device=blocks.device)
    return torch.cat([context, same | itself], dim=2)
