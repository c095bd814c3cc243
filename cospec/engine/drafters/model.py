"""A small language model as the drafter."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cospec.engine.cached_model import CachedModel, PromptPart
from cospec.engine.contexts import Contexts
from cospec.engine.drafters.base import Draft, Outcome, RunShape
from cospec.engine.sampling import Draws, Stream
from cospec.pair import Pair


class ModelDrafter:
    """The pair's draft model, with the same processing as the target, so that p/q is a ratio of like things."""

    spec = "model"
    runs_draft_model, one_hot, costs_steps = True, False, True
    layers: tuple[int, ...] = ()

    def load(self, pair: Pair, max_drafts: int) -> None:
        """ValueError for a pair without a draft model."""
        pair.require_draft("drafter 'model'")

    def bind(self, run: RunShape) -> BoundModelDrafter:
        draft, limit = run.pair.require_draft("drafter 'model'"), run.pair.draft_context
        # A region has at most 2n + 3 tokens (method section 2).
        scratch, capacity = 2 * run.most + 3, min(run.longest, limit) + run.most + 2
        return BoundModelDrafter(CachedModel(draft, run.num_rows, capacity, scratch, run=run.run), run)


class BoundModelDrafter:
    """A draft model over its cache, which an arbiter may share.

    ``row_behind``: the last token of a block is fed too, for the row of the token behind it; its logits are then kept.
    """

    def __init__(self, cached: CachedModel, run: RunShape) -> None:
        self.cached, self.vocab_size, self.eos_ids = cached, run.pair.vocab_size, run.eos_ids
        self.context = run.pair.draft_context
        self.keeps_logits, self.row_behind = run.keeps_logits or run.row_behind, run.row_behind

    def admit(self, ids: Tensor, lengths: Mapping[int, int], chunk: int) -> None:
        self.cached.prefill(ids, lengths, chunk)

    def read(self, ids: Tensor, part: PromptPart) -> None:
        raise AssertionError("it asks for no layers")

    def propose(self, contexts: Contexts, num_steps: int, draws: Draws) -> Draft:
        """Draft up to ``contexts.limits`` tokens behind each context, ``num_steps`` at most; an EOS ends a block.

        The cache afterwards holds the context and all drafted tokens but the last, that too where the row behind the
        block was asked for; see `commit`.
        """
        limits, sampling = contexts.limits, contexts.sampling
        proposed = contexts.ids.new_zeros(len(limits), num_steps)
        if num_steps == 0:
            return Draft(proposed, torch.zeros_like(limits), None)
        rows_q: list[Tensor] = []
        kept: list[Tensor] = []
        logits = self._catch_up(contexts)
        for step in range(num_steps + self.row_behind):
            logits = sampling.penalised(logits[:, None], proposed, step)[:, 0]
            if self.keeps_logits:
                kept.append(logits.float())
            if not sampling.greedy:
                rows_q.append(sampling.probabilities(logits))
            if step == num_steps:
                break
            if sampling.greedy:
                proposed[:, step] = logits.argmax(-1)
            else:
                proposed[:, step] = draws.categorical(rows_q[-1], contexts.keys, Stream.DRAFT, step)
            if step + 1 < num_steps + self.row_behind:
                counts = (limits + self.row_behind > step + 1).long()
                logits = self.cached.append(proposed[:, step, None], counts, contexts.longest + step)
                logits = logits[:, 0, : self.vocab_size]
        return Draft(
            proposed,
            up_to_eos(proposed, limits, self.eos_ids),
            torch.stack(rows_q, 1) if rows_q else None,
            torch.stack(kept, 1) if kept else None,
        )

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

    def commit(self, outcome: Outcome) -> None:
        """Roll the cache back to what is committed.

        A row whose block held n tokens has all but the last of them in the cache, that one too with the row behind it,
        of which the accepted ones stay; its newest committed token is left out, as it is the next round's first input.
        """
        drafted = outcome.num_drafted
        kept = outcome.lengths + torch.minimum(outcome.accepted, drafted - 1 + self.row_behind)
        self.cached.cache.lengths = torch.where(drafted > 0, kept, self.cached.cache.lengths)

    def select_rows(self, rows: Tensor) -> None:
        self.cached.cache.select_rows(rows)


def up_to_eos(proposed: Tensor, num_positions: Tensor, eos_ids: Tensor) -> Tensor:
    """``num_positions`` (B,) of ``proposed`` (B, N), cut behind the first EOS."""
    ends = torch.isin(proposed, eos_ids)
    first = torch.cat([ends, ends.new_ones(len(ends), 1)], dim=1).int().argmax(1)
    return torch.minimum(num_positions, first + 1)
