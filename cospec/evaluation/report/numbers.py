"""The numbers of an evaluation that a report shows."""

from __future__ import annotations

from dataclasses import dataclass

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class MethodNumbers:
    """One line of a summary table; what a method or an unfinished record lacks is None.

    ``accepted_at`` counts the rounds that committed the draft's token at each position; ``by_risk`` are (low, high,
    executed mismatches, kept ones) by the target's probability of the draft's token.
    """

    name: str
    rule: str
    bonus: str | None
    right: int
    num: int
    accuracy: float | None
    ci95: Interval
    difference: float | None = None
    difference_ci95: Interval | None = None
    p: float | None = None
    p_adjusted: float | None = None
    tokens_per_round: float | None = None
    tokens_per_round_ci95: Interval | None = None
    target_passes_per_token: float | None = None
    speed_ratio: float | None = None
    speed_ratio_ci95: Interval | None = None
    length_ratio: float | None = None
    keep_rate: float | None = None
    mean_reward: float | None = None
    num_failed: int = 0
    truncated: float | None = None
    repetitive: float | None = None
    num_rounds: int = 0
    accepted_at: tuple[int, ...] = ()
    by_risk: tuple[tuple[float, float, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The methods on one task, or on all problems together; ``sentences`` say what a table cannot."""

    name: str
    num_problems: int
    methods: tuple[MethodNumbers, ...]
    union_accuracy: float | None
    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MacroNumbers:
    """One method's means over tasks, ratios being geometric means."""

    name: str
    accuracy: float | None
    ci95: Interval | None
    difference: float | None
    difference_ci95: Interval | None
    p: float | None
    speed_ratio: float | None
    speed_ratio_ci95: Interval | None
