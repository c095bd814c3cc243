"""The betting test by enumeration and on a simulated null, K along the text, and the trial of rules on a tiny pair."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import family_pair, pair_of, perturbed, random_prompts, tiny_config, tiny_model
from engine_checks import decode
from heads import saved_drafter

from cospec.cli.tune_candidates import DEFAULT_RULES, GREEDY_RULES, drafter_warning, trial_warning
from cospec.engine.cost import PassCosts
from cospec.engine.drafters import drafter_named
from cospec.engine.metrics import acceptance
from cospec.engine.record import Sampling
from cospec.engine.request import Request
from cospec.engine.rules import RULES, rule_named
from cospec.evaluation import EvalSettings, EvalTask, Method
from cospec.evaluation.paired import Ratio
from cospec.evaluation.scoring import FailureLimit
from cospec.evaluation.statistics import holm
from cospec.evaluation.tune.lengths import (
    LengthGain,
    accepted_along,
    best_gain,
    length_gains,
    near_best,
    num_rounds,
    rounds_along,
    share_accepted,
)
from cospec.evaluation.tune.race import Candidate, judge, race, speedup
from cospec.evaluation.tune.rounds import NUM_TURNS, RoundCosts, measure_rounds
from cospec.evaluation.tune.sequential import Bets, LossTest, least_problems, mean_bounds
from cospec.prompt_rows import PromptRow
from cospec.scoring import Verdict

LEVEL = 0.05


# --- the sequential test ---------------------------------------------------------------------------------------------


def played(bound: float, values: tuple[float, ...]) -> Bets:
    bets = Bets(bound)
    for value in values:
        bets.add(value)
    return bets


@pytest.mark.parametrize("budget", [0.01, 0.1, 0.5])
def test_bets_are_fair_where_the_hypothesis_is_just_true(budget: float) -> None:
    # All sequences of three differences; the mean is exactly the bound.
    gain, lose = 0.3 * (1 - budget), 0.3 * (1 - budget) + budget
    chances = {1.0: gain, -1.0: lose, 0.0: 1 - gain - lose}
    expected = sum(
        math.prod(chances[value] for value in values) * math.exp(played(-budget, values).log_capital)
        for values in itertools.product(chances, repeat=3)
    )
    assert expected == pytest.approx(1, abs=1e-12)


def test_p_is_one_over_the_largest_capital() -> None:
    values = (0.0, 1.0, 1.0, -1.0, 0.0, 1.0)
    capitals = [math.exp(played(-0.1, values[:n]).log_capital) for n in range(len(values) + 1)]
    assert capitals[0] == pytest.approx(1)
    assert played(-0.1, values).p == pytest.approx(min(1.0, 1 / max(capitals)))


def test_both_answers_come_when_they_are_certain() -> None:
    keeps, loses = LossTest(0.05), LossTest(0.05)
    for _ in range(200):
        keeps.add(0.0)
        loses.add(-1.0)
    assert keeps.p_loses < LEVEL < keeps.p_keeps
    assert loses.p_keeps < 1e-6 < LEVEL < loses.p_loses
    assert (keeps.mean, loses.mean, keeps.num) == (0, -1, 200)
    assert LossTest(0.05).p_loses == LossTest(0.05).p_keeps == 1


def test_bounds_hold_the_mean_at_any_time() -> None:
    rng = np.random.default_rng(3)
    values = rng.choice([1.0, -1.0, 0.0], p=[0.2, 0.1, 0.7], size=400).tolist()
    assert mean_bounds([]) == (-1, 1)
    widths = []
    for num in (1, 10, 100, 400):
        low, high = mean_bounds(values[:num])
        assert -1 <= low < 0.1 < high <= 1
        assert low <= np.mean(values[:num]) <= high
        widths.append(high - low)
    assert widths == sorted(widths, reverse=True)
    assert mean_bounds([0.0] * 1000)[0] > -0.02


class _Named:
    """All that the verdict on a trial asks of a method."""

    name = "c"


def trial(budget: float) -> Candidate:
    return Candidate(_Named(), LossTest(budget), 5, FailureLimit(0.05, 10_000))  # type: ignore[arg-type]


def speeds(*values: float) -> list[Ratio]:
    return [Ratio(value, (value, value)) for value in values]


def test_the_promise_holds_on_a_simulated_null_and_only_by_holms_correction() -> None:
    """Forty rules at once that lose exactly the budget, looked at again and again: who is ever called good?

    In at most 5 % of runs any is, whenever one stops; without the correction it would be in more.
    """
    rng, budget, num_runs, num_rules, num_false, num_raw = np.random.default_rng(11), 0.5, 120, 40, 0, 0
    for _ in range(num_runs):
        candidates = [trial(budget) for _ in range(num_rules)]
        for place, row in enumerate(rng.choice([1.0, -1.0, 0.0], p=[0.1, 0.6, 0.3], size=(20, num_rules))):
            for candidate, difference in zip(candidates, row, strict=True):
                if candidate.outcome is None:
                    candidate.test.add(float(difference))
            if place % 5 == 4:
                judge(candidates, speeds(*[2.0] * num_rules), LEVEL)
        num_false += any(candidate.outcome == "kept" for candidate in candidates)
        num_raw += any(candidate.test.p_loses <= LEVEL for candidate in candidates)
    # Two standard errors of a share of 5 %.
    most = num_runs * LEVEL + 2 * math.sqrt(num_runs * LEVEL * (1 - LEVEL))
    assert num_false <= most < num_raw


def test_a_harmless_rule_is_found_among_harmful_ones() -> None:
    rng = np.random.default_rng(12)
    candidates = [trial(0.05) for _ in range(3)]
    shares = ([0.02, 0.02, 0.96], [0.0, 0.3, 0.7], [0.0, 0.0, 1.0])
    draws = [rng.choice([1.0, -1.0, 0.0], p=p, size=900) for p in shares]
    for values in zip(*draws, strict=True):
        for candidate, value in zip(candidates, values, strict=True):
            if candidate.outcome is None:
                candidate.test.add(float(value))
        judge(candidates, speeds(1.4, 1.8, 0.9), LEVEL)
    assert [candidate.outcome for candidate in candidates] == ["kept", "exceeded", "slower"]
    # Nobody is tried longer than needed.
    assert candidates[1].test.num < 60
    assert candidates[2].test.num == 30


def test_a_rule_whose_speed_is_in_doubt_is_not_called_slower() -> None:
    candidates = [trial(0.05) for _ in range(3)]
    for candidate in candidates:
        for _ in range(40):
            candidate.test.add(0.0)
    judge(candidates, [Ratio(0.97, (0.9, 1.04)), Ratio(0.97, (0.95, 0.99)), Ratio(0.97, None)], LEVEL)
    assert [candidate.outcome for candidate in candidates] == [None, "slower", None]
    # Where strict is slower than the target alone, a rule has to make up for that.
    judge(candidates, speeds(1.1, 1.1, 1.3), LEVEL, floor=1 / 0.8)
    assert [candidate.outcome for candidate in candidates] == ["slower", "slower", None]


@pytest.mark.parametrize("budget", [0.01, 0.02, 0.1, 0.4])
@pytest.mark.parametrize("num", [1, 9])
def test_the_problems_that_a_trial_takes_at_least_are_those_of_a_rule_that_changes_nothing(
    budget: float, num: int
) -> None:
    test, least = LossTest(budget), least_problems(budget, LEVEL / num)
    for _ in range(least - 1):
        test.add(0.0)
    assert test.p_loses > LEVEL / num
    test.add(0.0)
    assert test.p_loses <= LEVEL / num
    assert (trial_warning(100 * budget, 1 - LEVEL, num, least - 1) is None) < (
        trial_warning(100 * budget, 1 - LEVEL, num, least) is None
    )


def test_a_trial_that_can_no_longer_end_well_is_ended() -> None:
    candidates = [trial(0.02) for _ in range(3)]
    for place in range(200):
        candidates[0].test.add(0.0)
        candidates[1].test.add(float(place % 20 == 0))
        candidates[2].test.add(-float(place % 20 == 0))
    judge(candidates, speeds(1.5, 1.4, 1.5), LEVEL, num_left=40)
    # A rule that gains answers needs fewer problems.
    assert [candidate.outcome for candidate in candidates] == ["undecided", "kept", "undecided"]
    longer = trial(0.02)
    for _ in range(200):
        longer.test.add(0.0)
    judge([longer], speeds(1.5), LEVEL, num_left=least_problems(0.02, LEVEL) - 200)
    assert longer.outcome is None


def test_the_correction_is_holms_over_all_candidates() -> None:
    candidates = [trial(0.05) for _ in range(3)]
    for candidate, num in zip(candidates, (40, 95, 400), strict=True):
        for _ in range(num):
            candidate.test.add(0.0)
    adjusted = holm([candidate.test.p_loses for candidate in candidates])
    judge(candidates, speeds(1.5, 1.5, 1.5), LEVEL)
    assert [candidate.outcome == "kept" for candidate in candidates] == [p <= LEVEL for p in adjusted]
    assert candidates[2].outcome == "kept"
    assert candidates[0].outcome is not None  # no faster than the one that is good already


# --- K ---------------------------------------------------------------------------------------------------------------


def test_rounds_along_the_text_are_those_of_every_k() -> None:
    pair = family_pair("llama", "sdpa")
    prompts = random_prompts(5, 9, 12, 4)
    probes = decode(pair, "strict", prompts, num_draft_tokens=12, max_new_tokens=40)
    for k in (1, 2, 3, 5, 8, 12):
        exact = decode(pair, "strict", prompts, num_draft_tokens=k, max_new_tokens=40)
        for probe, rollout in zip(probes, exact, strict=True):
            assert probe.output_ids == rollout.output_ids
            unknown = sum(b.accepted_len == 12 for b in probe.blocks)
            # A bonus behind 12 accepted tokens was never proposed.
            assert abs(rounds_along(probe, k) - rollout.num_rounds) <= unknown
        assert k < 12 or [rounds_along(probe, k) for probe in probes] == [one.num_rounds for one in exact]
    assert num_rounds([], 3) == 0
    assert num_rounds([True, True, False, True, True, True, True], 2) == 3


def test_a_token_behind_the_end_of_the_drafts_context_was_not_accepted() -> None:
    config = tiny_config("llama", max_position_embeddings=24)
    pair = pair_of(perturbed(tiny_model(config, 1), seed=2, scale=0.02), tiny_model(tiny_config("llama"), 1))
    assert pair.draft_context == 24 < pair.target_context
    (probe,) = decode(pair, "strict", random_prompts(6), num_draft_tokens=8, max_new_tokens=40)
    assert any(not block.draft_ids for block in probe.blocks)
    for k in (1, 2, 4, 8):
        (exact,) = decode(pair, "strict", random_prompts(6), num_draft_tokens=k, max_new_tokens=40)
        unknown = sum(block.accepted_len == 8 for block in probe.blocks)
        assert abs(rounds_along(probe, k) - exact.num_rounds) <= unknown * (k < 8)


@pytest.mark.parametrize("kind", ["ngram", "mtp"])
def test_a_drafter_that_is_no_model_is_counted_in_runs_of_its_own_at_every_k(kind: str, tmp_path: Path) -> None:
    pair = family_pair("llama", "sdpa")
    drafter = drafter_named(kind) if kind == "ngram" else saved_drafter(kind, pair, tmp_path)
    lengths, prompts = (1, 2, 5), random_prompts(5, 9, 12, 4)
    probes = {
        k: decode(pair, "strict", prompts, drafter=drafter, num_draft_tokens=k, max_new_tokens=40) for k in lengths
    }
    passes = PassCosts(0.5, dict.fromkeys((1, 2, 3, 6), 1.0))
    for entry in length_gains(probes, passes, RoundCosts(1.0, dict.fromkeys(lengths, 1.0), 0.5)):
        found = acceptance(probes[entry.num_draft_tokens])
        assert entry.tokens_per_round == pytest.approx(found.tokens_per_round)


def test_the_share_accepted_is_of_proposals_that_were_decided() -> None:
    pair = family_pair("llama", "sdpa")
    (one,) = decode(pair, "strict", random_prompts(9), num_draft_tokens=6, max_new_tokens=30)
    accepted = sum(block.accepted_len for block in one.blocks)
    assert share_accepted([one]) == pytest.approx(accepted / (accepted + sum(bool(b.decisions) for b in one.blocks)))
    assert share_accepted([]) is None
    assert drafter_warning(None, "ngram", {"cascade_opt:alpha=0": "cascade_opt"}) is None


def test_gains_by_hand() -> None:
    pair = family_pair("llama", "sdpa")
    probes = decode(pair, "strict", random_prompts(5, 9), num_draft_tokens=4, max_new_tokens=30)
    rounds = RoundCosts(1.0, {1: 1.5, 2: 2.0, 4: 9.0}, 0.5)
    gains = length_gains({4: probes}, PassCosts(0.5, {1: 1.0, 2: 1.25, 3: 1.5, 5: 4.0}), rounds)
    for entry in gains:
        tokens = sum(len(probe.output_ids) for probe in probes)
        expected = tokens / sum(num_rounds(accepted_along(probe), entry.num_draft_tokens) for probe in probes)
        assert entry.tokens_per_round == pytest.approx(expected)
        assert entry.gain == pytest.approx(expected / rounds.round_s[entry.num_draft_tokens])
        assert entry.gain_ci95 is None  # two texts say nothing of the others
    assert [entry.verification for entry in gains] == [1.25, 1.5, 4.0]
    best = best_gain(gains)
    assert best.num_draft_tokens in (1, 2)
    assert best.num_draft_tokens in near_best(gains)


def test_ks_within_two_per_cent_of_the_best_are_as_good() -> None:
    gains = [LengthGain(k, 3.0, 1.0, 2.0, gain, None) for k, gain in ((1, 1.0), (2, 1.475), (3, 1.5), (4, 1.465))]
    assert best_gain(gains).num_draft_tokens == 3
    assert near_best(gains) == [2, 3]
    assert near_best(gains, share=0.5) == [1, 2, 3, 4]
    # Of equal ones the smaller: it needs less memory, and less of what is drafted goes to waste.
    assert best_gain([dataclasses.replace(entry, gain=1.5) for entry in gains]).num_draft_tokens == 1


def test_rounds_of_the_engine_are_timed_at_every_k() -> None:
    pair = family_pair("llama", "sdpa")
    requests = [Request(i, prompt) for i, prompt in enumerate(random_prompts(5, 9, 7))]
    found = measure_rounds(pair, requests, [1, 3], Sampling(0.8), batch_size=2)
    assert list(found.round_s) == [1, 3]
    assert min(found.step_s, found.c_rel, *found.round_s.values()) > 0
    # A drafter that copies takes next to no time.
    copied = measure_rounds(pair, requests, [3], Sampling(0.8), batch_size=2, drafter=drafter_named("ngram"))
    assert 0 < copied.c_rel < found.c_rel


def test_long_runs_take_fewer_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = family_pair("llama", "sdpa")
    requests = [Request(i, prompt) for i, prompt in enumerate(random_prompts(5, 9, 2))]
    for enough, expected in ((3600.0, NUM_TURNS), (0.0, 3)):
        monkeypatch.setattr("cospec.evaluation.tune.rounds._ENOUGH_S", enough)
        turns: list[int] = []
        found = measure_rounds(pair, requests, [1, 3], Sampling(), batch_size=2, on_turn=turns.append)
        assert sum(turns) == NUM_TURNS
        # Runs of the target alone and at two K, of two texts each; the first of each does not count.
        assert (found.num_runs, found.num_texts) == (expected - 1, expected * 3 * 2)


def test_default_candidates_exist_and_do_something() -> None:
    for names, greedy in ((DEFAULT_RULES, False), (GREEDY_RULES, True)):
        for name in names:
            info = RULES[name]
            assert len(info.parameters[0].grid) == 3
            assert not info.trusts_draft
            assert not greedy or info.greedy_kind == "gate"


def test_rules_that_follow_a_drafter_that_should_not_be_trusted_are_named() -> None:
    rules = {"cactus:delta=1": "cactus", "cascade_opt:alpha=0": "cascade_opt", "mine": "arbiter"}
    weak = drafter_warning(0.4, "model", rules)
    assert weak is not None
    assert "weak (40%" in weak
    assert "cascade_opt:alpha=0 follow" in weak
    for rule in ("contrastive", "ensemble", "cascade_v2", "cascade_v3", "fuzzy"):
        assert f"{rule}:x follow its beliefs" in (drafter_warning(0.4, "model", {f"{rule}:x": rule}) or "")
    assert "made for this target alone" in (drafter_warning(0.8, "eagle3:heads/a", rules) or "")
    assert drafter_warning(0.8, "model", rules) is None
    assert drafter_warning(0.1, "mtp", {"cactus:delta=1": "cactus"}) is None


# --- rules on trial --------------------------------------------------------------------------------------------------


def task(scorer: Any) -> EvalTask:
    rows = [PromptRow(i, prompt_ids=prompt, gold="0") for i, prompt in enumerate(random_prompts(*[6] * 96))]
    return EvalTask("t", tuple(rows), scorer)


def test_a_trial_ends_with_the_fastest_rule_that_is_good_enough() -> None:
    pair = family_pair("llama", "sdpa")
    settings = EvalSettings(num_draft_tokens=4, max_new_tokens=12, batch_size=32)
    strict = Method("strict", rule_named("strict"))
    others = [Method("always", rule_named("always"), "target"), Method("same", rule_named("cactus:delta=0"))]
    seen: list[int] = []

    def indifferent(text: str, row: Mapping[str, Any]) -> Verdict:
        return Verdict("right", None, "")

    easy = task(indifferent)
    found = race(
        pair,
        strict,
        others,
        easy,
        easy.rows,
        settings,
        budget=0.1,
        chunk=32,
        on_chunk=lambda num, candidates: seen.append(num),
    )
    assert found.chosen == "always"
    by_name = {result.name: result for result in found.results}
    assert by_name["always"].outcome == "kept"
    assert by_name["always"].speedup > 1
    assert by_name["always"].p_loses <= LEVEL
    # What decides as strict does is never worth a trial to its end.
    assert by_name["same"].outcome == "slower"
    assert seen[-1] == found.num_problems < len(easy.rows)
    assert found.num_texts == sum(result.num_problems for result in found.results) + found.num_problems


def test_a_rule_that_ruins_answers_is_dropped_and_strict_stays() -> None:
    pair = family_pair("llama", "sdpa")
    settings = EvalSettings(num_draft_tokens=4, max_new_tokens=12, batch_size=32)
    strict, always = Method("strict", rule_named("strict")), Method("always", rule_named("always"), "target")
    easy = task(lambda text, row: Verdict("right", None, ""))
    prompts = [row.prompt_ids or [] for row in easy.rows]
    rollouts = decode(pair, "strict", prompts, num_draft_tokens=4, max_new_tokens=12)
    right = {row.id: rollout.text for row, rollout in zip(easy.rows, rollouts, strict=True)}
    hard = task(lambda text, row: Verdict("right" if right[row["id"]] == text else "wrong", None, ""))
    found = race(pair, strict, [always], hard, hard.rows, settings, budget=0.05, chunk=16)
    assert found.chosen is None
    assert found.results[0].outcome == "exceeded"
    assert found.results[0].difference < -0.05
    assert found.results[0].bounds[1] < 0


def test_the_speed_of_a_candidate_by_hand() -> None:
    def candidate(num_steps: int, *costs: tuple[int, float, float, float]) -> Candidate:
        samples = [
            SimpleNamespace(
                key=i, num_rounds=rounds, timing=SimpleNamespace(draft_s=draft, target_s=target, arbiter_s=arbiter)
            )
            for i, (rounds, draft, target, arbiter) in enumerate(costs)
        ]
        found = Candidate(Method("a", rule_named("strict")), LossTest(0.1), num_steps, FailureLimit(0.05, 9))
        found.samples = samples  # type: ignore[assignment]
        return found

    reference = candidate(4, (10, 2.0, 6.0, 0.0), (30, 2.0, 6.0, 0.0), (7, 9.0, 9.0, 9.0))
    # Only the two problems of both count; 20 rounds of theirs on average.
    plain = candidate(4, (8, 9.0, 9.0, 0.0), (24, 9.0, 9.0, 0.0))
    assert speedup(plain, reference).value == pytest.approx(20 / 16)
    # A fifth step is a quarter more drafting, a quarter of the reference's round before; the pass adds a half.
    arbiter = candidate(5, (8, 1.0, 3.0, 2.0), (24, 1.0, 3.0, 2.0))
    assert speedup(arbiter, reference).value == pytest.approx(20 / (16 * 1.5 * (1 + 0.25 * 0.25)))
    assert speedup(candidate(4), reference).value is None


def test_answers_whose_scorer_failed_take_no_part_in_a_trial() -> None:
    pair = family_pair("llama", "sdpa")
    settings = EvalSettings(num_draft_tokens=4, max_new_tokens=12, batch_size=32)
    strict, same = Method("strict", rule_named("strict")), Method("same", rule_named("always"), "target")
    failing = task(lambda text, row: Verdict("error" if row["id"] % 4 == 0 else "right", None, "cannot"))
    found = race(pair, strict, [same], failing, failing.rows, settings, budget=0.1, chunk=32, max_failed_share=0.5)
    assert found.results[0].num_failed == found.num_problems / 4
    assert found.results[0].num_problems == found.num_problems * 3 / 4
    assert found.results[0].difference == 0.0


def test_a_rule_whose_answers_cannot_be_scored_ends_its_own_trial_alone() -> None:
    pair = family_pair("llama", "sdpa")
    settings = EvalSettings(num_draft_tokens=4, max_new_tokens=12, batch_size=32)
    strict, always = Method("strict", rule_named("strict")), Method("always", rule_named("always"), "target")
    easy = task(lambda text, row: Verdict("right", None, ""))
    rollouts = decode(
        pair, "strict", [row.prompt_ids or [] for row in easy.rows], num_draft_tokens=4, max_new_tokens=12
    )
    good = {rollout.text for rollout in rollouts}
    picky = task(lambda text, row: Verdict("right" if text in good else "error", None, "cannot"))
    same = Method("same", rule_named("cactus:delta=0"))
    found = race(pair, strict, [always, same], picky, picky.rows, settings, budget=0.1, chunk=32)
    by_name = {result.name: result for result in found.results}
    assert by_name["always"].outcome == "failed"
    assert "the scorer of task 't' failed" in (by_name["always"].failure or "")
    assert by_name["always"].num_failed > 0
    assert by_name["same"].outcome in ("kept", "slower")
    assert by_name["same"].num_problems >= 32
