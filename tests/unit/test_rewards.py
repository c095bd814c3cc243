"""The formulas of method section 4 against numbers worked by hand, and the properties they must have."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cospec.engine.record import Block, Decision, FinishReason, Rollout, Sampling, Settings, Timings
from cospec.rewards import (
    GroupStats,
    RewardConfig,
    accepted_span,
    decision_signal,
    group_advantages,
    group_scales,
    kappa,
    rollout_reward,
    wrong_terms,
)
from cospec.scoring import Verdict

RIGHT, WRONG, NO_ANSWER = Verdict("right"), Verdict("wrong"), Verdict("no_answer")
FAILED, LATE = Verdict("error", reason="it raised"), Verdict("timeout")
CONFIG = RewardConfig()
SETTINGS = Settings(
    seed=0,
    rule="arbiter",
    num_draft_tokens=5,
    bonus="arbitrated",
    max_new_tokens=64,
    sampling=Sampling(),
    eos_token_ids=(2,),
)
ENDING = 99


def block(matches: str, actions: str = "", probs: Sequence[float] = (), cut: int | None = None) -> Block:
    """A round as the engine records it: "=" a match, "x" a mismatch; "k" keep, "f" fall back, in order.

    ``cut``: the 1-based emitted token that ends the text.
    """
    drafts = tuple(range(100, 100 + len(matches)))
    targets = tuple(draft if mark == "=" else draft + 500 for draft, mark in zip(drafts, matches, strict=True))
    emitted: list[int] = []
    decisions: list[Decision] = []
    accepted = 0
    for position, (draft, target) in enumerate(zip(drafts, targets, strict=True)):
        kept = True
        if draft != target:
            kept = actions[len(decisions)] == "k"
            prob = probs[len(decisions)] if probs else 0.5
            decisions.append(Decision(position, draft, target, prob, float(kept), kept))
        emitted.append(draft if kept else target)
        accepted += kept
        if not kept or len(emitted) == cut:
            break
    return Block(10, drafts, targets, tuple(decisions), accepted, tuple(emitted))


def rollout(*blocks: Block, finish_reason: FinishReason = "eos") -> Rollout:
    output = tuple(token for one in blocks for token in one.emitted_ids)
    return Rollout(1, (1, 2), output, "", blocks, finish_reason, SETTINGS, Timings())


def filler() -> Block:
    """A last block that adds nothing, so that the block under test is not the one that ends the rollout."""
    return block("=")


# --- rho -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("blocks", "rho"),
    [
        # f = 3, L = 5: three of the three positions from the mismatch on.
        ([block("==x==", "k"), filler()], 1.0),
        # f = 2, L = 3 (second mismatch rejected): two of four.
        ([block("=x=x=", "kf"), filler()], 2 / 4),
        # The sums run over blocks before the division: (2 + 0 + 0) / (4 + 5 + 0).
        ([block("=x=x=", "kf"), block("x====", "f"), block("====="), filler()], 2 / 9),
        # Kept, kept, rejected: (3 - 1 + 1) = 3 of 5.
        ([block("x=x=x", "kkf"), filler()], 4 / 5),
        ([block("====="), filler()], 0.0),
        ([block(""), filler()], 0.0),
        ([], 0.0),
    ],
)
def test_rho_by_hand(blocks: list[Block], rho: float) -> None:
    assert accepted_span(rollout(*blocks)) == pytest.approx(rho)


@pytest.mark.parametrize(
    ("last", "rho"),
    [
        # The ending is the third token: two positions exist from the mismatch on, both accepted.
        (block("=x=x=", "kf", cut=3), 1.0),
        # The ending comes before the first mismatch: that mismatch never happened.
        (block("==x==", "", cut=2), 0.0),
        # The kept mismatch is itself the ending.
        (block("=x===", "k", cut=2), 1.0),
        # The target's token at the rejected mismatch ends the text: five positions, none accepted.
        (block("x====", "f", cut=1), 0.0),
        # Kept, then ended by the target's token: the draft's four other positions were forgone.
        (block("xx===", "kf", cut=2), 1 / 5),
        # A cap behind the whole block cuts nothing.
        (block("=x===", "k"), 1.0),
    ],
)
@pytest.mark.parametrize("finish_reason", ["eos", "stop", "length"])
def test_positions_behind_the_ending_do_not_exist(last: Block, rho: float, finish_reason: FinishReason) -> None:
    assert accepted_span(rollout(last, finish_reason=finish_reason)) == pytest.approx(rho)


def test_a_mismatch_behind_the_ending_does_not_dilute_rho() -> None:
    earlier = block("=x=x=", "kf")
    assert accepted_span(rollout(earlier, block("==x==", "", cut=2))) == accepted_span(rollout(earlier, block("==")))


def test_a_target_bonus_is_no_position() -> None:
    last = block("=x=", "k")
    with_bonus = replace(last, emitted_ids=(*last.emitted_ids, 7))
    assert accepted_span(rollout(with_bonus)) == accepted_span(rollout(last)) == 1.0


marks = st.text(alphabet="=x", max_size=6)
blocks_of = st.builds(
    lambda matches, actions, cut: block(matches, actions, cut=cut),
    marks,
    st.text(alphabet="kf", min_size=6, max_size=6),
    st.none() | st.integers(1, 6),
)


@given(st.lists(blocks_of, max_size=5))
def test_rho_lies_in_the_unit_interval(blocks: list[Block]) -> None:
    assert 0.0 <= accepted_span(rollout(*blocks)) <= 1.0


@given(st.lists(marks, max_size=5), st.none() | st.integers(1, 6))
def test_rho_of_vanilla_decoding_is_zero(texts: list[str], cut: int | None) -> None:
    blocks = [block(text, "f" * 6, cut=cut if index == len(texts) - 1 else None) for index, text in enumerate(texts)]
    assert accepted_span(rollout(*blocks)) == 0.0


# --- the signal ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prob", "expected"),
    [(1.0, 0.0), (0.05, 0.0), (0.005, math.log(10) / math.log(500)), (1e-4, 1.0), (1e-9, 1.0), (0.0, 1.0)],
)
def test_kappa_by_hand(prob: float, expected: float) -> None:
    assert kappa(prob, tau=0.05, p_min=1e-4) == pytest.approx(expected)


@given(st.floats(0, 1), st.floats(0, 1))
def test_kappa_falls_with_the_probability(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert 1.0 >= kappa(low, 0.05, 1e-4) >= kappa(high, 0.05, 1e-4) >= 0.0


def test_right_rollouts_earn_their_span_at_every_decision() -> None:
    run = rollout(block("=x=x=", "kf"), filler())
    assert decision_signal(run, True, replace(CONFIG, alpha=2.0)) == [2.0, 2.0]
    assert rollout_reward(run, True, CONFIG) == 1.5


def test_wrong_rollouts_pay_for_risk_and_for_falling_back() -> None:
    run = rollout(block("xxx", "kkf", probs=[1e-4, 0.5, 0.9]), filler())
    config = replace(CONFIG, lambda_risk=2.0, lambda_fb=0.3)
    assert decision_signal(run, False, config) == [-2.0, -0.0, -0.3]
    assert decision_signal(run, False, replace(config, c_keep=1.0)) == [-3.0, -1.0, -0.3]
    terms = wrong_terms(run, config)
    assert (terms.risk, terms.fallback, terms.num_kept, terms.num_decisions) == (2.0, 0.3, 2, 3)
    assert rollout_reward(run, False, config) == pytest.approx(-(2.0 / 3 + 0.3 / 3))


def test_a_fallback_is_not_charged_for_the_draft_tokens_risk() -> None:
    run = rollout(block("x", "f", probs=[0.0]), filler())
    assert decision_signal(run, False, CONFIG) == [-0.3]
    assert wrong_terms(run, CONFIG).risk == 0.0


@given(st.lists(blocks_of, max_size=4), st.booleans())
def test_the_scalar_is_the_mean_of_the_signal(blocks: list[Block], is_right: bool) -> None:
    run = rollout(*blocks)
    signal = decision_signal(run, is_right, CONFIG)
    if signal:
        assert rollout_reward(run, is_right, CONFIG) == pytest.approx(sum(signal) / len(signal))
    else:
        assert rollout_reward(run, is_right, CONFIG) == (1.0 if is_right else 0.0)


# --- the group -------------------------------------------------------------------------------------------------------


@given(st.integers(1, 64), st.integers(1, 64))
def test_mixed_scales_balance(num_right: int, num_wrong: int) -> None:
    scale_right, scale_wrong = group_scales(num_right, num_wrong)
    assert num_right * scale_right == pytest.approx(num_wrong * scale_wrong)
    # The z-score of a 0/1 reward.
    share = num_right / (num_right + num_wrong)
    assert scale_right == pytest.approx((1 - share) / math.sqrt(share * (1 - share)))


def test_a_mixed_group_by_hand() -> None:
    # n+ = 1, n- = 3: s+ = sqrt(3), s- = 1 / sqrt(3).
    right = rollout(block("=x=x=", "kf"), filler())
    kept = rollout(block("x", "k", probs=[1e-5]), filler())
    fell_back = rollout(block("x", "f"), filler())
    result = group_advantages([right, kept, fell_back, fell_back], [RIGHT, WRONG, NO_ANSWER, WRONG], CONFIG)
    assert result.advantages[0] == pytest.approx([1.5 * math.sqrt(3)] * 2)
    assert result.advantages[1] == pytest.approx([-1 / math.sqrt(3)])
    assert result.advantages[2] == result.advantages[3] == pytest.approx([-0.3 / math.sqrt(3)])
    assert result.rewards == pytest.approx([1.5, -1.0, -0.3, -0.3])
    assert not result.zero_variance


def test_an_unmixed_group_is_centred_over_its_decisions() -> None:
    # u: 1.5, 1.5 | 2 | 1; the mean over the four decisions, not over the three rollouts.
    half, whole, none = (
        rollout(block("=x=x=", "kf"), filler()),
        rollout(block("x", "k"), filler()),
        rollout(block("x", "f"), filler()),
    )
    result = group_advantages([half, whole, none], [RIGHT] * 3, CONFIG)
    assert result.advantages == [pytest.approx([0.0, 0.0]), pytest.approx([0.5]), pytest.approx([-0.5])]
    wrong = group_advantages([half, whole, none], [WRONG] * 3, CONFIG)
    # u: 0, -0.3 | 0 | -0.3.
    assert wrong.advantages == [pytest.approx([0.15, -0.15]), pytest.approx([0.15]), pytest.approx([-0.15])]


@pytest.mark.parametrize("verdict", [RIGHT, WRONG, FAILED])
@pytest.mark.parametrize("reading", ["decision", "rollout"])
def test_equal_rollouts_have_zero_variance(verdict: Verdict, reading: str) -> None:
    run = rollout(block("x=x", "kk"), filler())
    result = group_advantages([run] * 3, [verdict] * 3, RewardConfig(reading=reading))  # type: ignore[arg-type]
    assert result.zero_variance
    assert result.stats.num_zero_variance == 1
    assert all(abs(value) < 1e-9 for values in result.advantages for value in values)


@pytest.mark.parametrize("reading", ["decision", "rollout"])
@pytest.mark.parametrize("failure", [FAILED, LATE])
def test_failures_leave_the_group(reading: str, failure: Verdict) -> None:
    config = RewardConfig(reading=reading)  # type: ignore[arg-type]
    runs = [
        rollout(block("x=x", "kf"), filler()),
        rollout(block("x", "f"), filler()),
        rollout(block("xx", "kk"), filler()),
    ]
    without = group_advantages(runs[:2], [RIGHT, WRONG], config)
    result = group_advantages(runs, [RIGHT, WRONG, failure], config)
    assert result.advantages == [*without.advantages, [0.0, 0.0]]
    assert result.rewards == [*without.rewards, None]
    assert result.num_failed == 1
    assert result.stats == replace(without.stats, num_failed=1)


@pytest.mark.parametrize("reading", ["decision", "rollout"])
def test_rollouts_without_decisions_are_counted(reading: str) -> None:
    config = RewardConfig(reading=reading)  # type: ignore[arg-type]
    quiet, loud = rollout(filler()), rollout(block("x", "f"), filler())
    for runs, verdicts in (
        ([quiet, loud], [RIGHT, WRONG]),
        ([quiet, quiet], [RIGHT, WRONG]),
        ([quiet], [WRONG]),
        ([], []),
    ):
        result = group_advantages(runs, verdicts, config)
        assert [len(values) for values in result.advantages] == [len(run.decisions) for run in runs]
        assert result.stats.num_without_decision == sum(not run.decisions for run in runs)
        assert result.zero_variance == (loud not in runs)


def test_the_rollout_reading_is_a_plain_z_score() -> None:
    runs = [
        rollout(block("x", "k"), filler()),
        rollout(block("xx", "kf"), filler()),
        rollout(block("x", "f"), filler()),
    ]
    result = group_advantages(runs, [RIGHT, WRONG, WRONG], RewardConfig(reading="rollout"))
    rewards = [2.0, -0.15, -0.3]
    assert result.rewards == pytest.approx(rewards)
    mean = sum(rewards) / 3
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / 3)
    for values, reward, run in zip(result.advantages, rewards, runs, strict=True):
        assert values == pytest.approx([(reward - mean) / deviation] * len(run.decisions))


def test_stats_are_sums_and_counts() -> None:
    runs = [rollout(block("=x=x=", "kf"), filler()), rollout(block("xx", "kf", probs=[0.0, 0.0]), filler())]
    stats = group_advantages(runs, [RIGHT, WRONG], CONFIG).stats
    assert stats == GroupStats(
        num_groups=1,
        num_right=1,
        num_wrong=1,
        num_decisions=4,
        num_kept=2,
        num_wrong_decisions=2,
        rho_sum=0.5 + 0.5,
        reward_sum=1.5 - 0.65,
        risk_sum=1.0,
        fallback_sum=0.3,
    )
    assert (stats + stats).num_kept == 4
    assert (stats + GroupStats()) == stats


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"alpha": -1.0}, r"reward\.alpha is -1\.0"),
        ({"lambda_fb": float("nan")}, r"reward\.lambda_fb is nan"),
        ({"tau": 0.0}, r"reward\.tau is 0\.0"),
        ({"p_min": 0.0}, r"reward\.p_min is 0\.0"),
        ({"p_min": 0.05}, "choose 0 < p_min < tau <= 1"),
        ({"reading": "both"}, r"reward\.reading is 'both'"),
        ({"reading": "rollout", "c_keep": 1.0}, r"reward\.c_keep is 1\.0, but the rollout reading"),
    ],
)
def test_config_refuses_what_makes_no_sense(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RewardConfig(**values)  # type: ignore[arg-type]
