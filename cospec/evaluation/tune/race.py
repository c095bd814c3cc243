"""The fastest rule that certainly keeps an accuracy budget: all are on trial, each no longer than needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cospec.engine.metrics import Acceptance
from cospec.evaluation.acceleration import steps_of
from cospec.evaluation.evaluate import MAX_FAILED_SHARE
from cospec.evaluation.method import EvalSettings, Method, judged_rollouts, requests_of
from cospec.evaluation.result import acceptance_of
from cospec.evaluation.sample import Sample
from cospec.evaluation.scoring import FailureLimit
from cospec.evaluation.statistics import holm
from cospec.evaluation.task import EvalTask
from cospec.evaluation.tune.sequential import LossTest, mean_bounds
from cospec.pair import Pair
from cospec.prompt_rows import PromptRow

#: How a candidate's test ended: it certainly keeps the budget; it certainly does not; it is slower than what is already
#: good enough; the problems ran out.
Outcome = Literal["kept", "exceeded", "slower", "undecided"]
#: Problems before a candidate may be called slower: the first few say little about speed.
_ENOUGH = 30


@dataclass(slots=True)
class Candidate:
    """A method on trial at K draft tokens, ``num_steps`` draft steps a round; its texts and what they say so far."""

    method: Method
    test: LossTest
    num_steps: int
    limit: FailureLimit
    differences: list[float] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    outcome: Outcome | None = None

    @property
    def acceptance(self) -> Acceptance:
        """Sums over its texts."""
        return acceptance_of(self.samples)


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What the trial of a candidate said; ``speedup`` is relative to strict at the same K, its texts' length included.

    ``p_loses`` is Holm's over all candidates, of "it loses the budget or more"; ``bounds`` is the confidence sequence
    of the difference at 95 %, valid whenever the trial stopped.
    """

    name: str
    outcome: Outcome
    num_problems: int
    num_failed: int
    difference: float
    bounds: tuple[float, float]
    p_loses: float
    speedup: float
    tokens_per_round: float | None
    repetitive: float

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return dataclasses.asdict(self) | {"bounds": list(self.bounds)}


@dataclass(frozen=True, slots=True)
class RaceResult:
    """All candidates, and the fastest that keeps the budget; None where none is faster than strict."""

    results: tuple[CandidateResult, ...]
    chosen: str | None
    num_problems: int
    num_texts: int


def race(
    pair: Pair,
    reference: Method,
    methods: Sequence[Method],
    task: EvalTask,
    rows: Sequence[PromptRow],
    settings: EvalSettings,
    *,
    budget: float,
    level: float = 0.05,
    chunk: int = 32,
    max_failed_share: float = MAX_FAILED_SHARE,
    on_chunk: Callable[[int, Sequence[Candidate]], None] = lambda num, candidates: None,
) -> RaceResult:
    """Decode ``rows`` in their order, which must be random, ``chunk`` at a time, until every candidate's fate is known.

    ``reference`` is strict: its texts follow the target's own law, and it makes the same draws as the candidates, so
    that a difference is what the rule changes and little else. The chance that any candidate called *kept* loses
    ``budget`` or more is at most ``level``: each test may be stopped at will, and Holm's correction is over them all.
    `TooManyFailures` where the scorer fails on more than ``max_failed_share`` of a method's texts.
    """
    own, *candidates = (
        Candidate(
            method,
            LossTest(budget),
            steps_of(settings.num_draft_tokens, method.bonus_in_use, method.rule_name),
            FailureLimit(max_failed_share, len(rows)),
        )
        for method in (reference, *methods)
    )
    num = 0
    for part in _chunks(rows, chunk):
        if not any(candidate.outcome is None for candidate in candidates):
            break
        num += len(part)
        right = _outcomes(own, pair, task, part, settings)
        for candidate in [c for c in candidates if c.outcome is None]:
            mine = _outcomes(candidate, pair, task, part, settings)
            for row in part:
                if row.id in right and row.id in mine:
                    candidate.differences.append(float(mine[row.id]) - float(right[row.id]))
                    candidate.test.add(candidate.differences[-1])
        judge(candidates, [speedup(candidate, own) for candidate in candidates], level)
        on_chunk(num, candidates)
    for candidate in candidates:
        candidate.outcome = candidate.outcome or "undecided"
    results = [_result(candidate, own, p) for candidate, p in zip(candidates, _adjusted(candidates), strict=True)]
    faster = [result for result in results if result.outcome == "kept" and result.speedup > 1]
    best = max(faster, key=lambda result: result.speedup, default=None)
    num_texts = sum(len(candidate.samples) for candidate in (own, *candidates))
    return RaceResult(tuple(results), best.name if best else None, num, num_texts)


