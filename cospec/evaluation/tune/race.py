"""The fastest rule that certainly keeps an accuracy budget: all are on trial, each no longer than needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from cospec.engine.metrics import Acceptance
from cospec.evaluation.acceleration import steps_of
from cospec.evaluation.comparison import Interval
from cospec.evaluation.evaluate import MAX_FAILED_SHARE
from cospec.evaluation.method import EvalSettings, Method, judged_rollouts, requests_of
from cospec.evaluation.paired import Ratio
from cospec.evaluation.resampling import Floats, bootstrap_interval
from cospec.evaluation.result import acceptance_of
from cospec.evaluation.sample import Sample
from cospec.evaluation.scoring import FailureLimit, TooManyFailures
from cospec.evaluation.statistics import holm
from cospec.evaluation.task import EvalTask
from cospec.evaluation.tune.sequential import LossTest, mean_bounds
from cospec.pair import Pair
from cospec.prompt_rows import PromptRow

#: How a candidate's test ended: it certainly keeps the budget; it certainly does not; it is slower than what is already
#: good enough; the problems ran out, or are too few for certainty; its answers could not be scored.
Outcome = Literal["kept", "exceeded", "slower", "undecided", "failed"]
#: Problems before a candidate may be called slower: the first few say little about speed.
_ENOUGH = 30
#: Fewer than elsewhere, as they are drawn after every chunk.
_RESAMPLES = 1000


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
    failure: str | None = None

    @property
    def acceptance(self) -> Acceptance:
        """Sums over its texts."""
        return acceptance_of(self.samples)


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What the trial of a candidate said; ``speedup`` is relative to strict at the same K, its texts' length included.

    ``p_loses`` is Holm's over all candidates, of "it loses the budget or more"; ``bounds`` is the confidence sequence
    of the difference at 95 %, valid whenever the trial stopped. ``failure`` says why a trial *failed*.
    """

    name: str
    outcome: Outcome
    num_problems: int
    num_failed: int
    difference: float
    bounds: tuple[float, float]
    p_loses: float
    speedup: float | None
    speedup_ci95: Interval | None
    tokens_per_round: float | None
    acceptance_rate: float | None
    l_accept: float | None
    repetitive: float
    failure: str | None

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        interval = list(self.speedup_ci95) if self.speedup_ci95 else None
        return dataclasses.asdict(self) | {"bounds": list(self.bounds), "speedup_ci95": interval}


