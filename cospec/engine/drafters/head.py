"""Drafting with a head on the target's hidden states, of whatever kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cospec.engine.cache import PassCache, SlotCache
from cospec.engine.cached_model import PromptPart
from cospec.engine.contexts import Contexts
from cospec.engine.drafters.base import Draft, Outcome, RunShape
from cospec.engine.drafters.chain import draft_chain
from cospec.engine.heads import DraftHead
from cospec.engine.hidden import HiddenStates
from cospec.engine.sampling import Draws
from cospec.pair import Pair


class HeadDrafter:
    """A drafter that drafts with a head; ``load_head`` reads it for a pair, once for each pair it is used with."""

    runs_draft_model, one_hot, costs_steps = False, False, True

    def __init__(self, spec: str, load_head: Callable[[Pair], DraftHead]) -> None:
        self.spec, self._load_head = spec, load_head
        self._loaded: tuple[Pair, DraftHead] | None = None

    @property
    def head(self) -> DraftHead:
        assert self._loaded, "an engine loads its drafter first"
        return self._loaded[1]

    @property
    def layers(self) -> tuple[int, ...]:
        return self.head.tapped

    def load(self, pair: Pair, max_drafts: int) -> None:
        """ValueError for a head that was made for another target, is damaged or not there."""
        if self._loaded is None or self._loaded[0].target is not pair.target:
            self._loaded = pair, self._load_head(pair)

    def bind(self, run: RunShape) -> BoundHeadDrafter:
        return BoundHeadDrafter(self.head, run)


class BoundHeadDrafter:
    """A head over a cache of its own, with the state behind each row's newest pair.

    Between rounds the cache holds the pairs of committed tokens alone, made from the target's hidden states (never from
    the head's own, on which it only drafts). A row of one token has no pair yet and is drafted nothing.
    """

    def __init__(self, head: DraftHead, run: RunShape) -> None:
        self.head, self.run = head, run
        self.context = min(run.pair.target_context, head.max_context)
        device = run.pair.device
        capacity = min(run.longest, self.context) + run.most + 2
        self.cache = SlotCache(run.num_rows, capacity, 0, device)
        self.state = torch.zeros(0, device=device)
        # Hidden states of committed tokens that are not read yet, and how many each row has.
        self._waiting: tuple[Tensor, Tensor] | None = None

    def admit(self, ids: Tensor, lengths: Mapping[int, int], chunk: int) -> None:
        if lengths:
            self.cache.lengths[list(lengths)] = 0
        if self._waiting is not None and lengths:
            self._waiting[1][list(lengths)] = 0

    def read(self, ids: Tensor, part: PromptPart) -> None:
        rows = torch.tensor(part.rows, device=ids.device)
        # The part may be as wide as a longer prompt beside these.
        hidden = self.head.fuse(self._features(part.hidden)[:, : self.cache.capacity])
        places = part.starts[:, None] + 1 + torch.arange(hidden.shape[1], device=ids.device)
        behind = ids[rows[:, None], places.clamp_max(ids.shape[1] - 1)]
        states = self._pass(behind, hidden, part.starts, part.counts, part.stop, rows)
        self._keep(states, part.counts, rows)

    def propose(self, contexts: Contexts, num_steps: int, draws: Draws) -> Draft:
        """Draft up to ``contexts.limits`` tokens behind each context, ``num_steps`` at most; an EOS ends a block."""
        self._catch_up(contexts)
        base = self.cache.lengths
        if num_steps == 0 or not len(self.state):
            return Draft(contexts.ids[:, :0], torch.zeros_like(base), None)
        state = self.state

        def advance(step: int, ids: Tensor, counts: Tensor) -> Tensor:
            nonlocal state
            longest = contexts.longest + step
            state = self._pass(ids, state[:, None], self.cache.lengths, counts, longest)[:, 0]
            return self._logits(state)

        limits = torch.where(base > 0, contexts.limits, 0)
        draft = draft_chain(self.run, contexts, limits, num_steps, draws, self._logits(state), advance)
        # What was drafted is forgotten at once: its pairs are made anew from the target's states where it is accepted.
        self.cache.lengths = base
        return draft

    def _logits(self, state: Tensor) -> Tensor:
        return self.head.logits(state)[..., : self.run.pair.vocab_size].float()

    def commit(self, outcome: Outcome) -> None:
        """Keep the hidden states of what was committed; the tokens behind them are there in the next round."""
        assert outcome.hidden is not None, "the head names its layers"
        self._waiting = self._features(outcome.hidden), outcome.num_emitted.clone()

    def select_rows(self, rows: Tensor) -> None:
        self.cache.select_rows(rows)
        self.state = self.state[rows] if len(self.state) else self.state
        if self._waiting is not None:
            self._waiting = self._waiting[0][rows], self._waiting[1][rows]

    def _features(self, hidden: HiddenStates) -> Tensor:
        # The layers of a target may lie on several devices.
        return hidden.of(self.head.tapped).to(self.cache.line.device)

    def _catch_up(self, contexts: Contexts) -> None:
        """Read the pairs of the tokens that the last round committed, in rows that may still be drafted for."""
        if self._waiting is None:
            return
        features, counts = self._waiting
        self._waiting = None
        starts = self.cache.lengths
        counts = torch.where(contexts.lengths <= self.context, counts, 0)
        places = starts[:, None] + 1 + torch.arange(features.shape[1], device=starts.device)
        ids = contexts.ids.gather(1, places.clamp_max(contexts.ids.shape[1] - 1))
        states = self._pass(ids, self.head.fuse(features), starts, counts, contexts.longest)
        self._keep(states, counts, torch.arange(len(counts), device=counts.device))

    def _pass(
        self, ids: Tensor, hidden: Tensor, starts: Tensor, counts: Tensor, longest: int, rows: Tensor | None = None
    ) -> Tensor:
        """States (R, T, H) of pairs behind ``starts`` (R,), ``counts`` (R,) of them real; they lengthen the rows."""
        cache = self.cache
        if rows is None:
            cache.lengths = starts + counts
        else:
            cache.lengths[rows] = starts + counts
        line = cache.line[: longest + ids.shape[1]]
        places, positions, allowed = cache.behind(starts, counts, ids.shape[1], line)
        mask = self.head.masks(allowed, positions, line[None])
        assert not isinstance(mask, dict), "a head has one layer"
        return self.head.read(ids, hidden, positions, mask, PassCache(cache, places, 0, len(line), rows))

    def _keep(self, states: Tensor, counts: Tensor, rows: Tensor) -> None:
        """The state behind each row's newest pair, of those (R,) that have new ones."""
        if not len(self.state):
            self.state = states.new_zeros(self.cache.num_rows, states.shape[-1])
        newest = states[torch.arange(len(rows), device=rows.device), (counts - 1).clamp_min(0)]
        self.state[rows] = torch.where(counts[:, None] > 0, newest, self.state[rows])