def speedup(candidate: Candidate, reference: Candidate) -> float:
    """Seconds of the reference's rounds by the candidate's on the same problems.

    A candidate's round is taken to cost the reference's, with its own number of draft steps, times what its rule adds
    by its own clock: ratios within one run do not feel how busy the machine was meanwhile.
    """
    keys = {sample.key for sample in candidate.samples}
    theirs = [sample for sample in reference.samples if sample.key in keys]
    if not theirs:
        return 0.0
    draft, target, _ = _seconds(reference.samples)
    steps = 1 + (candidate.num_steps / reference.num_steps - 1) * draft / (draft + target)
    mine = sum(sample.num_rounds for sample in candidate.samples) * _added(candidate.samples) * steps
    return sum(sample.num_rounds for sample in theirs) * _added(reference.samples) / mine


def _added(samples: Sequence[Sample]) -> float:
    """What deciding adds to drafting and verifying."""
    draft, target, arbiter = _seconds(samples)
    return 1 + arbiter / (draft + target)


def _seconds(samples: Sequence[Sample]) -> tuple[float, float, float]:
    parts = [(s.timing.draft_s, s.timing.target_s, s.timing.arbiter_s) for s in samples]
    draft, target, arbiter = (sum(column) for column in zip(*parts, strict=True))
    return draft, target, arbiter


def _chunks(rows: Sequence[PromptRow], size: int) -> Iterator[Sequence[PromptRow]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]


def _outcomes(
    candidate: Candidate, pair: Pair, task: EvalTask, rows: Sequence[PromptRow], settings: EvalSettings
) -> dict[str | int, bool]:
    """Right or not by row, without those whose scorer failed; the samples are added to the candidate's."""
    engine = candidate.method.engine(pair, settings)
    rollouts = engine.rollouts(requests_of(pair, rows, raw=settings.raw))
    decoded = list(zip(rows, rollouts, strict=True))
    samples = [sample for sample, _ in judged_rollouts(decoded, candidate.method, task, settings, 0)]
    candidate.samples += samples
    for sample in samples:
        candidate.limit.add(sample)
    return {sample.id: sample.verdict == "right" for sample in samples if not sample.is_failure}


def _adjusted(candidates: Sequence[Candidate]) -> list[float]:
    return holm([candidate.test.p_loses for candidate in candidates])


def judge(candidates: Sequence[Candidate], speeds: Sequence[float], level: float) -> None:
    """Seal the fate of those whose test has said enough; ``speeds`` are relative to strict."""
    for candidate, p in zip(candidates, _adjusted(candidates), strict=True):
        if candidate.outcome is not None:
            continue
        if p <= level:
            candidate.outcome = "kept"
        elif candidate.test.p_keeps <= level:
            candidate.outcome = "exceeded"
    kept = [speed for candidate, speed in zip(candidates, speeds, strict=True) if candidate.outcome == "kept"]
    # Strict itself keeps any budget.
    fastest = max([1.0, *kept])
    for candidate, speed in zip(candidates, speeds, strict=True):
        if candidate.outcome is None and candidate.test.num >= _ENOUGH and speed <= fastest:
            candidate.outcome = "slower"


def _result(candidate: Candidate, reference: Candidate, p: float) -> CandidateResult:
    assert candidate.outcome is not None
    num = len(candidate.samples)
    return CandidateResult(
        name=candidate.method.name,
        outcome=candidate.outcome,
        num_problems=len(candidate.differences),
        num_failed=num - len(candidate.differences),
        difference=candidate.test.mean,
        bounds=mean_bounds(candidate.differences),
        p_loses=p,
        speedup=speedup(candidate, reference),
        tokens_per_round=candidate.acceptance.tokens_per_round,
        repetitive=sum(sample.repetitive for sample in candidate.samples) / num if num else 0.0,
    )
