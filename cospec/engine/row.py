"""A request in flight, and what a round did to it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from cospec.engine.block_length import Acceptance
from cospec.engine.record import Block, Decision, FinishReason, Rollout, Settings, Timings, cut_block
from cospec.engine.request import Request
from cospec.engine.round import Round
from cospec.engine.sampling import request_key
from cospec.engine.text import StopMatch, TextStream, decode_text


@dataclass(slots=True)
class Row:
    """A request in flight: ``limit`` is the most tokens it may have, prompt included.

    ``stream`` follows the text where somebody reads along or stop strings are watched for.
    """

    request: Request
    settings: Settings
    limit: int
    stream: TextStream | None
    prefill_s: float = 0.0
    active_s: float = 0.0
    cpu_s: float = 0.0
    parts_s: tuple[float, float, float] = (0.0, 0.0, 0.0)
    started: float = field(default_factory=time.perf_counter)
    output_ids: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    stop: StopMatch | None = None
    acceptance: Acceptance = field(default_factory=Acceptance)
    key: int = field(init=False)

    def __post_init__(self) -> None:
        self.key = request_key(self.settings.seed, self.request.id)

    @property
    def length(self) -> int:
        """Committed tokens, the prompt's included."""
        return len(self.request.prompt_ids) + len(self.output_ids)

    @property
    def num_lacking(self) -> int:
        """Committed tokens that the drafter's cache lacks: the last one, and a block's last behind a target bonus."""
        last = self.blocks[-1] if self.blocks else None
        has_bonus = last is not None and 0 < len(last.draft_ids) == last.accepted_len < len(last.emitted_ids)
        return 1 + has_bonus

    def follow(self, block: Block) -> Block:
        """Read along with a new block; if a stop string is complete in it, the block ends there.

        What ends first wins, and an EOS shows no text.
        """
        for place, token_id in enumerate(block.emitted_ids if self.stream else ()):
            if token_id in self.settings.eos_token_ids:
                break
            assert self.stream
            self.stop = self.stream.push(token_id)
            if self.stop:
                return cut_block(block, place + 1)
        return block

    def commit(self, block: Block) -> FinishReason | None:
        """Add a block to the text; why the text has ended, if it has."""
        self.blocks.append(block)
        self.acceptance.add(block)
        self.output_ids.extend(block.emitted_ids)
        if self.stop:
            return "stop"
        if self.output_ids[-1] in self.settings.eos_token_ids:
            return "eos"
        return "length" if self.length >= self.limit else None

    def rollout(self, reason: FinishReason, tokenizer: PreTrainedTokenizerBase) -> Rollout:
        """The record of the finished row."""
        text = decode_text(tokenizer, self.output_ids[:-1] if reason == "eos" else self.output_ids)
        return Rollout(
            id=self.request.id,
            prompt_ids=tuple(self.request.prompt_ids),
            output_ids=tuple(self.output_ids),
            text=text[: self.stop.start] if self.stop else text,
            blocks=tuple(self.blocks),
            finish_reason=reason,
            settings=self.settings,
            timings=Timings(
                time.perf_counter() - self.started, self.prefill_s, self.active_s, *self.parts_s, cpu_s=self.cpu_s
            ),
            stop=self.stop.stop if self.stop else None,
        )

    def piece(self, rollout: Rollout | None) -> str:
        """The text to hand on after a round, or at the end."""
        assert self.stream
        return self.stream.piece(rollout.text if rollout else None)


def blocks_of(played: Round, starts: Sequence[int], cached: Tensor) -> tuple[list[Block], list[int]]:
    """The round as one record per row, and the lengths ``cached`` (B,) as the cache has them.

    The one place where a round's tensors come to the host, all in one transfer.
    """
    width = played.draft_ids.shape[1]
    counts = torch.stack([played.num_positions, played.accepted_len, played.num_emitted, cached], dim=1)
    numbers = [counts, played.draft_ids, played.target_ids, played.executed.long(), played.emitted_ids]
    shares = torch.cat([played.keep_probs, played.target_prob_of_draft], dim=1).double()
    host = torch.cat([*numbers, shares.view(torch.int64)], dim=1).cpu()
    parts = host.split([4, width, width, width, width + 1, 2 * width], dim=1)
    shares = parts[-1].contiguous().view(torch.float64)
    columns = zip(starts, *(part.tolist() for part in (*parts[:-1], shares)), strict=True)
    return [_block(*column) for column in columns], parts[0][:, 3].tolist()


def _block(
    start: int,
    counts: list[int],
    draft: list[int],
    target: list[int],
    executed: list[int],
    emitted: list[int],
    shares: list[float],
) -> Block:
    n, accepted, num_emitted, _ = counts
    keep, risk = shares[: len(draft)], shares[len(draft) :]
    decisions = tuple(
        Decision(i, draft[i], target[i], risk[i], keep[i], kept=i < accepted) for i in range(n) if executed[i]
    )
    return Block(start, tuple(draft[:n]), tuple(target[:n]), decisions, accepted, tuple(emitted[:num_emitted]))
