"""What came out of an evaluation: samples by task and method, and the numbers of one method."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from cospec.engine.metrics import Acceptance, ratio
from cospec.engine.record import Bonus
from cospec.evaluation.comparison import Interval, Outcomes, mean_ratio, share_of, sums_by_problem
from cospec.evaluation.resampling import Floats, bootstrap_interval
from cospec.evaluation.sample import Sample


@dataclass(frozen=True, slots=True)
class MethodScore:
    """What a method achieved on a set of problems.

    ``right`` and ``num`` count scored samples; those whose scorer failed are in ``num_failed`` only. ``accuracy`` is
    their ratio, which is pass@1 averaged over repeats. Ratios of tokens, rounds and decisions are ratios of sums over
    all samples and None where there is nothing to divide by. ``keep_rate`` needs a mismatch, ``mean_reward`` is for
    arbiters. Names and definitions of acceptance are vLLM's, see `Acceptance`.
    """

    right: int
    num: int
    accuracy: float | None
    ci95: Interval
    num_no_answer: int
    num_failed: int
    num_timeout: int
    num_tokens: int
    num_rounds: int
    num_mismatches: int
    num_kept: int
    tokens_per_round: float | None
    tokens_per_round_ci95: Interval | None
    target_passes_per_token: float | None
    acceptance_rate: float | None
    l_accept: float | None
    mean_acceptance_length: float | None
    acceptance_by_position: tuple[float, ...]
    accepted_lengths: tuple[int, ...]
    keep_rate: float | None
    mean_reward: float | None
    truncated: float | None
    repetitive: float | None


@dataclass(frozen=True, slots=True)
class MethodTiming:
    """Seconds of the engine's work, summed over samples, and output tokens by them.

    ``cpu_share`` is this process's processor time by them, None where that says nothing.
    """

    seconds: float
    draft_s: float
    target_s: float
    arbiter_s: float
    tokens_per_s: float | None
    cpu_share: float | None


@dataclass(frozen=True, slots=True)
class MethodResult:
    """A method's samples: by repeat, and within a repeat in the order of the rows."""

    name: str
    rule: str
    bonus: Bonus | None
    is_arbiter: bool
    samples: tuple[Sample, ...]

    @property
    def seconds(self) -> float:
        """Active seconds of decoding."""
        return sum(sample.timing.active_s for sample in self.samples)

    @property
    def outcomes(self) -> Outcomes:
        """Right or not by key, without the samples whose scorer failed."""
        return {sample.key: sample.verdict == "right" for sample in self.samples if not sample.is_failure}

    def acceptance(self) -> Acceptance:
        """The sums over all samples."""
        return acceptance_of(self.samples)

    def sums(self, *names: str) -> Floats:
        """One row per problem, (n, len(names)): the sums over its repeats of these counters."""
        return sums_by_problem({s.key: [getattr(s, name) for name in names] for s in self.samples})

    def score(self) -> MethodScore:
        """The numbers that need no clock."""
        samples, accuracy, sums = self.samples, share_of(self.outcomes), self.acceptance()
        rewards = [sample.reward for sample in samples if sample.reward is not None]
        interval = bootstrap_interval(self.sums("num_tokens", "num_rounds"), mean_ratio)
        return MethodScore(
            right=accuracy.count,
            num=accuracy.num,
            accuracy=accuracy.share,
            ci95=accuracy.ci95,
            num_no_answer=sum(sample.verdict == "no_answer" for sample in samples),
            num_failed=len(samples) - accuracy.num,
            num_timeout=sum(sample.verdict == "timeout" for sample in samples),
            num_tokens=sums.num_tokens,
            num_rounds=sums.num_rounds,
            num_mismatches=sums.num_mismatches,
            num_kept=sums.num_kept,
            tokens_per_round=sums.tokens_per_round,
            tokens_per_round_ci95=interval,
            target_passes_per_token=None if self.rule == "draft" else ratio(sums.num_rounds, sums.num_tokens),
            acceptance_rate=sums.acceptance_rate,
            l_accept=sums.l_accept,
            mean_acceptance_length=sums.mean_acceptance_length,
            acceptance_by_position=tuple(sums.acceptance_by_position),
            accepted_lengths=tuple(sums.accepted_lengths),
            keep_rate=sums.keep_rate,
            mean_reward=ratio(sum(rewards), len(rewards)),
            truncated=ratio(sums.num_truncated, len(samples)),
            repetitive=ratio(sum(sample.repetitive for sample in samples), len(samples)),
        )

    def timing(self) -> MethodTiming:
        """The numbers of the clock."""
        names = ("draft_s", "target_s", "arbiter_s")
        parts = {name: sum(getattr(sample.timing, name) for sample in self.samples) for name in names}
        tokens = sum(sample.num_tokens for sample in self.samples)
        # Samples on an accelerator, and those of earlier versions, have no processor time.
        timed = [sample.timing for sample in self.samples if sample.timing.cpu_s > 0.0]
        share = ratio(sum(timing.cpu_s for timing in timed), sum(timing.active_s for timing in timed))
        return MethodTiming(
            seconds=self.seconds, tokens_per_s=ratio(tokens, self.seconds), cpu_share=share if timed else None, **parts
        )

    def by_position(self) -> list[tuple[int, int]]:
        """(rounds that drafted a token at this block position, rounds that committed it), from position 0 on."""
        drafted = _added(sample.drafted_at for sample in self.samples)
        return list(zip_longest(drafted, _added(sample.accepted_at for sample in self.samples), fillvalue=0))

    def by_risk(self) -> list[tuple[int, int]]:
        """(executed mismatches, kept ones) by bin of `RISK_EDGES`."""
        columns = zip(
            _added(sample.mismatches_by_risk for sample in self.samples),
            _added(sample.kept_by_risk for sample in self.samples),
            strict=True,
        )
        return list(columns)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """All methods on one task, in the order they were asked for."""

    name: str
    results: tuple[MethodResult, ...]

    def by_rule(self, rule: str) -> MethodResult | None:
        """The first method of this rule; "draft" and "target" are the models alone."""
        return next((result for result in self.results if result.rule == rule), None)

    @property
    def arbiters(self) -> list[MethodResult]:
        return [result for result in self.results if result.is_arbiter]

    @property
    def num_problems(self) -> int:
        return max((len({s.key.problem for s in result.samples}) for result in self.results), default=0)

    @property
    def seconds(self) -> float:
        """Active seconds of decoding, all methods together."""
        return sum(result.seconds for result in self.results)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of all tasks; every task has the same methods in the same order."""

    tasks: tuple[TaskResult, ...]

    def pooled(self) -> TaskResult:
        """All problems of all tasks as if they were one task."""
        if len(self.tasks) == 1:
            return self.tasks[0]
        joined = [
            dataclasses.replace(results[0], samples=tuple(sample for result in results for sample in result.samples))
            for results in zip(*(task.results for task in self.tasks), strict=True)
        ]
        return TaskResult("all", tuple(joined))


def acceptance_of(samples: Sequence[Sample]) -> Acceptance:
    """The sums of acceptance over these samples."""
    names = ("num_tokens", "num_rounds", "num_drafted", "num_accepted", "num_mismatches", "num_kept")
    drafted = _added(sample.drafted_at for sample in samples)
    return Acceptance(
        num_rollouts=len(samples),
        num_truncated=sum(sample.finish_reason == "length" for sample in samples),
        num_drafts=drafted[0] if drafted else 0,
        accepted_at=_added(sample.accepted_at for sample in samples),
        **{name: sum(getattr(sample, name) for sample in samples) for name in names},
    )


def _added(columns: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(sum(column) for column in zip_longest(*columns, fillvalue=0))
