"""What a report gathers from rollouts: sums, bins, lists; and the charts' own arithmetic."""

from __future__ import annotations

import itertools
import random

import pytest
from report_records import decision, rollout

from cospec.engine.metrics import acceptance
from cospec.evaluation.report.curves import series
from cospec.evaluation.report.decisions import RISK_EDGES, DecisionCollector, DecisionSet, Judged, confidence, stake
from cospec.labels.record import MismatchLabel
from cospec.scoring.verdict import Verdict

RIGHT, WRONG, FAILED = Verdict("right"), Verdict("wrong"), Verdict("timeout")


def gathered(rollouts: list[Judged], list_size: int = 5, num_texts: int = 3) -> DecisionSet:
    collector = DecisionCollector(list_size, num_texts)
    for judged in rollouts:
        collector.add(judged)
    return collector.result()


def ids(ranked: tuple, *, with_place: bool = False) -> list:
    return [
        (r.judged.rollout.id, 6 * r.block + r.decision.position) if with_place else r.judged.rollout.id for r in ranked
    ]


def test_confidence_is_the_distance_to_the_threshold() -> None:
    assert [confidence(decision(0, prob), 0.5) for prob in (0.0, 0.25, 0.5, 1.0)] == [1, 0.5, 0, 1]
    assert confidence(decision(0, 0.8), 0.8) == 0
    assert confidence(decision(0, 0.9), 0.8) == pytest.approx(0.5)
    assert confidence(decision(0, 0.4), 0.8) == pytest.approx(0.5)
    assert confidence(decision(0, 1.0), 1.0) == 0
    assert confidence(decision(0, 0.0), 0.0) == 1


def test_stake_is_high_where_the_target_excludes_the_token() -> None:
    assert stake(decision(0, 0.5, 1e-6)) == 1
    assert stake(decision(0, 0.5, 0.3)) == 0
    assert 0 < stake(decision(0, 0.5, 1e-3)) < 1


def test_lists_rank_by_confidence_and_stake() -> None:
    texts = [
        Judged(rollout("sure", [9, 9], [decision(0, 0.99)]), WRONG),
        Judged(rollout("wording", [9, 9], [decision(0, 0.999, 0.4)]), WRONG),
        Judged(rollout("unsure", [9, 9], [decision(1, 0.52)]), WRONG),
        Judged(rollout("fell", [9, 9], [decision(1, 0.01)]), WRONG),
        Judged(rollout("good", [9, 9], [decision(0, 0.97)]), RIGHT, target_right=False),
        Judged(rollout("easy", [9, 9], [decision(0, 0.98)]), RIGHT, target_right=True),
        Judged(rollout("unknown", [9, 9], [decision(0, 0.90)]), RIGHT),
        Judged(rollout("right fall", [9, 9], [decision(1, 0.01)]), RIGHT, target_right=False),
        Judged(rollout("ill", [9, 9], [decision(0, 0.9999)]), FAILED),
        Judged(rollout("not scored", [9, 9], [decision(0, 0.51)])),
        Judged(rollout("none", [9, 9]), WRONG),
    ]
    found = gathered(texts, num_texts=1)
    assert ids(found.worst) == ["sure", "fell", "unsure", "wording"]
    assert ids(found.best) == ["good", "unknown"]
    assert ids(found.uncertain)[:2] == ["not scored", "unsure"]
    assert found.num_judged == 9
    assert found.sums == acceptance([judged.rollout for judged in texts])
    # Every listed decision has its text, and one more was asked for.
    shown = {judged.rollout.id for judged in found.texts}
    assert shown == {*ids(found.worst), *ids(found.best), *ids(found.uncertain)}
    assert found.num_left_out == len(texts) - len(shown)


def test_lists_are_short_and_take_two_decisions_of_a_rollout() -> None:
    many = [decision(place, 0.6 + place / 100) for place in range(20)]
    found = gathered([Judged(rollout(name, range(20), many), WRONG) for name in range(9)], list_size=5, num_texts=0)
    assert ids(found.worst, with_place=True) == [(0, 19), (1, 19), (2, 19), (3, 19), (4, 19)]
    one = gathered([Judged(rollout("a", range(20), many), WRONG)])
    assert ids(one.worst, with_place=True) == [("a", 19), ("a", 18)]
    assert ids(one.uncertain, with_place=True) == [("a", 0), ("a", 1)]


def test_a_constant_rule_has_nothing_to_rank() -> None:
    constant = [Judged(rollout(name, [9], [decision(0, 1.0)], rule="always"), WRONG) for name in range(4)]
    found = gathered(constant, num_texts=2)
    assert not found.is_graded
    assert found.worst == found.best == found.uncertain == ()
    assert [judged.rollout.id for judged in found.texts] == [0, 1]


def test_every_decision_is_in_the_bin_of_its_probability() -> None:
    random.seed(1)
    probs = [0.0, 1e-30, 1e-6, 0.5, 1.0, 1.0000001, *(10 ** random.uniform(-8, 0) for _ in range(300))]
    made = [Judged(rollout(i, [9], [decision(0, random.random(), prob)])) for i, prob in enumerate(probs)]
    bins = gathered(made).bins
    assert [(part.low, part.high) for part in bins] == list(itertools.pairwise(RISK_EDGES))
    for part in bins:
        last = part.high == 1.0
        inside = [m.rollout for m, p in zip(made, probs, strict=True) if part.low <= p and (p < part.high or last)]
        assert part.num == len(inside)
        assert part.num_kept == sum(r.num_kept for r in inside)
    assert sum(part.num for part in bins) == len(probs)


def test_labels_say_more_than_the_verdict_of_a_text() -> None:
    made = rollout("a", [9] * 12, [decision(place, 0.9) for place in range(4)])
    outcomes = [(True, False), (False, True), (True, True), (None, False)]
    labels = {(0, place): MismatchLabel(0, place, *both, None) for place, both in enumerate(outcomes)}
    found = gathered([Judged(made, RIGHT, labels=labels)])
    assert found.is_labelled
    assert ids(found.worst, with_place=True) == [("a", 1)]
    assert ids(found.best, with_place=True) == [("a", 0)]
    fell = rollout("b", [9] * 6, [decision(2, 0.0)], rule="never")
    constant = gathered([Judged(fell, labels={(0, 2): MismatchLabel(0, 2, True, False, 1.0)})])
    assert not constant.is_graded
    assert ids(constant.worst) == ["b"]
    assert constant.uncertain == ()


def test_a_series_takes_finite_values_and_the_last_of_a_step() -> None:
    rows = [
        {"step": 1, "x": 1.0},
        {"step": 2, "x": None},
        {"step": 3, "x": float("nan")},
        {"step": 1, "x": 2},
        {"x": 9},
    ]
    assert series([*rows, {"step": 4, "y": 1}, {"step": 0, "x": 5}], "x") == [(0, 5.0), (1, 2.0)]
