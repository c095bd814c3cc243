"""rho: how much of the text behind each first mismatch a rollout accepted (method section 4, ours)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cospec.engine.record import Block, Rollout


def accepted_span(rollout: Rollout) -> float:
    """rho_r = sum_b max(0, L_b - f_b + 1) / max(1, sum_b (n_b - f_b + 1)), in [0, 1]; 0 for vanilla decoding.

    f_b is the 1-based first mismatch of block b, n_b + 1 if it has none. Positions behind an ending inside the accepted
    draft tokens never existed, so n_b ends there; behind a fall-back they did exist and were forgone.
    """
    gained = 0
    possible = 0
    for index, block in enumerate(rollout.blocks):
        num_positions = existing_positions(block, is_last=index == len(rollout.blocks) - 1)
        assert block.accepted_len <= num_positions, "an accepted length beyond the block's positions"
        first = first_mismatch(block, num_positions)
        gained += max(0, block.accepted_len - first + 1)
        possible += num_positions - first + 1
    return gained / max(1, possible)


def existing_positions(block: Block, is_last: bool) -> int:
    """n_b: the block's positions; where the text ends inside the accepted draft tokens, only those up to the ending."""
    ends_in_draft = is_last and block.accepted_len == len(block.emitted_ids)
    return block.accepted_len if ends_in_draft else len(block.draft_ids)


def first_mismatch(block: Block, num_positions: int) -> int:
    """f_b: the first of the positions 1..``num_positions`` where draft and target differ, else one past them."""
    pairs = zip(block.draft_ids[:num_positions], block.target_ids[:num_positions], strict=True)
    return next((place for place, (draft, target) in enumerate(pairs, start=1) if draft != target), num_positions + 1)
