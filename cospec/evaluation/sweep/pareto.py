"""Who is not beaten: the Pareto front of two numbers that are both better when larger."""

from __future__ import annotations

from collections.abc import Sequence


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other point equals or exceeds in both numbers while exceeding it in one.

    In ascending order of the first number; equal points are all on the front or none is.
    """
    best_behind = float("-inf")
    front: list[int] = []
    order = sorted(range(len(points)), key=lambda index: points[index], reverse=True)
    start = 0
    while start < len(order):
        # Of those that share the first number only the largest second ones can be on the front, and they come first.
        x, y = points[order[start]]
        ties = [index for index in order[start:] if points[index][0] == x]
        if y > best_behind:
            front += [index for index in ties if points[index][1] == y]
            best_behind = y
        start += len(ties)
    return front[::-1]
