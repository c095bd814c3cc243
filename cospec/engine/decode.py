"""The batched decode loop: admit, play a round, end, refill."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cospec.engine.cache import CachedModel
from cospec.engine.drafters import ModelDrafter
from cospec.engine.record import Block, Bonus, Decision, FinishReason, Rollout, Sampling, Settings, Timings, cut_block
from cospec.engine.request import Request, check_request
from cospec.engine.round import Clock, Contexts, Models, Round, play_round
from cospec.engine.rules import ArbiterRule, Rule
from cospec.engine.sampling import CounterDraws, Draws, request_key, round_keys
from cospec.engine.text import StopMatch, TextStream, check_stops, decode_text
from cospec.pair import Pair


@dataclass(slots=True)
class _Row:
    """A request in flight; ``length`` counts its committed tokens, ``limit`` the most it may have.

    ``stream`` follows the text where somebody reads along or stop strings are watched for.
    """

    request: Request
    key: int
    length: int
    limit: int
    stream: TextStream | None
    prefill_s: float = 0.0
    active_s: float = 0.0
    parts_s: tuple[float, float, float] = (0.0, 0.0, 0.0)
    started: float = field(default_factory=time.perf_counter)
    output_ids: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    def follow(self, ids: Sequence[int], eos_ids: Sequence[int]) -> tuple[int, StopMatch] | None:
        """Read along with committed ``ids``; the first stop string to be complete, and how many of ``ids`` it took.

        What ends first wins, and an EOS shows no text.
        """
        for place, token_id in enumerate(ids if self.stream else ()):
            if token_id in eos_ids:
                return None
            assert self.stream
            match = self.stream.push(token_id)
            if match:
                return place + 1, match
        return None

    def piece(self, rollout: Rollout | None) -> str:
        """The text to hand on after a round, or at the end."""
        assert self.stream
        return self.stream.piece(rollout.text if rollout else None)


class Engine:
    """Decodes requests in batches with one rule; one engine serves many runs, one at a time.

    A text ends with an EOS, before the first of the ``stop`` strings to be complete, or at the cap. ``bonus`` None
    takes the rule's own form. ``batch_size`` rows are in flight at once; a row that ends is refilled. Raises ValueError
    for settings that cannot work. `clock` accumulates where the time went.
    """

    def __init__(
        self,
        pair: Pair,
        rule: Rule,
        *,
        num_draft_tokens: int = 5,
        bonus: Bonus | None = None,
        max_new_tokens: int = 512,
        sampling: Sampling | None = None,
        eos_token_ids: Sequence[int] | None = None,
        stop: Sequence[str] = (),
        batch_size: int = 8,
        seed: int = 0,
        draws: Draws | None = None,
    ) -> None:
        for name, value in (("num_draft_tokens", num_draft_tokens), ("max_new_tokens", max_new_tokens)):
            if value < 1:
                raise ValueError(f"{name} is {value}: it must be at least 1")
        if batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: it must be at least 1")
        if bonus not in (None, "arbitrated", "target"):
            raise ValueError(f"bonus is {bonus!r}: choose 'arbitrated' or 'target'")
        check_stops(stop, pair.tokenizer)
        self.pair, self.rule, self.batch_size = pair, rule, batch_size
        self.draws = draws or CounterDraws()
        self.clock = Clock()
        arbiter = rule if isinstance(rule, ArbiterRule) else None
        self._scorer = arbiter.scorer if arbiter else None
        eos = pair.eos_token_ids if eos_token_ids is None else eos_token_ids
        self.settings = Settings(
            seed=seed,
            rule=rule.name,
            num_draft_tokens=num_draft_tokens,
            bonus=bonus or rule.default_bonus,
            max_new_tokens=max_new_tokens,
            sampling=sampling or Sampling(),
            eos_token_ids=tuple(eos),
            stop=tuple(stop),
            threshold=arbiter.threshold if arbiter else None,
            sampled_decisions=arbiter.sampled if arbiter else False,
            context_cache=arbiter.scorer.context_cache if arbiter else None,
        )

    @property
    def max_drafts(self) -> int:
        """The most positions of a block: K with a target bonus, K + 1 when the bonus is arbitrated."""
        if not self.rule.drafts:
            return 0
        return self.settings.num_draft_tokens + (self.settings.bonus == "arbitrated")

    def rollouts(self, requests: Sequence[Request]) -> list[Rollout]:
        """All requests decoded, in the order given."""
        done = dict(self.run(requests))
        return [done[index] for index in range(len(requests))]

    def run(self, requests: Sequence[Request]) -> Iterator[tuple[int, Rollout]]:
        """Yield (index of the request, its rollout) as they end; all requests are checked before the first pass."""
        for index, event in self._events(requests, reads_along=False):
            assert isinstance(event, Rollout)
            yield index, event

    def stream(self, requests: Sequence[Request]) -> Iterator[tuple[int, str | Rollout]]:
        """Yield (index of the request, next piece of its text) round by round, and at its end its rollout.

        A request's pieces join to its rollout's text. Held back are bytes that are no character yet, and an end that
        may be the beginning of a stop string.
        """
        return self._events(requests, reads_along=True)

    @torch.no_grad()
    def _events(self, requests: Sequence[Request], *, reads_along: bool) -> Iterator[tuple[int, str | Rollout]]:
        for request in requests:
            check_request(request, self.pair)
        if requests:
            batch = _Batch(self, requests, reads_along)
            while batch.rows:
                yield from batch.advance()


class _Batch:
    """The rows in flight of one run, and their caches."""

    def __init__(self, engine: Engine, requests: Sequence[Request], reads_along: bool) -> None:
        self.engine, pair, settings = engine, engine.pair, engine.settings
        self.reads_along = reads_along
        self.waiting = list(enumerate(requests))[::-1]
        self.rows: list[tuple[int, _Row]] = []
        num_rows = min(engine.batch_size, len(requests))
        slack = engine.max_drafts + 2
        longest = max(self._limit(request) for request in requests)
        self.device = pair.device
        self.ids = torch.zeros(num_rows, longest + slack, dtype=torch.long, device=self.device)
        eos_ids = torch.tensor(settings.eos_token_ids, dtype=torch.long, device=self.device)
        target = CachedModel(pair.target, num_rows, longest + slack)
        # A region has at most 2n + 3 tokens (method section 2).
        draft = CachedModel(
            pair.draft, num_rows, min(longest, pair.draft_context) + slack, scratch=2 * engine.max_drafts + 3
        )
        drafter = ModelDrafter(draft, pair.vocab_size, settings.sampling, eos_ids)
        self.models = Models(target, drafter, pair.vocab_size, settings.sampling, eos_ids, engine.clock)
        self.scorer = engine._scorer
        if self.scorer:
            self.scorer.bind(draft)
        self._admit(list(range(num_rows)))

    def _limit(self, request: Request) -> int:
        cap = self.engine.settings.max_new_tokens
        if request.max_new_tokens is not None:
            cap = min(cap, request.max_new_tokens)
        return min(len(request.prompt_ids) + cap, self.engine.pair.target_context)

    def advance(self) -> Iterator[tuple[int, str | Rollout]]:
        """One round of every row; yields new text and the rows that ended, and refills their places."""
        engine = self.engine
        started, before = time.perf_counter(), engine.clock.parts()
        contexts, most = self._contexts()
        assert torch.equal(self.models.target.cache.lengths, contexts.lengths - 1), "cache and text have parted"
        bonus = engine.settings.bonus == "target"
        played = play_round(self.models, contexts, engine.rule, engine.draws, most, bonus)
        engine.clock.num_target_passes += 1
        places = contexts.lengths[:, None] + torch.arange(played.emitted_ids.shape[1], device=self.device)
        self.ids.scatter_(1, places, played.emitted_ids)
        blocks = list(_blocks(played, contexts.lengths.tolist()))
        eos_ids = engine.settings.eos_token_ids
        stops = [row.follow(block.emitted_ids, eos_ids) for (_, row), block in zip(self.rows, blocks, strict=True)]
        self._share(time.perf_counter() - started, before)
        finished = []
        for place, (block, stop) in enumerate(zip(blocks, stops, strict=True)):
            index, row = self.rows[place]
            rollout = self._commit(row, block, stop)
            if self.reads_along and (piece := row.piece(rollout)):
                yield index, piece
            if rollout:
                yield index, rollout
                finished.append(place)
        self._refill(finished)

    def _commit(self, row: _Row, block: Block, stop: tuple[int, StopMatch] | None) -> Rollout | None:
        """Add a block to a row, cut behind the token that completes a stop string; the rollout if the text ends."""
        num_tokens, match = stop or (len(block.emitted_ids), None)
        block = cut_block(block, num_tokens)
        row.blocks.append(block)
        row.output_ids.extend(block.emitted_ids)
        row.length += num_tokens
        reason = "stop" if match else self._ending(row)
        return self._rollout(row, reason, match) if reason else None

    def _share(self, seconds: float, before: tuple[float, float, float]) -> None:
        """Divide a round's seconds among its rows; what a caller does between two rollouts is in none of them."""
        num_rows = len(self.rows)
        spent = [now - then for now, then in zip(self.engine.clock.parts(), before, strict=True)]
        for _, row in self.rows:
            row.active_s += seconds / num_rows
            draft, target, arbiter = (have + part / num_rows for have, part in zip(row.parts_s, spent, strict=True))
            row.parts_s = (draft, target, arbiter)

    def _contexts(self) -> tuple[Contexts, int]:
        """What the round works on, and the most positions any row may draft."""
        rows = [row for _, row in self.rows]
        limits = [self._draft_limit(row) for row in rows]
        keys = torch.tensor([row.key for row in rows], dtype=torch.long, device=self.device)
        rounds = torch.tensor([len(row.blocks) for row in rows], dtype=torch.long, device=self.device)
        contexts = Contexts(
            ids=self.ids,
            lengths=torch.tensor([row.length for row in rows], device=self.device),
            limits=torch.tensor(limits, device=self.device),
            room=torch.tensor([row.limit - row.length for row in rows], device=self.device),
            keys=round_keys(keys, rounds),
        )
        return contexts, max(limits)

    def _draft_limit(self, row: _Row) -> int:
        """How many tokens the row may draft: the block, the cap and the room in both contexts (method section 1)."""
        draft_room = self.engine.pair.draft_context - row.length
        if self.scorer:
            draft_room = min(draft_room, (draft_room - 3) // 2)
        return max(0, min(self.engine.max_drafts, row.limit - row.length, draft_room))

    def _ending(self, row: _Row) -> FinishReason | None:
        if row.output_ids[-1] in self.engine.settings.eos_token_ids:
            return "eos"
        return "length" if row.length >= row.limit else None

    def _rollout(self, row: _Row, reason: FinishReason, match: StopMatch | None) -> Rollout:
        engine = self.engine
        ids = row.output_ids[:-1] if reason == "eos" else row.output_ids
        text = decode_text(engine.pair.tokenizer, ids)
        return Rollout(
            id=row.request.id,
            prompt_ids=tuple(row.request.prompt_ids),
            output_ids=tuple(row.output_ids),
            text=text if match is None else text[: match.start],
            blocks=tuple(row.blocks),
            finish_reason=reason,
            settings=engine.settings,
            timings=Timings(time.perf_counter() - row.started, row.prefill_s, row.active_s, *row.parts_s),
            stop=match.stop if match else None,
        )

    def _refill(self, places: list[int]) -> None:
        refilled = places[: len(self.waiting)]
        if refilled:
            self._admit(refilled)
        empty = set(places[len(refilled) :])
        if empty:
            self._select([place for place in range(len(self.rows)) if place not in empty])

    def _select(self, places: list[int]) -> None:
        """Nobody waits any more: the batch shrinks to the rows still in flight."""
        self.rows = [self.rows[place] for place in places]
        index = torch.tensor(places, dtype=torch.long, device=self.device)
        self.ids = self.ids[index]
        self.models.target.cache.select_rows(index)
        self.models.drafter.cached.cache.select_rows(index)
        if self.scorer:
            self.scorer.select_rows(index)

    def _admit(self, places: list[int]) -> None:
        """Put waiting requests into these places and read their prompts, but for each prompt's last token."""
        clock, drafter = self.engine.clock, self.models.drafter
        clock.lap("")
        before = clock.prefill_s
        for place in places:
            index, request = self.waiting.pop()
            key = request_key(self.engine.settings.seed, request.id)
            row = _Row(request, key, len(request.prompt_ids), self._limit(request), self._text_stream(request))
            self.rows[place : place + 1] = [(index, row)]
            self.ids[place, : row.length] = torch.tensor(request.prompt_ids, device=self.device)
        rows = torch.tensor(places, device=self.device)
        lengths = torch.tensor([self.rows[place][1].length for place in places], device=self.device)
        short = lengths <= self.engine.pair.draft_context if self.engine.rule.drafts else lengths < 0
        self._prefill(self.models.target, rows, lengths)
        self._prefill(drafter.cached, rows[short], lengths[short])
        if self.scorer and bool(short.any()):
            self.scorer.admit(rows[short], self.ids[rows[short]], lengths[short])
        clock.lap("prefill_s")
        for place in places:
            row = self.rows[place][1]
            row.prefill_s = clock.prefill_s - before
            row.active_s += row.prefill_s / len(places)

    def _text_stream(self, request: Request) -> TextStream | None:
        stops = (*self.engine.settings.stop, *request.stop)
        return TextStream(self.engine.pair.tokenizer, stops) if stops or self.reads_along else None

    def _prefill(self, cached: CachedModel, rows: Tensor, lengths: Tensor) -> None:
        cached.cache.lengths[rows] = 0
        if len(rows) and int(lengths.max()) > 1:
            longest = int(lengths.max()) - 1
            cached.append(self.ids[rows, :longest], lengths - 1, rows=rows, logits_to_keep=1)


def _blocks(played: Round, starts: list[int]) -> Iterator[Block]:
    """The round as one record per row; the one place where a round's tensors come to the host."""
    columns = zip(
        starts,
        played.draft_ids.tolist(),
        played.target_ids.tolist(),
        played.num_positions.tolist(),
        played.accepted_len.tolist(),
        played.emitted_ids.tolist(),
        played.num_emitted.tolist(),
        played.executed.tolist(),
        played.keep_probs.tolist(),
        played.target_prob_of_draft.tolist(),
        strict=True,
    )
    for start, draft, target, n, accepted, emitted, num_emitted, executed, keep, risk in columns:
        decisions = tuple(
            Decision(i, draft[i], target[i], risk[i], keep[i], kept=i < accepted) for i in range(n) if executed[i]
        )
        yield Block(start, tuple(draft[:n]), tuple(target[:n]), decisions, accepted, tuple(emitted[:num_emitted]))
