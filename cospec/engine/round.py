"""One round of method section 1 as one function, over a batch of rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from cospec.engine.cached_model import CachedModel
from cospec.engine.contexts import Contexts
from cospec.engine.drafters import BoundDrafter, Draft, Outcome
from cospec.engine.record import Bonus
from cospec.engine.rules import Regions, RoundView, Rows, Rule, Verdict
from cospec.engine.sampling import Draws, Stream, residual_rows


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did. All are (B, N) or (B,); positions at and beyond ``num_positions`` are padding.

    ``emitted_ids`` (B, N + 1) holds ``num_emitted`` committed tokens, the first ``accepted_len`` from the draft.
    ``executed`` marks the mismatches that were decided (method section 1, below step 8).
    """

    draft_ids: Tensor
    target_ids: Tensor
    num_positions: Tensor
    accepted_len: Tensor
    emitted_ids: Tensor
    num_emitted: Tensor
    executed: Tensor
    keep_probs: Tensor
    target_prob_of_draft: Tensor


#: A point in time: seconds of the host's clock, or an event in the device's stream.
Mark = Any


@dataclass(slots=True)
class Clock:
    """Where the time of a run went, in seconds, and how many target passes it took.

    On CUDA a lap ends when the device has come there, not when the host has asked for it: laps are events in the
    stream, for which nothing waits before `settle`.
    """

    draft_s: float = 0.0
    target_s: float = 0.0
    arbiter_s: float = 0.0
    prefill_s: float = 0.0
    num_target_passes: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    _since: Mark = None
    _laps: list[tuple[str, Mark, Mark]] = field(default_factory=list)

    def lap(self, part: str) -> None:
        """Add the time since the last lap to ``part``; none of the parts: drop it. The first of a run is dropped."""
        now = self._mark()
        if part:
            assert self._since is not None, "the first lap of a run is of nothing"
            self._laps.append((part, self._since, now))
        self._since = now

    def settle(self) -> None:
        """Wait until the device has come to the last lap, and add up all so far."""
        for part, since, now in self._laps:
            setattr(self, part, getattr(self, part) + self._seconds(since, now))
        self._laps.clear()

    def parts(self) -> tuple[float, float, float]:
        """Seconds of draft, target and arbiter so far; behind the transfer of a round's results there is no wait."""
        self.settle()
        return self.draft_s, self.target_s, self.arbiter_s

    def _mark(self) -> Mark:
        if self.device.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def _seconds(self, since: Mark, now: Mark) -> float:
        if self.device.type != "cuda":
            return float(now - since)
        now.synchronize()
        return float(since.elapsed_time(now)) / 1000


@dataclass(frozen=True, slots=True)
class Models:
    """The cached models and constants one round needs; no block of the run has more than ``max_drafts`` positions."""

    target: CachedModel
    drafter: BoundDrafter
    vocab_size: int
    eos_ids: Tensor
    max_drafts: int
    clock: Clock


def play_round(models: Models, contexts: Contexts, rule: Rule, draws: Draws, max_drafts: int, bonus: Bonus) -> Round:
    """Draft, verify, decide, commit: one round of every row.

    ``max_drafts`` is the most of ``contexts.limits``. A fully accepted block is followed by the target's own token
    (`bonus: target`) or one of the rule's law (`bonus: rule`); with `bonus: arbitrated` that position was drafted like
    any other.
    """
    clock = models.clock
    clock.lap("")
    draft = models.drafter.propose(contexts, max_drafts, draws)
    clock.lap("draft_s")
    has_bonus = bonus != "arbitrated"
    logits = verify(models.target, contexts, draft, has_bonus, models.vocab_size)
    rows = Rows(contexts.sampling.penalised(logits, draft.ids), draft, contexts.sampling)
    target_ids = target_choice(rows, draft, contexts.keys, draws)
    clock.lap("target_s")
    num_drafts = draft.ids.shape[1]
    view = _view(models, contexts, draft, target_ids, rows, draws, own_bonus=bonus == "rule")
    verdict = rule.decide(view)
    clock.lap("arbiter_s")
    accepted = view.num_accepted(verdict.accept)
    written = _written(rule, verdict, view, target_ids, accepted)
    emitted, num_emitted = _commit(models, contexts, draft, written, accepted, has_bonus)
    steps = torch.arange(num_drafts, device=accepted.device)
    return Round(
        draft_ids=draft.ids,
        target_ids=target_ids[:, :num_drafts],
        num_positions=draft.num_positions,
        accepted_len=accepted,
        emitted_ids=emitted,
        num_emitted=num_emitted,
        executed=view.mismatch & (steps <= accepted[:, None]),
        keep_probs=verdict.keep_probs,
        target_prob_of_draft=_prob_of(logits[:, :num_drafts], draft.ids),
    )


