"""One problem under one method: what was written, how it was judged, and the counters every number is made of."""

from __future__ import annotations

import dataclasses
import functools
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from cospec.engine.record import FinishReason, Rollout, Timings
from cospec.rewards import RewardConfig, rollout_reward
from cospec.scoring import Verdict
from cospec.scoring.verdict import VerdictKind

#: Inner edges of the bins of `target_prob_of_draft`; kappa of the reward falls from 1 at the first to 0 at 0.05.
RISK_EDGES = (1e-4, 1e-3, 1e-2, 0.05, 0.1, 0.25, 0.5)
#: What JSON may hold where a number is wanted.
_PLAIN: Mapping[type, Any] = {int: int, float: (int, float)}
#: What may lie below 0 in a sample.
_SIGNED = frozenset({"id", "reward", "reward_by_outcome"})
#: A text ends in a loop if a cycle of 1 to this many tokens ...
MAX_CYCLE = 32
#: ... makes up its last tokens at least so many times ...
MIN_REPETITIONS = 4
#: ... and at least so many tokens: dots, blanks and digits repeat a few times in good texts too.
MIN_LOOP_TOKENS = 32


class SampleKey(NamedTuple):
    """Which sample of a method: the problem (``task`` and ``id``) and which of its repeats."""

    task: str
    id: str | int
    repeat: int = 0

    @property
    def problem(self) -> tuple[str, str | int]:
        """What repeats have in common."""
        return self.task, self.id


@dataclass(frozen=True, slots=True)
class SampleTiming:
    """Seconds of the engine's work that fell to this sample; see `cospec.engine.record.Timings`."""

    active_s: float = 0.0
    draft_s: float = 0.0
    target_s: float = 0.0
    arbiter_s: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One decoded and judged text; the counters are those of method section 1.

    ``drafted_at`` and ``accepted_at`` count rounds by block position, ``mismatches_by_risk`` and ``kept_by_risk``
    executed decisions by the bin of `RISK_EDGES` their ``target_prob_of_draft`` lies in. ``reward`` is the rollout
    reward of arbiters, None for other methods and failed scorers; ``reward_by_outcome`` is what it would be (wrong,
    right). What is measured by a clock is in ``timing`` alone.
    """

    task: str
    method: str
    id: str | int
    repeat: int
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
    drafted_at: tuple[int, ...]
    accepted_at: tuple[int, ...]
    mismatches_by_risk: tuple[int, ...]
    kept_by_risk: tuple[int, ...]
    repetitive: bool
    reward: float | None
    reward_by_outcome: tuple[float, float] | None
    text: str
    output_ids: tuple[int, ...]
    timing: SampleTiming

    @property
    def key(self) -> SampleKey:
        return SampleKey(self.task, self.id, self.repeat)

    @property
    def is_failure(self) -> bool:
        """The scorer failed: the sample is neither right nor wrong."""
        return self.verdict in ("timeout", "error")

    def judged(self, verdict: Verdict) -> Sample:
        """The same text under another verdict."""
        return dataclasses.replace(
            self,
            verdict=verdict.kind,
            extracted=verdict.extracted,
            reason=verdict.reason,
            reward=_reward(verdict, self.reward_by_outcome),
        )

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping that `sample_from_json` reads back."""
        return dataclasses.asdict(self)


def sample_of(
    rollout: Rollout, task: str, method: str, repeat: int, verdict: Verdict, reward: RewardConfig | None = None
) -> Sample:
    """The sample of a judged rollout; ``reward`` says how an arbiter's is rewarded."""
    risks = [bisect_right(RISK_EDGES, decision.target_prob_of_draft) for decision in rollout.decisions]
    kept = [risk for risk, decision in zip(risks, rollout.decisions, strict=True) if decision.kept]
    rewards = _rewards(rollout, reward) if reward else None
    return Sample(
        task=task,
        method=method,
        id=rollout.id,
        repeat=repeat,
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
        drafted_at=_longer_than(len(block.draft_ids) for block in rollout.blocks),
        accepted_at=_longer_than(block.accepted_len for block in rollout.blocks),
        mismatches_by_risk=tuple(risks.count(index) for index in range(len(RISK_EDGES) + 1)),
        kept_by_risk=tuple(kept.count(index) for index in range(len(RISK_EDGES) + 1)),
        repetitive=ends_in_loop(rollout.output_ids[:-1] if rollout.finish_reason == "eos" else rollout.output_ids),
        reward=_reward(verdict, rewards),
        reward_by_outcome=rewards,
        text=rollout.text,
        output_ids=rollout.output_ids,
        timing=_timing(rollout.timings),
    )


