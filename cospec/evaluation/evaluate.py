"""Run several methods over the same prompts, and what each of them achieved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cospec.engine.metrics import ratio
from cospec.engine.record import Bonus
from cospec.evaluation.comparison import Outcomes
from cospec.evaluation.method import EvalSettings, Method, Sample, requests_of, run_method
from cospec.evaluation.statistics import wilson
from cospec.pair import Pair
from cospec.prompt_rows import PromptRow
from cospec.scoring import UserScorer


@dataclass(frozen=True, slots=True)
class MethodScore:
    """What a method achieved. ``num`` counts scored problems; those whose scorer failed are in ``num_failed`` only.

    ``tokens_per_round`` and ``target_passes_per_token`` are ratios of sums over all samples (None for the latter where
    no target takes part), ``tokens_per_s`` is output tokens by seconds of decoding. ``keep_rate`` is None without a
    mismatch, ``mean_reward`` is for arbiters, ``truncated`` is the share of samples that the cap or the context ended.
    """

    right: int
    num: int
    accuracy: float | None
    ci95: tuple[float, float]
    tokens_per_round: float | None
    target_passes_per_token: float | None
    tokens_per_s: float | None
    keep_rate: float | None
    mean_reward: float | None
    num_failed: int
    truncated: float | None


@dataclass(frozen=True, slots=True)
class MethodResult:
    """A method's samples in the order of the rows, and the ``seconds`` its decoding took."""

    name: str
    rule: str
    bonus: Bonus | None
    is_arbiter: bool
    samples: tuple[Sample, ...]

    @property
    def seconds(self) -> float:
        return max((sample.decode_s for sample in self.samples), default=0.0)

    @property
    def outcomes(self) -> Outcomes:
        """Right or not by id, without the samples whose scorer failed."""
        return {sample.id: sample.verdict == "right" for sample in self.samples if not sample.is_failure}

    def score(self) -> MethodScore:
        """The numbers of the table."""
        outcomes, num_samples = self.outcomes, len(self.samples)
        right, num = sum(outcomes.values()), len(outcomes)
        tokens = sum(sample.num_tokens for sample in self.samples)
        rounds = sum(sample.num_rounds for sample in self.samples)
        rewards = [sample.reward for sample in self.samples if sample.reward is not None]
        return MethodScore(
            right=right,
            num=num,
            accuracy=ratio(right, num),
            ci95=wilson(right, num),
            tokens_per_round=ratio(tokens, rounds),
            target_passes_per_token=None if self.rule == "draft" else ratio(rounds, tokens),
            tokens_per_s=ratio(tokens, self.seconds),
            keep_rate=ratio(sum(s.num_kept for s in self.samples), sum(s.num_mismatches for s in self.samples)),
            mean_reward=ratio(sum(rewards), len(rewards)),
            num_failed=num_samples - num,
            truncated=ratio(sum(sample.finish_reason == "length" for sample in self.samples), num_samples),
        )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The results of all methods, in the order they were asked for."""

    results: tuple[MethodResult, ...]

    def by_rule(self, rule: str) -> MethodResult | None:
        """The first method of this rule; "draft" and "target" are the models alone."""
        return next((result for result in self.results if result.rule == rule), None)

    @property
    def arbiters(self) -> list[MethodResult]:
        return [result for result in self.results if result.is_arbiter]

    @property
    def num_problems(self) -> int:
        return max((len(result.samples) for result in self.results), default=0)

    @property
    def seconds(self) -> float:
        """Seconds of decoding, all methods together."""
        return sum(result.seconds for result in self.results)


def evaluate(
    pair: Pair,
    methods: Sequence[Method],
    rows: Sequence[PromptRow],
    scorer: UserScorer,
    settings: EvalSettings,
    *,
    kept: Mapping[str, Sequence[Sample]] | None = None,
    on_sample: Callable[[str, Sample], None] | None = None,
) -> Evaluation:
    """Run each method over the same rows in this process, with the same batch size.

    ``kept`` holds samples of an earlier, interrupted run by method; their rows are not run again. ``on_sample`` is
    called with the method's name and each new sample as it ends. ValueError, before anything is decoded, for two
    methods of one name, settings that cannot work and prompts that do not fit.
    """
    kept = kept or {}
    _check(pair, methods, rows, settings)
    results = []
    for method in methods:
        samples = {sample.id: sample for sample in kept.get(method.name, ())}
        missing = [row for row in rows if row.id not in samples]
        before = max((sample.decode_s for sample in samples.values()), default=0.0)
        for sample in run_method(pair, method, missing, scorer, settings, before) if missing else ():
            samples[sample.id] = sample
            if on_sample:
                on_sample(method.name, sample)
        in_order = tuple(samples[row.id] for row in rows)
        results.append(MethodResult(method.name, method.rule_name, method.bonus_in_use, method.is_arbiter, in_order))
    return Evaluation(tuple(results))


def _check(pair: Pair, methods: Sequence[Method], rows: Sequence[PromptRow], settings: EvalSettings) -> None:
    names = [method.name for method in methods]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two methods are called {name!r}: samples are kept by name, so give each its own")
    requests = requests_of(pair, rows, raw=settings.raw)
    for method in methods:
        engine = method.engine(pair, settings)
        for request in requests:
            if len(request.prompt_ids) >= engine.pair.target_context:
                raise ValueError(
                    f"prompt {request.id!r} has {len(request.prompt_ids)} tokens, but method {method.name!r} has a "
                    f"context of {engine.pair.target_context}: shorten the prompt, or leave out the method"
                )