def verify(target: CachedModel, contexts: Contexts, draft: Draft, bonus: bool, vocab_size: int) -> Tensor:
    """One target pass over the last committed token and the drafts: the logits (B, T, V) of each row's positions.

    T is N + 1 with the bonus, else N (the last draft is then not fed), and at least 1.
    """
    fed = draft.ids if bonus else draft.ids[:, :-1]
    last = contexts.ids.gather(1, contexts.lengths[:, None] - 1)
    counts = 1 + (draft.num_positions - int(not bonus)).clamp_min(0)
    logits = target.append(torch.cat([last, fed], dim=1), counts, contexts.longest - 1)
    return logits[..., :vocab_size].float()


def target_choice(rows: Rows, draft: Draft, keys: Tensor, draws: Draws) -> Tensor:
    """The target's tokens (B, T).

    Greedy: the argmax. Sampling: maximally coupled with the draft (method section 1, step 2 [O]): the draft's token
    with probability min(1, p/q), else one from the residual; a bonus position is drawn from p itself.
    """
    if rows.sampling.greedy:
        return rows.logits.argmax(-1)
    p, num_drafts = rows.p, draft.ids.shape[1]
    columns = []
    for i in range(p.shape[1]):
        choice = p[:, i]
        if i < num_drafts:
            drafted = i < draft.num_positions
            coupled = _coupled(choice, rows.q[:, i], draft.ids[:, i], keys, draws, i)
            choice = torch.where(drafted[:, None], coupled, choice)
        columns.append(draws.categorical(choice, keys, Stream.RESIDUAL, i))
    return torch.stack(columns, dim=1)


def _coupled(p: Tensor, q: Tensor, draft_ids: Tensor, keys: Tensor, draws: Draws, position: int) -> Tensor:
    """The row (B, V) to draw the target's token from, once the draft's token is tested against p/q."""
    chosen = draft_ids[:, None]
    ratio = (p.gather(1, chosen) / q.gather(1, chosen)).squeeze(1)
    accept = draws.bernoulli(ratio.clamp_max(1.0), keys, Stream.ACCEPT, position)
    one_hot = torch.zeros_like(p).scatter(1, chosen, 1.0)
    return torch.where(accept[:, None], one_hot, residual_rows(p, q))


def _view(
    models: Models,
    contexts: Contexts,
    draft: Draft,
    target_ids: Tensor,
    rows: Rows,
    draws: Draws,
    *,
    own_bonus: bool,
) -> RoundView:
    num_drafts = draft.ids.shape[1]
    valid = torch.arange(num_drafts, device=draft.ids.device) < draft.num_positions[:, None]
    match = valid & (draft.ids == target_ids[:, :num_drafts])
    regions = Regions(
        ids=contexts.ids,
        lengths=contexts.lengths,
        draft_ids=draft.ids,
        target_ids=target_ids[:, :num_drafts],
        num_positions=draft.num_positions,
    )
    return RoundView(
        regions, valid, match, rows, contexts.keys, draws, models.max_drafts, own_bonus, models.target.hidden
    )


def _written(rule: Rule, verdict: Verdict, view: RoundView, target_ids: Tensor, accepted: Tensor) -> Tensor:
    """The token (B,) behind the accepted ones: the target's, or what the rule drew in its place."""
    written = _at(target_ids, accepted)
    if verdict.written_ids is None:
        return written
    num = view.regions.num_positions
    own = accepted < num
    if view.own_bonus:
        # Where nothing was drafted there is no row of the drafter's either, and the target writes alone.
        own |= num >= int(rule.own_bonus_reads_draft)
    return torch.where(own, verdict.written_ids, written)


def _commit(
    models: Models, contexts: Contexts, draft: Draft, written: Tensor, accepted: Tensor, bonus: bool
) -> tuple[Tensor, Tensor]:
    """The committed tokens (B, N + 1) and their number (B,); both caches are rolled back to them."""
    padded = torch.cat([draft.ids, draft.ids.new_zeros(len(draft.ids), 1)], dim=1)
    full = accepted == draft.num_positions
    ended = (accepted > 0) & torch.isin(_at(padded, accepted - 1), models.eos_ids)
    # A token follows a rejection and an empty block, and a bonus unless the text or the room is over.
    bonus_due = full & ~ended & (accepted < contexts.room) & bonus
    writes = ~full | (draft.num_positions == 0) | bonus_due
    steps = torch.arange(padded.shape[1], device=accepted.device)
    emitted = torch.where(steps == accepted[:, None], written[:, None], padded)
    num_emitted = accepted + writes.long()
    outcome = Outcome(contexts.lengths, draft.num_positions, accepted, num_emitted, models.target.hidden)
    models.drafter.commit(outcome)
    models.target.cache.lengths = contexts.lengths + num_emitted - 1
    return emitted, num_emitted


def _at(values: Tensor, index: Tensor) -> Tensor:
    """``values`` (B, T) at one column per row, ``index`` (B,) clamped into range."""
    return values.gather(1, index.clamp(0, values.shape[1] - 1)[:, None]).squeeze(1)


def _prob_of(logits: Tensor, ids: Tensor) -> Tensor:
    """Softmax at temperature 1 of the unprocessed ``logits`` (B, N, V) at ``ids`` (B, N)."""
    return (logits.gather(2, ids[..., None]).squeeze(2) - logits.logsumexp(2)).exp()
