"""What one method solves and another does not, problem by problem.

Outcomes map a problem's id to whether it was solved; a problem whose scorer failed is left out. Every comparison looks
only at problems that all its methods have an outcome for. Shares are None where there is nothing to divide by.
"""

from __future__ import annotations

from collections.abc import Mapping

from cospec.engine.metrics import ratio
from cospec.evaluation.statistics import mcnemar

Outcomes = Mapping[str | int, bool]


def union_accuracy(draft: Outcomes, target: Outcomes) -> float | None:
    """Share of problems that the draft or the target solves alone: an oracle that picks the better whole answer."""
    shared = _shared(draft, target)
    return ratio(sum(draft[key] or target[key] for key in shared), len(shared))


def non_nested(draft: Outcomes, target: Outcomes) -> int:
    """Number of problems that the draft solves and the target does not."""
    return sum(draft[key] and not target[key] for key in _shared(draft, target))


def recovered_share(method: Outcomes, draft: Outcomes, target: Outcomes) -> float | None:
    """Of the problems that the draft alone solves and the target does not, the share that the method solves."""
    keys = [key for key in _shared(method, draft, target) if draft[key] and not target[key]]
    return ratio(sum(method[key] for key in keys), len(keys))


def lost_share(method: Outcomes, target: Outcomes) -> float | None:
    """Of the problems that the target solves, the share that the method does not."""
    keys = [key for key in _shared(method, target) if target[key]]
    return ratio(sum(not method[key] for key in keys), len(keys))


def solved_by_neither_alone(method: Outcomes, draft: Outcomes, target: Outcomes) -> tuple[int, int]:
    """(solved, number): of the problems that neither draft nor target solves alone, those that the method solves."""
    keys = [key for key in _shared(method, draft, target) if not draft[key] and not target[key]]
    return sum(method[key] for key in keys), len(keys)


def paired_p(method: Outcomes, target: Outcomes) -> float | None:
    """Exact McNemar p of the method against the target."""
    keys = _shared(method, target)
    if not keys:
        return None
    gained = sum(method[key] and not target[key] for key in keys)
    lost = sum(target[key] and not method[key] for key in keys)
    return mcnemar(gained, lost)


def _shared(first: Outcomes, *others: Outcomes) -> list[str | int]:
    return [key for key in first if all(key in other for other in others)]
