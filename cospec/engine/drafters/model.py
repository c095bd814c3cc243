"""A small language model as the drafter."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from cospec.engine.cached_model import CachedModel
from cospec.engine.contexts import Contexts
from cospec.engine.sampling import Draws, Stream


@dataclass(frozen=True, slots=True)
class Draft:
    """``ids`` (B, N); ``num_positions`` (B,) are real; ``q`` (B, N, V) are the rows sampled from, None if greedy."""

    ids: Tensor
    num_positions: Tensor
    q: Tensor | None


class ModelDrafter:
    """Proposes from a cached model with the same processing as the target, so that p/q is a ratio of like things."""

    def __init__(self, cached: CachedModel, vocab_size: int, eos_ids: Tensor) -> None:
        self.cached, self.vocab_size, self.eos_ids = cached, vocab_size, eos_ids

    def propose(self, contexts: Contexts, num_steps: int, draws: Draws) -> Draft:
        """Draft up to ``contexts.limits`` tokens behind each context, ``num_steps`` at most; an EOS ends a block.

        The cache afterwards holds the context and all drafted tokens but the last; see `commit`.
        """
        limits, sampling = contexts.limits, contexts.sampling
        proposed = contexts.ids.new_zeros(len(limits), num_steps)
        if num_steps == 0:
            return Draft(proposed, torch.zeros_like(limits), None)
        rows_q: list[Tensor] = []
        logits = self._catch_up(contexts)
        for step in range(num_steps):
            logits = sampling.penalised(logits[:, None], proposed, step)[:, 0]
            if sampling.greedy:
                proposed[:, step] = logits.argmax(-1)
            else:
                rows_q.append(sampling.probabilities(logits))
                proposed[:, step] = draws.categorical(rows_q[-1], contexts.keys, Stream.DRAFT, step)
            if step + 1 < num_steps:
                if self._all_end(proposed[:, : step + 1], limits):
                    proposed = proposed[:, : step + 1]
                    break
                counts = (limits > step + 1).long()
                logits = self.cached.append(proposed[:, step, None], counts, contexts.longest + step)
                logits = logits[:, 0, : self.vocab_size]
        num_positions = torch.minimum(limits, _first(torch.isin(proposed, self.eos_ids)) + 1)
        return Draft(proposed, num_positions, torch.stack(rows_q, 1) if rows_q else None)

    def _all_end(self, proposed: Tensor, limits: Tensor) -> bool:
        """Whether no row goes on behind the tokens (B, n) proposed so far; False where to ask is to wait for a device.

        There the rest of the block is drafted for nothing.
        """
        if proposed.device.type != "cpu":
            return False
        ended = torch.isin(proposed, self.eos_ids).any(1) | (limits <= proposed.shape[1])
        return bool(ended.all())

    def _catch_up(self, contexts: Contexts) -> Tensor:
        """Feed the committed tokens the cache lacks, in one pass; next-token logits (B, V) behind them.

        One is lacking, or two in a row whose whole block was accepted and followed by a target bonus.
        """
        ids, have = contexts.ids, self.cached.cache.lengths
        counts = torch.where(contexts.limits > 0, contexts.lengths - have, 0)
        columns = torch.arange(contexts.num_lacking, device=ids.device)
        places = (have[:, None] + columns).clamp_max(ids.shape[1] - 1)
        logits = self.cached.append(ids.gather(1, places), counts, contexts.longest - 1)
        last = (counts - 1).clamp_min(0)
        return logits[torch.arange(len(ids), device=ids.device), last, : self.vocab_size]

    def commit(self, lengths: Tensor, drafted: Tensor, accepted: Tensor) -> None:
        """Roll the cache back to what is committed; ``lengths`` (B,) are those before the round.

        A row whose block held ``drafted`` tokens has all but the last of them in the cache, of which ``accepted``
        stay; its newest committed token is left out, as it is the next round's first input.
        """
        kept = torch.minimum(accepted, drafted - 1)
        self.cached.cache.lengths = torch.where(drafted > 0, lengths + kept, self.cached.cache.lengths)


def _first(flags: Tensor) -> Tensor:
    """Index of the first True in each row of (B, N), N if there is none."""
    padded = torch.cat([flags, torch.ones_like(flags[:, :1])], dim=1)
    return padded.int().argmax(1)