def sample_from_json(row: Mapping[str, Any]) -> Sample:
    """Rebuild a sample; ValueError for a record of another version, or with a value of another type."""
    try:
        lists = {name: tuple(value) for name, value in row.items() if isinstance(value, list)}
        found = Sample(**{**row, **lists, "timing": SampleTiming(**row["timing"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"sample {row.get('id')!r} is of another version ({error}): evaluate anew") from error
    for record, kind in ((found, Sample), (found.timing, SampleTiming)):
        for name, hint in _hints(kind).items():
            value = getattr(record, name)
            if not _fits(value, hint) or (name not in _SIGNED and _is_negative(value)):
                raise ValueError(
                    f"sample {row.get('id')!r} is damaged: {name} is {value!r:.80}; without its line it is "
                    "decoded again"
                )
    if reason := _impossible(found):
        raise ValueError(f"sample {found.id!r} is damaged: {reason}; without its line it is decoded again")
    return found


def _is_negative(value: Any) -> bool:
    """Whether a number, or one of a tuple, lies below 0."""
    lowest = min(value, default=0) if isinstance(value, tuple) else value
    return isinstance(lowest, int | float) and lowest < 0


def _impossible(sample: Sample) -> str | None:
    """Why no text has these counters, None if one may."""
    for part, whole in (("num_accepted", "num_drafted"), ("num_kept", "num_mismatches")):
        if getattr(sample, part) > getattr(sample, whole):
            return f"{part} is {getattr(sample, part)} and {whole} {getattr(sample, whole)}"
    if sample.num_tokens and not sample.num_rounds:
        return f"{sample.num_tokens} tokens were written in no round"
    return None


@functools.cache
def _hints(kind: Hashable) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value read from JSON is of a field's type; lists have become tuples."""
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return value in inner
    if get_origin(hint) is UnionType:
        return any(_fits(value, one) for one in inner)
    if get_origin(hint) is tuple:
        if not isinstance(value, tuple) or (inner[-1] is not Ellipsis and len(value) != len(inner)):
            return False
        # Thousands of ids: by the set of their types.
        return all(issubclass(kind, _PLAIN[inner[0]]) and kind is not bool for kind in set(map(type, value)))
    return isinstance(value, _PLAIN.get(hint, hint)) and (hint is bool or not isinstance(value, bool))


def ends_in_loop(ids: Sequence[int]) -> bool:
    """Whether the last tokens repeat a cycle of 1 to `MAX_CYCLE` tokens, often and long enough to be no accident."""
    for cycle in range(1, MAX_CYCLE + 1):
        tail = ids[-max(MIN_REPETITIONS * cycle, MIN_LOOP_TOKENS) :]
        if len(tail) >= max(MIN_REPETITIONS * cycle, MIN_LOOP_TOKENS) and tail[cycle:] == tail[:-cycle]:
            return True
    return False


def _rewards(rollout: Rollout, config: RewardConfig) -> tuple[float, float]:
    # Probabilities differ in their last bits with the composition of the batch, and a resumed run has another one.
    wrong, right = (round(rollout_reward(rollout, is_right, config), 3) for is_right in (False, True))
    return wrong, right


def _reward(verdict: Verdict, by_outcome: tuple[float, float] | None) -> float | None:
    return None if by_outcome is None or verdict.is_failure else by_outcome[verdict.is_right]


def _timing(timings: Timings) -> SampleTiming:
    return SampleTiming(timings.active_s, timings.draft_s, timings.target_s, timings.arbiter_s, timings.cpu_s)


def _longer_than(lengths: Iterable[int]) -> tuple[int, ...]:
    """How many of the lengths exceed 0, 1, 2, ..."""
    found = list(lengths)
    return tuple(sum(length > index for length in found) for index in range(max(found, default=0)))
