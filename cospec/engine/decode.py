"""The batched decode loop: admit, play a round, end, refill."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from cospec.engine.batch_sampling import BatchSampling
from cospec.engine.block_length import best_length
from cospec.engine.cached_model import CachedModel, PromptPart
from cospec.engine.compiled import CompileMode, compiled_pass
from cospec.engine.contexts import Contexts
from cospec.engine.drafters import (
    BoundDrafter,
    BoundModelDrafter,
    Drafter,
    ModelDrafter,
    NoDrafter,
    RunShape,
    check_use,
)
from cospec.engine.record import Bonus, Rollout, Sampling, Settings
from cospec.engine.request import Request, check_request
from cospec.engine.round import Clock, Models, play_round
from cospec.engine.row import Row, blocks_of
from cospec.engine.rules import ArbiterRule, Rule, check_bonus
from cospec.engine.sampling import CounterDraws, Draws, round_key
from cospec.engine.text import TextStream, check_stops
from cospec.pair import Pair


class Engine:
    """Decodes requests in batches with one rule; one engine serves many runs.

    A text ends with an EOS, before the first of the ``stop`` strings to be complete, or at the cap. ``bonus`` None
    takes the rule's usual form. With a ``cost_ratio`` (a draft step's time by a target pass's) blocks are as long as
    pays for each row, ``num_draft_tokens`` at most (`cospec.engine.block_length`). ``drafter`` None is the pair's draft
    model. ``batch_size`` rows are in flight at once; a row that ends is refilled. Prompts are read ``prefill_chunk``
    tokens at a time. ``compile_mode`` says how passes over the texts are compiled, if at all (`engine.compiled`).
    `clock` accumulates where the time went. Raises ValueError for settings that cannot work.
    """

    def __init__(
        self,
        pair: Pair,
        rule: Rule,
        *,
        drafter: Drafter | None = None,
        num_draft_tokens: int = 5,
        bonus: Bonus | None = None,
        max_new_tokens: int = 512,
        sampling: Sampling | None = None,
        eos_token_ids: Sequence[int] | None = None,
        stop: Sequence[str] = (),
        batch_size: int = 8,
        seed: int = 0,
        cost_ratio: float | None = None,
        prefill_chunk: int = 512,
        compile_mode: CompileMode | None = None,
        draws: Draws | None = None,
    ) -> None:
        _refuse_names(rule, drafter, cost_ratio)
        _require_positive(num_draft_tokens=num_draft_tokens, max_new_tokens=max_new_tokens)
        _require_positive(batch_size=batch_size, prefill_chunk=prefill_chunk)
        if cost_ratio is not None and not 0.0 < cost_ratio < float("inf"):
            raise ValueError(
                f"cost_ratio is {cost_ratio}: it is a draft step's time relative to a target pass, above 0"
            )
        check_bonus(bonus, rule)
        check_stops(stop, pair.tokenizer)
        self.pair, self.rule, self.batch_size, self.prefill_chunk = pair, rule, batch_size, prefill_chunk
        self.draws = draws or CounterDraws()
        self.clock = Clock(device=pair.device)
        self._pass = compiled_pass(compile_mode, pair.device) if compile_mode else None
        arbiter = rule if isinstance(rule, ArbiterRule) else None
        self.drafter = drafter or ModelDrafter()
        eos = pair.eos_token_ids if eos_token_ids is None else eos_token_ids
        if strange := sorted(i for i in {*eos} - {*pair.eos_token_ids} if not 0 <= i < pair.vocab_size):
            raise ValueError(
                f"eos_token_ids holds {strange[0]}, outside the pair's {pair.vocab_size} ids: no text could end there"
            )
        self.settings = Settings(
            seed=seed,
            rule=rule.spec,
            drafter=self.drafter.spec if rule.drafts else None,
            num_draft_tokens=num_draft_tokens,
            bonus=bonus or rule.default_bonus,
            max_new_tokens=max_new_tokens,
            sampling=sampling or Sampling(),
            eos_token_ids=tuple(eos),
            stop=tuple(stop),
            cost_ratio=cost_ratio,
            threshold=arbiter.threshold if arbiter else None,
            sampled_decisions=arbiter.sampled if arbiter else False,
            context_cache=arbiter.scorer.context_cache if arbiter else None,
        )
        self._load(compile_mode)
        self._noted: set[str] = set()
        self._check_sampling(self.settings.sampling)

    def _check_sampling(self, sampling: Sampling) -> None:
        """ValueError where the rule does not go with it; warns of what a user does not expect, of each thing once."""
        self.rule.check_sampling(sampling)
        for note in self.rule.notes(sampling, self.max_drafts, one_hot=self._one_hot):
            if note not in self._noted:
                self._noted.add(note)
                warnings.warn(note, stacklevel=3)

    def _load(self, compile_mode: CompileMode | None) -> None:
        rule, drafter = self.rule, self.drafter
        if rule.drafts:
            check_use(drafter, arbiter=isinstance(rule, ArbiterRule), cost_ratio=self.settings.cost_ratio)
            drafter.load(self.pair, self.max_drafts)
            _check_compiled(f"drafter {drafter.spec!r}", drafter.layers, compile_mode)
        rule.load(self.pair)
        rule.check_drafter(self.settings.bonus, one_hot=self._one_hot)
        _check_compiled(f"rule {rule.spec!r}", rule.layers, compile_mode)

    @property
    def _one_hot(self) -> bool:
        return self.rule.drafts and self.drafter.one_hot

    @property
    def max_drafts(self) -> int:
        """The most positions of a block: K with a bonus token, K + 1 when the bonus is arbitrated."""
        if not self.rule.drafts:
            return 0
        return self.settings.num_draft_tokens + (self.settings.bonus == "arbitrated")

    def rollouts(
        self, requests: Sequence[Request], on_rollout: Callable[[Rollout], object] = lambda rollout: None
    ) -> list[Rollout]:
        """All requests decoded, in the order given; ``on_rollout`` is told of each as it ends."""
        done = {}
        for index, rollout in self.run(requests):
            done[index] = rollout
            on_rollout(rollout)
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
            self._check_sampling(request.settings(self.settings).sampling)
        if requests:
            batch = _Batch(self, requests, reads_along)
            while batch.rows:
                yield from batch.advance()


def _check_compiled(what: str, layers: Sequence[int], compile_mode: CompileMode | None) -> None:
    if layers and compile_mode:
        raise ValueError(
            f"{what} reads the target's hidden states, which compiled passes do not give: use no compile mode"
        )


def _refuse_names(rule: object, drafter: object, cost_ratio: object) -> None:
    """ValueError for the name of a thing in its place."""
    if isinstance(rule, str):
        raise ValueError(f"rule is {rule!r}: give `rule_named({rule!r})`, or `arbiter_rule` for an arbiter")
    if isinstance(drafter, str):
        raise ValueError(f"drafter is {drafter!r}: give `drafter_named({drafter!r})`")
    if isinstance(cost_ratio, str):
        raise ValueError(f"cost_ratio is {cost_ratio!r}: give a number, such as `measure_cost_ratio` finds")


def _require_positive(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"{name} is {value}: it must be at least 1")


class _Batch:
    """The rows in flight of one run, and their caches."""

    def __init__(self, engine: Engine, requests: Sequence[Request], reads_along: bool) -> None:
        self.engine, pair, settings = engine, engine.pair, engine.settings
        self.reads_along = reads_along
        self.waiting = list(enumerate(requests))[::-1]
        self.rows: list[tuple[int, Row]] = []
        num_rows = min(engine.batch_size, len(requests))
        longest = max(self._limit(request) for request in requests)
        # No block is longer than a text's room, whatever the settings allow.
        most = min(engine.max_drafts, longest)
        slack = most + 2
        self.device = pair.device
        self.ids = torch.zeros(num_rows, longest + slack, dtype=torch.long, device=self.device)
        eos_ids = torch.tensor(settings.eos_token_ids, dtype=torch.long, device=self.device)
        drafter: BoundDrafter = NoDrafter()
        if engine.rule.drafts:
            drafter = engine.drafter.bind(self._shape(num_rows, longest, most, eos_ids))
        drafter_layers = engine.drafter.layers if engine.rule.drafts else ()
        self.drafter_reads = bool(drafter_layers)
        layers = (*drafter_layers, *engine.rule.layers)
        target = CachedModel(pair.target, num_rows, longest + slack, run=engine._pass, layers=layers)
        self.models = Models(target, drafter, pair.vocab_size, eos_ids, engine.max_drafts, engine.clock)
        penalties = any(self._settings(request).sampling.repetition_penalty != 1.0 for request in requests)
        size = (num_rows, pair.vocab_size)
        self.seen = torch.zeros(size, dtype=torch.bool, device=self.device) if penalties else None
        self.rule, self.scorer = engine.rule, None
        if isinstance(engine.rule, ArbiterRule):
            assert isinstance(drafter, BoundModelDrafter), "an arbiter shares the draft model"
            self.scorer = engine.rule.scorer.bind(drafter.cached)
            self.rule = engine.rule.over(self.scorer)
        self._admit(list(range(num_rows)))

    def _shape(self, num_rows: int, longest: int, most: int, eos_ids: Tensor) -> RunShape:
        """What the drafter is to know of the run."""
        engine = self.engine
        return RunShape(
            pair=engine.pair,
            num_rows=num_rows,
            longest=longest,
            most=most,
            eos_ids=eos_ids,
            run=engine._pass,
            keeps_logits=engine.rule.needs_draft_logits,
            row_behind=engine.rule.bonus_reads_row(engine.settings.bonus),
        )

    def _settings(self, request: Request) -> Settings:
        return request.settings(self.engine.settings)

    def _limit(self, request: Request) -> int:
        cap = self._settings(request).max_new_tokens
        return min(len(request.prompt_ids) + cap, self.engine.pair.target_context)

    def _sampling(self) -> BatchSampling:
        return BatchSampling([row.settings.sampling for _, row in self.rows], self.seen, self.device)

    def _stream(self, request: Request) -> TextStream | None:
        stops = self._settings(request).stop
        return TextStream(self.engine.pair.tokenizer, stops) if stops or self.reads_along else None

    def advance(self) -> Iterator[tuple[int, str | Rollout]]:
        """One round of every row; yields new text and the rows that ended, and refills their places."""
        engine = self.engine
        started, before = self._now(), engine.clock.parts()
        contexts, most = self._contexts()
        played = play_round(self.models, contexts, self.rule, engine.draws, most, engine.settings.bonus)
        engine.clock.num_target_passes += 1
        places = contexts.lengths[:, None] + torch.arange(played.emitted_ids.shape[1], device=self.device)
        self.ids.scatter_(1, places, played.emitted_ids)
        if self.seen is not None:
            steps = torch.arange(played.emitted_ids.shape[1], device=self.device)
            real = steps < played.num_emitted[:, None]
            self.seen.scatter_(1, torch.where(real, played.emitted_ids, played.emitted_ids[:, :1]), True)
        starts = [row.length for _, row in self.rows]
        blocks, cached = blocks_of(played, starts, self.models.target.cache.lengths)
        blocks = [row.follow(block) for (_, row), block in zip(self.rows, blocks, strict=True)]
        self._share(started, before)
        finished = []
        for place, block in enumerate(blocks):
            index, row = self.rows[place]
            reason = row.commit(block)
            assert reason == "stop" or cached[place] == row.length - 1, "cache and text have parted"
            rollout = row.rollout(reason, engine.pair.tokenizer) if reason else None
            if self.reads_along and (piece := row.piece(rollout)):
                yield index, piece
            if rollout:
                yield index, rollout
                finished.append(place)
        self._refill(finished)

    def _now(self) -> tuple[float, float]:
        """Seconds of the clock, and of this process's time where it does the work itself."""
        return time.perf_counter(), time.process_time() if self.device.type == "cpu" else 0.0

    def _share(self, started: tuple[float, float], before: tuple[float, float, float]) -> None:
        """Divide a round's seconds among its rows; what a caller does between two rollouts is in none of them."""
        num_rows = len(self.rows)
        seconds, cpu_s = (now - then for now, then in zip(self._now(), started, strict=True))
        spent = [now - then for now, then in zip(self.engine.clock.parts(), before, strict=True)]
        for _, row in self.rows:
            row.active_s += seconds / num_rows
            row.cpu_s += cpu_s / num_rows
            draft, target, arbiter = (have + part / num_rows for have, part in zip(row.parts_s, spent, strict=True))
            row.parts_s = (draft, target, arbiter)

    def _contexts(self) -> tuple[Contexts, int]:
        """What the round works on, and the most positions any row may draft."""
        rows = [row for _, row in self.rows]
        limits = [self._draft_limit(row) for row in rows]
        lengths, room = [row.length for row in rows], [row.limit - row.length for row in rows]
        keys = [round_key(row.key, len(row.blocks)) for row in rows]
        # All in one transfer.
        numbers = torch.tensor([lengths, limits, room, keys], dtype=torch.long, device=self.device)
        contexts = Contexts(
            ids=self.ids,
            lengths=numbers[0],
            limits=numbers[1],
            room=numbers[2],
            keys=numbers[3],
            sampling=self.sampling,
            longest=max(lengths),
            num_lacking=max(row.num_lacking for row in rows),
        )
        return contexts, max(limits)

    def _draft_limit(self, row: Row) -> int:
        """How many tokens the row may draft: the block, the cap and the room in both contexts (method section 1)."""
        draft_room = self.models.drafter.context - row.length
        if self.scorer:
            draft_room = min(draft_room, (draft_room - 3) // 2)
        most = max(0, min(self.engine.max_drafts, row.limit - row.length, draft_room))
        settings = self.engine.settings
        if settings.cost_ratio is None or most == 0:
            return most
        return best_length(row.acceptance.share, most, settings.cost_ratio, bonus=settings.bonus != "arbitrated")

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
        if self.seen is not None:
            self.seen = self.seen[index]
        self.sampling = self._sampling()
        self.models.target.cache.select_rows(index)
        self.models.drafter.select_rows(index)
        if self.scorer:
            self.scorer.select_rows(index)

    def _admit(self, places: list[int]) -> None:
        """Put waiting requests into these places and read their prompts, but for each prompt's last token."""
        clock, drafter = self.engine.clock, self.models.drafter
        clock.lap("")
        before, (_, began) = clock.prefill_s, self._now()
        for place in places:
            index, request = self.waiting.pop()
            row = Row(request, self._settings(request), self._limit(request), self._stream(request))
            self.rows[place : place + 1] = [(index, row)]
            prompt = torch.tensor(request.prompt_ids, device=self.device)
            self.ids[place, : row.length] = prompt
            if self.seen is not None:
                self.seen[place] = False
                self.seen[place, prompt] = True
        self.sampling = self._sampling()
        lengths = {place: self.rows[place][1].length for place in places}
        chunk, short = self.engine.prefill_chunk, {row: num for row, num in lengths.items() if num <= drafter.context}
        drafter.admit(self.ids, short, chunk)

        def on_part(part: PromptPart) -> None:
            if found := part.among(short):
                drafter.read(self.ids, found)

        self.models.target.prefill(self.ids, lengths, chunk, on_part if self.drafter_reads else None)
        if self.scorer:
            self.scorer.admit(self.ids, short, chunk)
        clock.lap("prefill_s")
        # Else the first round would wait for the end of the prompts in its own time.
        clock.settle()
        cpu_s = self._now()[1] - began
        for place in places:
            row = self.rows[place][1]
            row.cpu_s += cpu_s / len(places)
            row.prefill_s = clock.prefill_s - before
            row.active_s += row.prefill_s / len(places)
