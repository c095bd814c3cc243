"""One method over one set of prompts: from rows to scored samples, with the time that decoding took."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from cospec.engine.decode import Engine, Request
from cospec.engine.record import Bonus, FinishReason, Rollout, Sampling
from cospec.engine.rules import ArbiterRule, Rule, rule_named
from cospec.pair import Pair
from cospec.prompt_rows import PromptRow
from cospec.prompts import row_prompt_ids
from cospec.rewards import RewardConfig, rollout_reward
from cospec.scoring import UserScorer, safe_score
from cospec.scoring.verdict import VerdictKind

#: Enough to touch every kind of pass once; the warm-up is thrown away.
_WARM_UP_TOKENS = 12


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """How every method of an evaluation decodes, and the reward that arbiters are measured by."""

    num_draft_tokens: int = 5
    max_new_tokens: int = 512
    sampling: Sampling = field(default_factory=Sampling)
    eos_token_ids: tuple[int, ...] | None = None
    batch_size: int = 8
    seed: int = 0
    raw: bool = False
    reward: RewardConfig = field(default_factory=RewardConfig)


@dataclass(frozen=True, slots=True)
class Method:
    """A rule under a name; ``rule`` "draft" and "target" are the two models decoding alone."""

    name: str
    rule: Rule | Literal["draft", "target"]
    bonus: Bonus | None = None

    @property
    def rule_name(self) -> str:
        return self.rule if isinstance(self.rule, str) else self.rule.name

    @property
    def is_arbiter(self) -> bool:
        return isinstance(self.rule, ArbiterRule)

    @property
    def bonus_in_use(self) -> Bonus | None:
        """None for a model alone, which has no bonus."""
        if isinstance(self.rule, str) or not self.rule.drafts:
            return None
        return self.bonus or self.rule.default_bonus

    def engine(self, pair: Pair, settings: EvalSettings) -> Engine:
        """The engine that decodes this method; ValueError for settings that cannot work."""
        alone = isinstance(self.rule, str)
        return Engine(
            pair.draft_alone() if self.rule == "draft" else pair,
            rule_named("target") if isinstance(self.rule, str) else self.rule,
            num_draft_tokens=settings.num_draft_tokens,
            bonus=None if alone else self.bonus,
            max_new_tokens=settings.max_new_tokens,
            sampling=settings.sampling,
            eos_token_ids=settings.eos_token_ids,
            batch_size=settings.batch_size,
            seed=settings.seed,
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """One problem under one method; the counters are those of method section 1.

    ``reward`` is the rollout reward of arbiters, None for other methods and failed scorers. ``decode_s`` is how long
    the method had been decoding when this sample ended, so that the largest one is the method's whole time.
    """

    id: str | int
    verdict: VerdictKind
    extracted: str | None
    reason: str
    num_tokens: int
    finish_reason: FinishReason
    num_rounds: int
    num_drafted: int
    num_accepted: int
    num_mismatches: int
    num_kept: int
    reward: float | None
    decode_s: float
    text: str

    @property
    def is_failure(self) -> bool:
        """The scorer failed: the sample is neither right nor wrong."""
        return self.verdict in ("timeout", "error")

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that `sample_from_json` reads back."""
        return dataclasses.asdict(self)


def sample_from_json(row: Mapping[str, Any]) -> Sample:
    """Rebuild a sample; ValueError for a record of another version."""
    try:
        return Sample(**row)
    except TypeError as error:
        raise ValueError(f"sample {row.get('id')!r} is of another version ({error}): evaluate anew") from error


def requests_of(pair: Pair, rows: Sequence[PromptRow], *, raw: bool = False) -> list[Request]:
    """The rows as the engine takes them; ValueError names the row whose prompt cannot be built."""
    return [Request(row.id, row_prompt_ids(pair, row, raw=raw)) for row in rows]


def run_method(
    pair: Pair,
    method: Method,
    rows: Sequence[PromptRow],
    scorer: UserScorer,
    settings: EvalSettings,
    seconds_before: float = 0.0,
) -> Iterator[Sample]:
    """Decode and score the rows, yielding samples as they end; the clock runs while the engine decodes, only then.

    The first batch runs once before, short and untimed, so that no method pays for first calls.
    """
    requests = requests_of(pair, rows, raw=settings.raw)
    warm_up = dataclasses.replace(settings, max_new_tokens=min(settings.max_new_tokens, _WARM_UP_TOKENS))
    method.engine(pair, warm_up).rollouts(requests[: settings.batch_size])
    seconds = seconds_before
    finished = method.engine(pair, settings).run(requests)
    while True:
        start = time.perf_counter()
        item = next(finished, None)
        seconds += time.perf_counter() - start
        if item is None:
            return
        index, rollout = item
        reward = settings.reward if method.is_arbiter else None
        yield _sample(rollout, rows[index], scorer, reward, seconds)


def _sample(
    rollout: Rollout, row: PromptRow, scorer: UserScorer, reward: RewardConfig | None, seconds: float
) -> Sample:
    verdict = safe_score(scorer, rollout.text, row.scorer_row())
    rewarded = reward is not None and not verdict.is_failure
    return Sample(
        id=rollout.id,
        verdict=verdict.kind,
        extracted=verdict.extracted,
        reason=verdict.reason,
        num_tokens=len(rollout.output_ids),
        finish_reason=rollout.finish_reason,
        num_rounds=rollout.num_rounds,
        num_drafted=rollout.num_drafted,
        num_accepted=rollout.num_accepted,
        num_mismatches=rollout.num_mismatches,
        num_kept=rollout.num_kept,
        reward=rollout_reward(rollout, verdict.is_right, reward) if rewarded and reward else None,
        decode_s=seconds,
        text=rollout.text,
    )
