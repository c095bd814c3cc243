"""The engine of this package as a contender: target-only, strict, or with an arbiter."""

from __future__ import annotations

from dataclasses import dataclass

from cospec.arbiter.model import ArbiterScorer
from cospec.engine.compiled import CompileMode
from cospec.engine.decode import Engine
from cospec.engine.drafters import Drafter
from cospec.engine.rules import ArbiterRule, Rule
from cospec.evaluation.bench.cells import OURS, CellKey, Measured
from cospec.evaluation.bench.forwards import ForwardTimer
from cospec.evaluation.bench.timing import timed_run
from cospec.evaluation.bench.workload import Workload
from cospec.pair import Pair

#: The methods that are always measured.
TARGET, STRICT = "target", "strict"


@dataclass(frozen=True, slots=True)
class OurContender:
    """A rule in this package's engine; ``method`` is the name it goes by. Compiled, it is an engine of its own.

    ``drafter`` None is the draft model.
    """

    pair: Pair
    work: Workload
    method: str
    rule: Rule
    batch: int
    compile_mode: CompileMode | None = None
    context: int | None = None
    drafter: Drafter | None = None

    @property
    def keys(self) -> tuple[CellKey, ...]:
        engine = OURS if self.compile_mode is None else f"{OURS} {self.compile_mode}"
        return (CellKey(engine, self.method, self.batch, self.context),)

    def note(self, key: CellKey) -> str | None:
        return None

    def warm_up(self) -> None:
        # A program is compiled when its shape first occurs, so that nothing less than the whole run meets them all.
        work = self.work if self.compile_mode else self.work.warm_up(self.batch)
        self._engine(work).rollouts(work.requests)

    def run(self) -> Measured:
        engine = self._engine(self.work)
        rollouts, spent = timed_run(lambda: engine.rollouts(self.work.requests), self._timer(), self.pair.device)
        return Measured(
            seconds=spent.seconds,
            output_ids=tuple(rollout.output_ids for rollout in rollouts),
            num_rounds=sum(rollout.num_rounds for rollout in rollouts),
            forwards=None if self.compile_mode else spent.forwards,
            peak_mb=spent.peak_mb,
            cpu_s=spent.cpu_s,
        )

    def _engine(self, work: Workload) -> Engine:
        return Engine(
            self.pair,
            self.rule,
            drafter=self.drafter,
            num_draft_tokens=work.num_draft_tokens,
            max_new_tokens=work.max_new_tokens,
            eos_token_ids=work.eos_token_ids,
            cost_ratio=work.cost_ratio,
            batch_size=self.batch,
            compile_mode=self.compile_mode,
        )

    def _timer(self) -> ForwardTimer:
        if self.compile_mode:
            # Hooks have no place in a compiled pass.
            return ForwardTimer(self.pair.device)
        timer = pair_timer(self.pair)
        if isinstance(self.rule, ArbiterRule):
            watch_arbiter(timer, self.rule)
        return timer


def pair_timer(pair: Pair) -> ForwardTimer:
    """A timer of both models."""
    timer = ForwardTimer(pair.device)
    if pair.draft is not None:
        timer.watch("draft", pair.draft)
    timer.watch("target", pair.target)
    return timer


def watch_arbiter(timer: ForwardTimer, rule: ArbiterRule) -> None:
    """Time the arbiter's passes too."""
    scorer = rule.scorer
    assert isinstance(scorer, ArbiterScorer)
    timer.watch_parts("arbiter", scorer.net.backbone, scorer.net.head)
