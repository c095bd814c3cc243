"""What one method solves and another does not, problem by problem.

Outcomes map a sample's key to whether it was right; a sample whose scorer failed is left out. Every comparison looks
only at keys that all its methods have an outcome for. Shares of nothing are None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cospec.engine.metrics import ratio
from cospec.evaluation.bounded_score import score_interval
from cospec.evaluation.resampling import Floats
from cospec.evaluation.sample import SampleKey
from cospec.evaluation.statistics import wilson

Outcomes = Mapping[SampleKey, bool]
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` of ``num`` samples, with a 95 % interval over problems; (0, 1) where ``num`` is 0."""

    count: int
    num: int
    ci95: Interval

    @property
    def share(self) -> float | None:
        return ratio(self.count, self.num)

    def to_json(self) -> dict[str, Any]:
        """As JSON, without an interval where there is nothing to count."""
        interval = list(self.ci95) if self.num else None
        return {"count": self.count, "num": self.num, "share": self.share, "ci95": interval}


def share_of(hits: Outcomes) -> Share:
    """The share of hits: Wilson's interval, or the score interval over problems where a problem has several samples."""
    count, num = sum(hits.values()), len(hits)
    columns = sums_by_problem({key: (float(hit), 1.0) for key, hit in hits.items()})
    if len(columns) == num:
        return Share(count, num, wilson(count, num))
    return Share(count, num, score_interval([columns], (0.0, 1.0)))


def sums_by_problem(numbers: Mapping[SampleKey, Sequence[float]]) -> Floats:
    """Numbers of samples added up over the samples of each problem: one row per problem, (n, d)."""
    sums: dict[tuple[str, str | int], Floats] = {}
    for key, row in numbers.items():
        sums[key.problem] = sums.get(key.problem, 0.0) + np.asarray(row, dtype=np.float64)
    return np.stack(list(sums.values())) if sums else np.zeros((0, 2))


def mean_ratio(means: Floats) -> Floats:
    """First column by second column of means (..., 2): the ratio of their sums."""
    return means[..., 0] / means[..., 1]


def union(draft: Outcomes, target: Outcomes) -> Share:
    """What the draft or the target solves alone: an oracle that picks the better whole answer."""
    return share_of({key: draft[key] or target[key] for key in shared_keys(draft, target)})


def non_nested(draft: Outcomes, target: Outcomes) -> Share:
    """What the draft solves and the target does not, of all."""
    return share_of({key: draft[key] and not target[key] for key in shared_keys(draft, target)})


def recovered(method: Outcomes, draft: Outcomes, target: Outcomes) -> Share:
    """Of what the draft alone solves and the target does not, what the method solves."""
    keys = shared_keys(method, draft, target)
    return share_of({key: method[key] for key in keys if draft[key] and not target[key]})


def lost(method: Outcomes, target: Outcomes) -> Share:
    """Of what the target solves, what the method does not."""
    return share_of({key: not method[key] for key in shared_keys(method, target) if target[key]})


def solved_by_neither_alone(method: Outcomes, draft: Outcomes, target: Outcomes) -> Share:
    """Of what neither draft nor target solves alone, what the method solves."""
    keys = shared_keys(method, draft, target)
    return share_of({key: method[key] for key in keys if not draft[key] and not target[key]})


def shared_keys(first: Outcomes, *others: Outcomes) -> list[SampleKey]:
    """Keys that all have an outcome for, in the order of the first."""
    return [key for key in first if all(key in other for other in others)]
