"""The acceleration model over an evaluation's samples, and its cost of a draft step from the same run."""

from __future__ import annotations

from collections.abc import Iterable

from cospec.engine.metrics import Acceleration, acceleration, ratio
from cospec.engine.record import Bonus
from cospec.engine.rules import rule_named
from cospec.evaluation.result import MethodResult, acceptance_of


def steps_of(num_draft_tokens: int, bonus: Bonus | None, rule: str) -> int:
    """Draft steps of a round of the rule with this spec.

    A bonus that is drafted, or drawn from the drafter's row, takes one more; a model alone drafts nothing.
    """
    if bonus is None:
        return 0
    reads_draft = bonus == "arbitrated" or (bonus == "rule" and rule_named(rule).own_bonus_reads_draft)
    return num_draft_tokens + reads_draft


def c_rel_of(results: Iterable[MethodResult], target: MethodResult, num_draft_tokens: int) -> float | None:
    """A draft step's seconds in the rounds of all methods by those of the target alone in its own, one token each.

    One number for all of them, as they share a drafter and a busy moment must not tell them apart. Whatever drafts, and
    with all that the engine does around a pass; None where no method drafts, or no clock ran.
    """
    seconds, num_steps = 0.0, 0
    for result in results:
        seconds += result.timing().draft_s if result.rule != "draft" else 0.0
        num_steps += result.acceptance().num_rounds * steps_of(num_draft_tokens, result.bonus, result.rule)
    passes = target.acceptance().num_rounds
    if num_steps == 0 or passes == 0:
        return None
    return ratio(seconds / num_steps, target.timing().target_s / passes)


def acceleration_of(
    method: MethodResult, target: MethodResult, num_steps: int, c_rel: float | None
) -> Acceleration | None:
    """The modelled speed-up over the samples that both have; None for the draft alone and without a cost."""
    keys = {sample.key for sample in target.samples} & {sample.key for sample in method.samples}
    mine, theirs = (acceptance_of([s for s in result.samples if s.key in keys]) for result in (method, target))
    if method.rule == "draft" or not keys or (c_rel is None and num_steps):
        return None
    return acceleration(mine, theirs, num_steps, c_rel or 0.0)
