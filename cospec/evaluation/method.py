"""One method over one set of prompts: from rows to judged samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from cospec.engine.decode import Engine
from cospec.engine.drafters import Drafter
from cospec.engine.record import Bonus, Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, Rule, rule_named
from cospec.evaluation.sample import Sample, sample_of
from cospec.evaluation.scoring import score_all
from cospec.evaluation.task import EvalTask
from cospec.pair import Pair
from cospec.prompt_rows import PromptRow
from cospec.prompts import row_prompt_ids
from cospec.rewards import RewardConfig

#: Enough to touch every kind of pass once; the warm-up is thrown away.
_WARM_UP_TOKENS = 12


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """How every method of an evaluation decodes, and the reward that arbiters are measured by.

    Repeat r of ``repeats`` decodes with seed ``seed + r``; ``workers`` is how many texts are judged at once.
    ``drafter`` None is the pair's draft model.
    """

    num_draft_tokens: int = 5
    max_new_tokens: int = 512
    sampling: Sampling = field(default_factory=Sampling)
    eos_token_ids: tuple[int, ...] | None = None
    stop: tuple[str, ...] = ()
    cost_ratio: float | None = None
    drafter: Drafter | None = None
    batch_size: int = 8
    seed: int = 0
    repeats: int = 1
    raw: bool = False
    workers: int = 1
    reward: RewardConfig = field(default_factory=RewardConfig)

    def __post_init__(self) -> None:
        if self.repeats < 1 or self.workers < 1:
            raise ValueError(f"{self.repeats} repeats with {self.workers} workers: both must be at least 1")
        if self.repeats > 1 and self.sampling.greedy:
            raise ValueError(
                f"{self.repeats} repeats at temperature 0 would write the same text {self.repeats} times: set a "
                "temperature above 0, or one repeat"
            )


@dataclass(frozen=True, slots=True)
class Method:
    """A rule under a name; ``rule`` "draft" and "target" are the two models decoding alone."""

    name: str
    rule: Rule | Literal["draft", "target"]
    bonus: Bonus | None = None

    @property
    def rule_name(self) -> str:
        """The rule's canonical spec: one rule with two parameter values is two methods."""
        return self.rule if isinstance(self.rule, str) else self.rule.spec

    @property
    def is_arbiter(self) -> bool:
        return isinstance(self.rule, ArbiterRule)

    @property
    def bonus_in_use(self) -> Bonus | None:
        """None for a model alone, which has no bonus."""
        if isinstance(self.rule, str) or not self.rule.drafts:
            return None
        return self.bonus or self.rule.default_bonus

    def engine(self, pair: Pair, settings: EvalSettings, repeat: int = 0) -> Engine:
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
            stop=settings.stop,
            cost_ratio=None if alone else settings.cost_ratio,
            drafter=None if alone else settings.drafter,
            batch_size=settings.batch_size,
            seed=settings.seed + repeat,
        )


def requests_of(pair: Pair, rows: Sequence[PromptRow], *, raw: bool = False) -> list[Request]:
    """The rows as the engine takes them; ValueError names the row whose prompt cannot be built."""
    return [Request(row.id, row_prompt_ids(pair, row, raw=raw)) for row in rows]


Judged = tuple[Sample, Rollout]


def run_method(
    pair: Pair,
    method: Method,
    task: EvalTask,
    rows: Sequence[PromptRow],
    settings: EvalSettings,
    repeat: int = 0,
) -> Iterator[list[Judged]]:
    """Decode and judge ``rows`` of the task, yielding samples as they end, as many together as are judged at once.

    The first batch of the engine runs once before, short and thrown away, so that no method pays for first calls.
    Texts are judged while the engine waits: decoding never shares the machine with a scorer. An interrupt comes through
    after what is decoded has been judged and yielded.
    """
    requests = requests_of(pair, rows, raw=settings.raw)
    warm_up = dataclasses.replace(settings, max_new_tokens=min(settings.max_new_tokens, _WARM_UP_TOKENS))
    method.engine(pair, warm_up).rollouts(requests[: settings.batch_size])
    decoded: list[tuple[PromptRow, Rollout]] = []
    at_once = settings.workers if task.scores_in_parallel else 1
    try:
        for index, rollout in method.engine(pair, settings, repeat).run(requests):
            decoded.append((rows[index], rollout))
            if len(decoded) == at_once:
                yield judged_rollouts(decoded, method, task, settings, repeat)
                decoded = []
    except KeyboardInterrupt:
        yield judged_rollouts(decoded, method, task, settings, repeat)
        raise
    yield judged_rollouts(decoded, method, task, settings, repeat)


def judged_rollouts(
    decoded: Sequence[tuple[PromptRow, Rollout]], method: Method, task: EvalTask, settings: EvalSettings, repeat: int
) -> list[Judged]:
    """The verdicts of decoded rows, as many at once as the settings allow."""
    texts = [rollout.text for _, rollout in decoded]
    verdicts = score_all(task, texts, [row for row, _ in decoded], settings.workers)
    reward = settings.reward if method.is_arbiter else None
    return [
        (sample_of(rollout, task.name, method.name, repeat, verdict, reward), rollout)
        for (_, rollout), verdict in zip(decoded, verdicts, strict=True)
    ]