@dataclass(frozen=True, slots=True)
class RaceResult:
    """All candidates, and the fastest that keeps the budget; None where none is fast enough."""

    results: tuple[CandidateResult, ...]
    chosen: str | None
    num_problems: int
    num_texts: int
    num_tokens: int


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
    floor: float = 1.0,
    chunk: int = 32,
    max_failed_share: float = MAX_FAILED_SHARE,
    on_chunk: Callable[[int, Sequence[Candidate]], None] = lambda num, candidates: None,
) -> RaceResult:
    """Decode ``rows`` in their order, which must be random, ``chunk`` at a time, until every candidate's fate is known.

    ``reference`` is strict: its texts follow the target's own law, and it makes the same draws as the candidates, so
    that a difference is what the rule changes and little else. The chance that any candidate called *kept* loses
    ``budget`` or more is at most ``level``: each test may be stopped at will, and Holm's correction is over them all.
    Candidates no more than ``floor`` times as fast as the reference are of no use. Where the scorer fails on more than
    ``max_failed_share`` of a candidate's texts its trial ends; `TooManyFailures` where that happens to the reference.
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
            _try(candidate, right, pair, task, part, settings)
        judge(candidates, [speedup(candidate, own) for candidate in candidates], level, floor, len(rows) - num)
        on_chunk(num, candidates)
    for candidate in candidates:
        candidate.outcome = candidate.outcome or "undecided"
    results = [_result(candidate, own, p) for candidate, p in zip(candidates, _adjusted(candidates), strict=True)]
    faster = [result for result in results if result.outcome == "kept" and (result.speedup or 0.0) > floor]
    best = max(faster, key=lambda result: result.speedup or 0.0, default=None)
    samples = [sample for candidate in (own, *candidates) for sample in candidate.samples]
    tokens = sum(sample.num_tokens for sample in samples)
    return RaceResult(tuple(results), best.name if best else None, num, len(samples), tokens)


def _try(
    candidate: Candidate,
    right: Mapping[str | int, bool],
    pair: Pair,
    task: EvalTask,
    rows: Sequence[PromptRow],
    settings: EvalSettings,
) -> None:
    """Further problems for a candidate, beside those that the reference got ``right`` or not."""
    try:
        mine = _outcomes(candidate, pair, task, rows, settings)
    except TooManyFailures as error:
        candidate.outcome, candidate.failure = "failed", str(error)
        return
    for row in rows:
        if row.id in right and row.id in mine:
            candidate.differences.append(float(mine[row.id]) - float(right[row.id]))
            candidate.test.add(candidate.differences[-1])


def speedup(candidate: Candidate, reference: Candidate) -> Ratio:
    """Seconds of the reference's rounds by the candidate's on the same problems, with an interval over problems.

    A candidate's round is taken to cost the reference's, with its own number of draft steps, times what its rule adds
    by its own clock: ratios within one run do not feel how busy the machine was meanwhile.
    """
    theirs = {sample.key: _costs(sample) for sample in reference.samples}
    rows = [[*_costs(s), *theirs[s.key]] for s in candidate.samples if s.key in theirs]
    if not rows:
        return Ratio(None, None)
    columns = np.array(rows, dtype=np.float64)
    statistic = partial(_speed_ratio, steps=candidate.num_steps / reference.num_steps)
    interval = bootstrap_interval(columns, statistic, num=_RESAMPLES)
    return Ratio(float(statistic(columns.mean(0))), interval)


def _costs(sample: Sample) -> tuple[float, float, float, float]:
    return sample.num_rounds, sample.timing.draft_s, sample.timing.target_s, sample.timing.arbiter_s


def _speed_ratio(means: Floats, steps: float) -> Floats:
    """Of means (..., 8) of rounds and parts of both: the reference's seconds by the method's of ``steps`` as many draft
    steps."""
    rounds, draft, target, arbiter, rounds_0, draft_0, target_0, arbiter_0 = np.moveaxis(means, -1, 0)
    longer = 1 + (steps - 1) * draft_0 / (draft_0 + target_0)
    # What deciding adds to drafting and verifying.
    mine, theirs = 1 + arbiter / (draft + target), 1 + arbiter_0 / (draft_0 + target_0)
    found: Floats = rounds_0 * theirs / (rounds * mine * longer)
    return found


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


def judge(
    candidates: Sequence[Candidate], speeds: Sequence[Ratio], level: float, floor: float = 1.0, num_left: int = 10**9
) -> None:
    """Seal the fate of those whose test has said enough, or cannot before the last ``num_left`` problems are through.

    ``speeds`` are relative to the reference; one is *slower* where its whole interval is below what is good enough.
    """
    for candidate, p in zip(candidates, _adjusted(candidates), strict=True):
        if candidate.outcome is not None:
            continue
        if p <= level:
            candidate.outcome = "kept"
        elif candidate.test.p_keeps <= level:
            candidate.outcome = "exceeded"
    kept = [s.value or 0.0 for candidate, s in zip(candidates, speeds, strict=True) if candidate.outcome == "kept"]
    fastest = max([floor, *kept])
    for candidate, speed in zip(candidates, speeds, strict=True):
        if candidate.outcome is None and candidate.test.num >= _ENOUGH and speed.ci95 and speed.ci95[1] <= fastest:
            candidate.outcome = "slower"
    # Whoever is out without having kept the budget stays in Holm's count.
    out = sum(candidate.outcome not in (None, "kept") for candidate in candidates)
    for candidate in candidates:
        if candidate.outcome is None and not candidate.test.can_keep(level / (1 + out), num_left):
            candidate.outcome = "undecided"


def _result(candidate: Candidate, reference: Candidate, p: float) -> CandidateResult:
    assert candidate.outcome is not None
    num, speed, accepted = len(candidate.samples), speedup(candidate, reference), candidate.acceptance
    return CandidateResult(
        name=candidate.method.name,
        outcome=candidate.outcome,
        num_problems=len(candidate.differences),
        num_failed=sum(sample.is_failure for sample in candidate.samples),
        difference=candidate.test.mean,
        bounds=mean_bounds(candidate.differences),
        p_loses=p,
        speedup=speed.value,
        speedup_ci95=speed.ci95,
        tokens_per_round=accepted.tokens_per_round,
        acceptance_rate=accepted.acceptance_rate,
        l_accept=accepted.l_accept,
        repetitive=sum(sample.repetitive for sample in candidate.samples) / num if num else 0.0,
        failure=candidate.failure,
    )
