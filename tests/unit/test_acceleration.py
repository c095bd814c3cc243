"""Acceptance in vLLM's terms and the acceleration model, by hand and against decoded texts."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from conftest import family_pair, random_prompts
from engine_checks import decode
from hypothesis import given
from hypothesis import strategies as st

from cospec.engine.cost import PassCosts, measure_passes
from cospec.engine.metrics import Acceptance, acceleration, acceptance
from cospec.engine.record import Block, Rollout, Sampling, Settings, Timings
from cospec.engine.round import Clock
from cospec.evaluation.acceleration import steps_of
from cospec.evaluation.result import acceptance_of
from cospec.evaluation.sample import sample_of
from cospec.scoring import Verdict

PROMPTS = random_prompts(5, 9, 12, 4)


def rollout(*blocks: tuple[int, int, int]) -> Rollout:
    """Blocks as (drafted, accepted, committed); the ids mean nothing."""
    found = tuple(Block(0, (7,) * n, (7,) * n, (), accepted, (7,) * m) for n, accepted, m in blocks)
    ids = tuple(token for block in found for token in block.emitted_ids)
    settings = Settings(0, "strict", 3, "target", 99, Sampling(), ())
    return Rollout("r", (5,), ids, "", found, "eos", settings, Timings())


def test_acceptance_by_hand() -> None:
    # 3 of 3 and a bonus; 1 of 3; 0 of 3; nothing drafted; 2 of 2, cut by the ending.
    found = acceptance([rollout((3, 3, 4), (3, 1, 2), (3, 0, 1), (0, 0, 1), (2, 2, 2))])
    assert (found.num_tokens, found.num_rounds, found.num_drafts, found.num_drafted, found.num_accepted) == (
        10,
        5,
        4,
        11,
        6,
    )
    assert found.l_accept == 6 / 5
    assert found.tokens_per_round == 2.0
    # vLLM's counters know of rounds with drafts alone.
    assert found.mean_acceptance_length == 1 + 6 / 4
    assert found.acceptance_rate == 6 / 11
    assert found.acceptance_by_position == [3 / 4, 2 / 4, 1 / 4]
    assert found.accepted_lengths == [1, 1, 1, 1]
    assert Acceptance().accepted_lengths == []
    assert Acceptance(num_rollouts=1, num_tokens=3, num_rounds=3).l_accept == 0


@given(st.lists(st.integers(0, 6), max_size=30))
def test_the_histogram_adds_up(lengths: list[int]) -> None:
    found = acceptance([rollout(*[(6, accepted, accepted + 1) for accepted in lengths])])
    assert sum(found.accepted_lengths) == len(lengths) == found.num_drafts
    assert sum(i * count for i, count in enumerate(found.accepted_lengths)) == found.num_accepted
    assert [lengths.count(i) for i in range(len(found.accepted_lengths))] == found.accepted_lengths


def test_the_model_by_hand() -> None:
    target = Acceptance(num_rollouts=2, num_tokens=100, num_rounds=100)
    method = Acceptance(num_rollouts=2, num_tokens=120, num_rounds=40, num_accepted=80)
    found = acceleration(method, target, 5, 0.2)
    assert found is not None
    # Texts a fifth longer; 3 tokens a round that costs 1 + 5 * 0.2 = 2 steps.
    assert found.length == pytest.approx(100 / 120)
    assert found.rounds == pytest.approx(1.5)
    assert found.speedup == pytest.approx(1.25)
    # The survey's form, l_accept + 1 for tokens per round: no last round is cut short here.
    assert method.l_accept is not None
    assert found.rounds == pytest.approx((method.l_accept + 1) / (1 + 5 * 0.2))
    alone = acceleration(target, target, 0, 0.0)
    assert alone is not None
    assert (alone.length, alone.rounds, alone.speedup) == (1, 1, 1)
    assert acceleration(Acceptance(num_rollouts=2), target, 5, 0.2) is None


@pytest.mark.parametrize("bonus", ["target", "arbitrated"])
def test_texts_agree_with_the_model(bonus: str) -> None:
    pair = family_pair("llama", "sdpa")
    settings = {"num_draft_tokens": 4, "max_new_tokens": 25}
    target = acceptance(decode(pair, "target", PROMPTS, **settings))
    found = acceptance(decode(pair, "strict", PROMPTS, bonus=bonus, **settings))
    model = acceleration(found, target, steps_of(4, bonus, "strict"), 0.1)  # type: ignore[arg-type]
    assert model is not None
    # Lossless and greedy: the same texts.
    assert model.length == 1
    cost = 1.4 if bonus == "target" else 1.5
    assert model.speedup == pytest.approx(target.num_rounds / (found.num_rounds * cost))
    if bonus == "target":
        assert found.l_accept is not None
        # Every round writes one token beside the accepted ones, but for the last of a text.
        missing = found.num_rounds * (1 + found.l_accept) - found.num_tokens
        assert 0 <= round(missing, 6) <= len(PROMPTS)


def test_sums_over_samples_are_sums_over_rollouts() -> None:
    pair = family_pair("llama", "sdpa")
    rollouts = decode(pair, "strict", PROMPTS, num_draft_tokens=3, max_new_tokens=17)
    samples = [sample_of(one, "t", "m", 0, Verdict("right", None, "")) for one in rollouts]
    assert acceptance_of(samples) == acceptance(rollouts)
    assert acceptance_of([]) == Acceptance()


def test_steps_of_a_round() -> None:
    assert [steps_of(5, bonus, "ensemble") for bonus in ("target", "arbitrated", "rule", None)] == [5, 6, 6, 0]
    # The gates take their bonus from the target's row alone.
    assert [steps_of(5, bonus, "trt_relaxed") for bonus in ("target", "arbitrated", "rule")] == [5, 6, 5]


def test_costs_are_told_apart() -> None:
    costs = PassCosts(0.2, {1: 0.4, 6: 0.8})
    assert costs.c_rel == pytest.approx(0.5)
    assert costs.cost_ratio(5) == pytest.approx(0.25)
    assert costs.verification(5) == pytest.approx(2.0)
    measured = measure_passes(family_pair("llama", "sdpa"), 2, [1, 4], context=20)
    assert list(measured.target_s) == [1, 4]
    assert measured.c_rel > 0
    assert all(seconds > 0 for seconds in measured.target_s.values())
    assert measured.cpu_share is not None
    assert measured.cpu_share > 0
    # Wider than the context: what fits is timed, under the width asked for.
    assert list(measure_passes(family_pair("llama", "sdpa"), 2, [1, 100000]).target_s) == [1, 100000]


def test_a_ratio_is_of_the_same_samples() -> None:
    one = Acceptance(num_rollouts=1, num_tokens=3, num_rounds=3)
    with pytest.raises(AssertionError, match="other samples"):
        acceleration(dataclasses.replace(one, num_rollouts=2), one, 1, 0.1)


class _Device:
    """A device that is behind its host: events happen when somebody waits for them, a second after another."""

    def __init__(self) -> None:
        self.seconds, self.waits = 0.0, 0

    def event(self, *, enable_timing: bool) -> _Event:
        assert enable_timing
        return _Event(self)


class _Event:
    def __init__(self, device: _Device) -> None:
        self.device, self.at, self.happened = device, 0.0, False

    def record(self, stream: object) -> None:
        self.device.seconds += 1.5
        self.at = self.device.seconds

    def synchronize(self) -> None:
        self.device.waits += 1
        self.happened = True

    def elapsed_time(self, other: _Event) -> float:
        assert other.happened, "read before the device had come there"
        return 1000 * (other.at - self.at)


def test_a_devices_laps_are_its_own_time_and_nothing_waits_within_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    device = _Device()
    monkeypatch.setattr(torch.cuda, "Event", device.event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    clock = Clock(device=torch.device("cuda"))
    for part in ("", "draft_s", "target_s", "", "arbiter_s"):
        clock.lap(part)
    assert device.waits == 0
    assert clock.parts() == (1.5, 1.5, 1.5)
    assert clock.parts() == (1.5, 1.5, 1.5)
    clock.lap("prefill_s")
    clock.settle()
    assert (clock.prefill_s, clock.draft_s) == (1.5, 1.5)
