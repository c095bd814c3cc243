"""Adaptive block lengths: the expected-gain rule, and texts that no block length can change."""

from __future__ import annotations

import pytest
from conftest import random_prompts
from engine_checks import assert_counters, decode

from cospec.engine.block_length import Acceptance, best_length
from cospec.engine.decode import Engine
from cospec.engine.record import Block, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.pair import Pair


def gain(share: float, n: int, cost: float, bonus: bool) -> float:
    """Tokens per time by the closed form of Leviathan et al., 3.5; without a bonus one draft fewer counts."""
    exponent = n + 1 if bonus else n
    return (1 - share**exponent) / (1 - share) / (1 + n * cost)


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize("cost", [0.01, 0.1, 0.3, 0.9])
@pytest.mark.parametrize("share", [0.05, 0.4, 0.8, 0.97])
def test_no_other_length_yields_more_per_time(share: float, cost: float, bonus: bool) -> None:
    best = best_length(share, 12, cost, bonus=bonus)
    assert 1 <= best <= 12
    assert gain(share, best, cost, bonus) == pytest.approx(max(gain(share, n, cost, bonus) for n in range(1, 13)))


def test_cheap_and_good_drafts_make_long_blocks() -> None:
    assert best_length(0.99, 10, 0.01, bonus=True) == 10
    assert best_length(0.1, 10, 0.5, bonus=True) == 1
    lengths = [best_length(0.8, 20, cost, bonus=True) for cost in (0.01, 0.05, 0.2, 0.6)]
    assert lengths == sorted(lengths, reverse=True)
    assert len(set(lengths)) > 2


def test_the_estimate_follows_the_blocks_and_what_was_not_tested_says_nothing() -> None:
    full, none = Block(5, (1, 2, 3), (1, 2, 3), (), 3, (1, 2, 3)), Block(5, (1, 2, 3), (4, 2, 3), (), 0, (4,))
    estimate = Acceptance()
    start = estimate.share
    for _ in range(30):
        estimate.add(full)
    assert estimate.share > 0.98 > start
    estimate.add(none)
    assert 0.8 < estimate.share < 0.98
    for _ in range(30):
        estimate.add(none)
    assert estimate.share < 0.02


@pytest.mark.parametrize("rule", ["strict", "never"])
def test_greedy_texts_are_the_targets_whatever_the_lengths(pair: Pair, prompts: list[list[int]], rule: str) -> None:
    fixed = decode(pair, rule, prompts, num_draft_tokens=6, max_new_tokens=24)
    lengths = set()
    for cost_ratio in (0.02, 0.2, 0.8):
        rollouts = decode(
            pair, rule, prompts, num_draft_tokens=6, max_new_tokens=24, cost_ratio=cost_ratio, batch_size=4
        )
        for rollout, other in zip(rollouts, fixed, strict=True):
            assert rollout.output_ids == other.output_ids
            assert_counters(rollout)
            lengths |= {len(block.draft_ids) for block in rollout.blocks}
    assert len(lengths) > 3


def test_a_rows_lengths_do_not_depend_on_its_neighbours(llama: Pair) -> None:
    requests = [Request(i, prompt) for i, prompt in enumerate(random_prompts(3, 9, 4, 6, 2, seed=5))]
    found = []
    for batch_size in (1, 3, 5):
        engine = Engine(
            llama,
            rule_named("strict"),
            num_draft_tokens=6,
            max_new_tokens=20,
            sampling=Sampling(0.8),
            cost_ratio=0.3,
            batch_size=batch_size,
        )
        rollouts = engine.rollouts(requests)
        found.append([(rollout.output_ids, [len(block.draft_ids) for block in rollout.blocks]) for rollout in rollouts])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("cost_ratio", [0.0, -1.0, float("nan"), float("inf")])
def test_a_cost_ratio_that_is_none_is_refused(llama: Pair, cost_ratio: float) -> None:
    with pytest.raises(ValueError, match="cost_ratio"):
        Engine(llama, rule_named("strict"), cost_ratio=cost_ratio)
