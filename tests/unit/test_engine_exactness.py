"""The engine against transformers' generate and the uncached reference of tests/reference.py, token for token."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from conftest import (
    CONTEXT,
    VOCAB_SIZE,
    family_pair,
    late_ids,
    pair_of,
    perturbed,
    random_prompts,
    tiny_config,
    tiny_model,
)
from engine_checks import CoinRule, assert_counters, coin, decode, outputs
from reference import ReferenceRollout, Uncached, generated, reference_rollout

from cospec.engine.decode import Engine
from cospec.engine.record import Bonus, Rollout, Sampling, rollout_from_json
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.pair import Pair

NUM_TOKENS = 12
BONUSES: tuple[Bonus, ...] = ("arbitrated", "target")
NEVER: Callable[[int, int], bool] = lambda start, position: False  # noqa: E731
ALWAYS: Callable[[int, int], bool] = lambda start, position: True  # noqa: E731


@functools.cache
def uncached(model: torch.nn.Module, vocab_size: int = VOCAB_SIZE) -> Uncached:
    return Uncached(model, vocab_size)


@functools.cache
def target_text(model: torch.nn.Module, prompt: tuple[int, ...], num: int, eos: tuple[int, ...] = ()) -> list[int]:
    return generated(model, prompt, num, eos)


def reference(pair: Pair, prompt: Sequence[int], keep: Callable[[int, int], bool], **settings: Any) -> ReferenceRollout:
    models = uncached(pair.draft, pair.vocab_size), uncached(pair.target, pair.vocab_size)
    contexts = {"draft_context": pair.draft_context, "target_context": pair.target_context}
    return reference_rollout(*models, prompt, keep, **(contexts | settings))


def assert_same(rollout: Rollout, expected: ReferenceRollout) -> None:
    assert list(rollout.output_ids) == expected.output_ids
    assert rollout.finish_reason == expected.finish_reason
    assert len(rollout.blocks) == len(expected.blocks)
    for block, wanted in zip(rollout.blocks, expected.blocks, strict=True):
        for name in ("start", "draft_ids", "target_ids", "accepted_len", "emitted_ids"):
            assert getattr(block, name) == getattr(wanted, name), name
        for decision, (*fields, risk, kept) in zip(block.decisions, wanted.decisions, strict=True):
            assert [decision.position, decision.draft_id, decision.target_id, decision.kept] == [*fields, kept]
            assert decision.target_prob_of_draft == pytest.approx(risk, rel=1e-3, abs=1e-6)
    assert rollout.num_rounds == len(expected.blocks)
    assert rollout.num_drafted == sum(len(block.draft_ids) for block in expected.blocks)
    assert rollout.num_mismatches == sum(len(block.decisions) for block in expected.blocks)
    assert rollout.num_kept == sum(kept for block in expected.blocks for *_, kept in block.decisions)


# ---- the controls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", range(1, 9))
def test_never_equals_the_targets_own_greedy_text(pair: Pair, prompts: list[list[int]], k: int) -> None:
    expected = [target_text(pair.target, tuple(prompt), NUM_TOKENS) for prompt in prompts]
    for bonus in BONUSES:
        rollouts = decode(pair, "never", prompts, num_draft_tokens=k, bonus=bonus, max_new_tokens=NUM_TOKENS)
        assert outputs(rollouts) == expected
        for rollout in rollouts:
            assert_counters(rollout)
            assert rollout.num_kept == 0
            assert all(len(block.decisions) <= 1 for block in rollout.blocks)


def test_the_tiny_pairs_are_worth_testing_with(pair: Pair, prompts: list[list[int]]) -> None:
    rollouts = decode(pair, "never", prompts, num_draft_tokens=3, max_new_tokens=20)
    blocks = [block for rollout in rollouts for block in rollout.blocks]
    assert {block.accepted_len for block in blocks} == {0, 1, 2, 3, 4}
    assert sum(len(set(rollout.output_ids)) > 5 for rollout in rollouts) >= 4, "greedy text stands still"


@pytest.mark.parametrize("k", [1, 5])
def test_strict_and_plain_target_decoding_equal_the_targets_greedy_text(
    pair: Pair, prompts: list[list[int]], k: int
) -> None:
    expected = [target_text(pair.target, tuple(prompt), NUM_TOKENS) for prompt in prompts]
    strict = decode(pair, "strict", prompts, num_draft_tokens=k, max_new_tokens=NUM_TOKENS)
    assert strict[0].settings.bonus == "target"
    assert outputs(strict) == expected
    plain = decode(pair, "target", prompts, num_draft_tokens=k, max_new_tokens=NUM_TOKENS)
    assert outputs(plain) == expected
    assert all(rollout.num_rounds == NUM_TOKENS and rollout.num_drafted == 0 for rollout in plain)


@pytest.mark.parametrize("k", [1, 4])
def test_always_arbitrated_is_the_drafts_own_text(pair: Pair, prompts: list[list[int]], k: int) -> None:
    rollouts = decode(pair, "always", prompts, num_draft_tokens=k, max_new_tokens=NUM_TOKENS)
    assert outputs(rollouts) == [target_text(pair.draft, tuple(prompt), NUM_TOKENS) for prompt in prompts]
    for rollout in rollouts:
        assert_counters(rollout)
        assert rollout.num_accepted == NUM_TOKENS
        assert rollout.num_rounds == -(-NUM_TOKENS // (k + 1))


@pytest.mark.parametrize("k", [1, 4])
def test_always_with_a_target_bonus_has_one_target_token_per_full_block(
    pair: Pair, prompts: list[list[int]], k: int
) -> None:
    draft, target = uncached(pair.draft), uncached(pair.target)
    for prompt, rollout in zip(
        prompts,
        decode(pair, "always", prompts, num_draft_tokens=k, bonus="target", max_new_tokens=NUM_TOKENS),
        strict=True,
    ):
        text = list(prompt)
        for number in range(NUM_TOKENS):
            text.append((target if number % (k + 1) == k else draft).choice(text))
        assert list(rollout.output_ids) == text[len(prompt) :]
        assert rollout.num_accepted == NUM_TOKENS - NUM_TOKENS // (k + 1)


@pytest.mark.parametrize("bonus", BONUSES)
@pytest.mark.parametrize("k", [1, 4])
def test_an_arbitrary_rule_equals_the_uncached_reference(
    pair: Pair, prompts: list[list[int]], k: int, bonus: Bonus
) -> None:
    settings = {"bonus": bonus, "max_new_tokens": NUM_TOKENS}
    rollouts = decode(pair, CoinRule(), prompts, num_draft_tokens=k, **settings)
    for prompt, rollout in zip(prompts, rollouts, strict=True):
        assert_same(rollout, reference(pair, prompt, coin, k=k, **settings))
        assert_counters(rollout)
    assert 0 < sum(r.num_kept for r in rollouts) < sum(r.num_mismatches for r in rollouts)


def test_draft_of_another_shape_and_family() -> None:
    draft = tiny_model(
        tiny_config("qwen3", hidden_size=24, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3), seed=9
    )
    pair = pair_of(draft, family_pair("llama", "sdpa").target)
    prompts = random_prompts(2, 9, seed=4)
    for bonus in BONUSES:
        settings = {"bonus": bonus, "max_new_tokens": 12}
        for prompt, rollout in zip(prompts, decode(pair, CoinRule(), prompts, **settings), strict=True):
            assert_same(rollout, reference(pair, prompt, coin, k=5, **settings))


# ---- batches -------------------------------------------------------------------------------------------------------


def assert_alike(rollouts: Sequence[Rollout], expected: Sequence[Rollout]) -> None:
    """Equal in all but the times; risks nearly so, as batched matrix products may differ in the last bits."""
    rows = [[rollout.to_json() for rollout in each] for each in (rollouts, expected)]
    risks: list[list[float]] = [[], []]
    for each, found in zip(rows, risks, strict=True):
        for row in each:
            del row["timings"]
            for block in row["blocks"]:
                found += [decision.pop("target_prob_of_draft") for decision in block["decisions"]]
    assert rows[0] == rows[1]
    assert risks[0] == pytest.approx(risks[1], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("bonus", BONUSES)
def test_a_batch_of_six_equals_six_singles_in_any_order_and_batch_size(
    pair: Pair, prompts: list[list[int]], bonus: Bonus
) -> None:
    # End ids from two rows' own texts make them end at different times, so that places are refilled.
    settings = {"num_draft_tokens": 3, "max_new_tokens": 12, "bonus": bonus}
    free = outputs(decode(pair, CoinRule(), prompts, **settings))
    settings["eos_token_ids"] = late_ids(free)
    requests = [Request(i, prompt) for i, prompt in enumerate(prompts)]
    singles = [Engine(pair, CoinRule(), **settings).rollouts([request])[0] for request in requests]
    assert len({len(single.output_ids) for single in singles}) > 2
    generator = random.Random(1)
    for batch_size in (2, 3, 8):
        order = generator.sample(range(6), 6)
        engine = Engine(pair, CoinRule(), batch_size=batch_size, **settings)
        rollouts = engine.rollouts([requests[i] for i in order])
        assert [rollout.id for rollout in rollouts] == order
        assert_alike(rollouts, [singles[i] for i in order])


def test_a_longer_neighbour_changes_nothing(pair: Pair, prompts: list[list[int]]) -> None:
    alone = decode(pair, CoinRule(), prompts[:3], max_new_tokens=12)
    crowd = decode(pair, CoinRule(), [*prompts[:3], *random_prompts(90, 60, seed=5)], max_new_tokens=12)
    assert_alike(crowd[:3], alone)


def test_one_engine_serves_many_runs(llama: Pair, prompts: list[list[int]]) -> None:
    engine = Engine(llama, CoinRule(), max_new_tokens=8, batch_size=2)
    requests = [Request(i, prompt) for i, prompt in enumerate(prompts)]
    first = engine.rollouts(requests)
    assert_alike(engine.rollouts(requests[::-1]), first[::-1])
    assert engine.rollouts([]) == []


# ---- ends of text ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["never", "coin", "always"])
@pytest.mark.parametrize("bonus", BONUSES)
def test_eos_at_every_position_ends_the_text_there(llama: Pair, rule: str, bonus: Bonus) -> None:
    prompt = random_prompts(5, seed=8)[0]
    keep = {"never": NEVER, "coin": coin, "always": ALWAYS}[rule]
    base = {"k": 4, "bonus": bonus, "max_new_tokens": 16}
    free = reference(llama, prompt, keep, **base).output_ids
    seen = set()
    for number, token in enumerate(dict.fromkeys(free)):
        # A single id and a list of them, by turns.
        eos = (token,) if number % 2 else (47, token)
        rollout = decode(
            llama,
            CoinRule() if rule == "coin" else rule,
            [prompt],
            num_draft_tokens=4,
            bonus=bonus,
            max_new_tokens=16,
            eos_token_ids=eos,
        )[0]
        assert_same(rollout, reference(llama, prompt, keep, eos=eos, **base))
        assert_counters(rollout)
        assert rollout.finish_reason == "eos"
        assert rollout.output_ids[-1] in eos
        assert not set(rollout.output_ids[:-1]) & set(eos)
        if rule == "never":
            assert list(rollout.output_ids) == generated(llama.target, prompt, 16, eos)
        seen.add(len(rollout.blocks[-1].emitted_ids))
    assert len(seen) >= 3, "the EOS fell on too few positions of a block"


@pytest.mark.parametrize("rule", ["never", "coin", "always"])
@pytest.mark.parametrize("bonus", BONUSES)
def test_length_cap_at_every_position(llama: Pair, rule: str, bonus: Bonus) -> None:
    prompts, keep = random_prompts(5, 2, seed=8), {"never": NEVER, "coin": coin, "always": ALWAYS}[rule]
    for cap in range(1, 13):
        rollouts = decode(
            llama,
            CoinRule() if rule == "coin" else rule,
            prompts,
            num_draft_tokens=4,
            bonus=bonus,
            max_new_tokens=cap,
        )
        for prompt, rollout in zip(prompts, rollouts, strict=True):
            assert_same(rollout, reference(llama, prompt, keep, k=4, bonus=bonus, max_new_tokens=cap))
            assert_counters(rollout)
            assert (len(rollout.output_ids), rollout.finish_reason) == (cap, "length")


def test_a_request_may_have_a_shorter_cap_of_its_own(llama: Pair, prompts: list[list[int]]) -> None:
    engine = Engine(llama, CoinRule(), max_new_tokens=9, batch_size=3)
    free = engine.rollouts([Request(i, prompt) for i, prompt in enumerate(prompts)])
    caps = [1, 4, None, 9, 30, 2]
    for cap, whole, rollout in zip(
        caps,
        free,
        engine.rollouts([Request(i, *args) for i, args in enumerate(zip(prompts, caps, strict=True))]),
        strict=True,
    ):
        assert rollout.output_ids == whole.output_ids[: cap or 9]
        assert rollout.finish_reason == "length"
        assert_counters(rollout)
    with pytest.raises(ValueError, match="max_new_tokens 0"):
        engine.rollouts([Request("row", [5], 0)])


def test_eos_on_the_caps_last_token_is_an_eos(llama: Pair) -> None:
    prompt = random_prompts(5, seed=8)[0]
    text = target_text(llama.target, tuple(prompt), 16)
    last = next(i for i in range(15, 0, -1) if text[i] not in text[:i])
    rollout = decode(llama, "never", [prompt], max_new_tokens=last + 1, eos_token_ids=[text[last]])[0]
    assert (list(rollout.output_ids), rollout.finish_reason) == (text[: last + 1], "eos")
    assert rollout.text == llama.tokenizer.decode(text[:last])


def test_draft_eos_that_the_target_rejects_does_not_end_the_text(llama: Pair, prompts: list[list[int]]) -> None:
    num_rejected = 0
    for bonus in BONUSES:
        for block in decode(llama, "never", prompts, bonus=bonus, max_new_tokens=NUM_TOKENS)[4].blocks:
            for decision in block.decisions:
                eos = (decision.draft_id,)
                expected = target_text(llama.target, tuple(prompts[4]), NUM_TOKENS, eos)
                rollout = decode(
                    llama, "never", [prompts[4]], bonus=bonus, max_new_tokens=NUM_TOKENS, eos_token_ids=eos
                )[0]
                assert list(rollout.output_ids) == expected
                num_rejected += any(d.draft_id in eos for d in rollout.decisions)
                assert all(not set(b.draft_ids[:-1]) & set(eos) for b in rollout.blocks), "drafted behind an EOS"
    assert num_rejected > 0


def test_a_prompt_that_contains_eos_and_bos_is_just_a_prompt(llama: Pair) -> None:
    prompt = [1, 9, 2, 11, 2]
    rollout = decode(llama, "never", [prompt], max_new_tokens=8, eos_token_ids=[2])[0]
    assert list(rollout.output_ids) == generated(llama.target, prompt, 8, [2])


# ---- contexts and vocabularies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["never", "strict", "coin"])
def test_the_targets_context_is_filled_to_the_last_place_and_not_beyond(llama: Pair, rule: str) -> None:
    prompts = random_prompts(*range(CONTEXT - 7, CONTEXT), 3, seed=2)
    rollouts = decode(llama, CoinRule() if rule == "coin" else rule, prompts, num_draft_tokens=4, max_new_tokens=5)
    for prompt, rollout in zip(prompts, rollouts, strict=True):
        assert (len(rollout.output_ids), rollout.finish_reason) == (min(5, CONTEXT - len(prompt)), "length")
        assert_same(
            rollout,
            reference(
                llama,
                prompt,
                coin if rule == "coin" else NEVER,
                k=4,
                bonus=rollout.settings.bonus,
                max_new_tokens=5,
            ),
        )


@pytest.mark.parametrize("bonus", BONUSES)
@pytest.mark.parametrize("batch_size", [1, 3])
def test_beyond_a_shorter_draft_context_the_target_writes_alone(bonus: Bonus, batch_size: int) -> None:
    target = family_pair("llama", "sdpa").target
    draft = tiny_model(tiny_config("llama", max_position_embeddings=16), seed=1)
    pair = pair_of(perturbed(draft, seed=2, scale=0.02), target)
    prompts = random_prompts(1, 10, 14, 15, 16, 17, 30, 4, seed=3)
    settings = {"bonus": bonus, "max_new_tokens": 18}
    for rule, keep in (("never", NEVER), (CoinRule(), coin)):
        rollouts = decode(pair, rule, prompts, num_draft_tokens=4, batch_size=batch_size, **settings)
        for prompt, rollout in zip(prompts, rollouts, strict=True):
            assert_same(rollout, reference(pair, prompt, keep, k=4, **settings))
            if keep is NEVER:
                assert list(rollout.output_ids) == target_text(target, tuple(prompt), 18)
            for block in rollout.blocks:
                assert block.start + len(block.draft_ids) <= max(16, block.start)
        assert any(block.draft_ids for block in rollouts[1].blocks)


def widened(model: torch.nn.Module, num: int) -> torch.nn.Module:
    """The model with ``num`` padding rows of huge logits behind its vocabulary."""
    config = tiny_config("llama", vocab_size=VOCAB_SIZE + num)
    wide = tiny_model(config, seed=0)
    state = dict(model.state_dict())
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        state[name] = torch.cat([state[name], torch.zeros(num, 32)])
    wide.load_state_dict(state)
    wide.lm_head.bias = torch.nn.Parameter(torch.cat([torch.zeros(VOCAB_SIZE), torch.full((num,), 1e4)]))
    return wide


@pytest.mark.parametrize(("draft_pads", "target_pads"), [(16, 0), (0, 8), (3, 16)])
def test_padding_ids_are_never_chosen_however_huge_their_logits(
    prompts: list[list[int]], draft_pads: int, target_pads: int
) -> None:
    slim = family_pair("llama", "sdpa")
    wide = dataclasses.replace(slim, draft=widened(slim.draft, draft_pads), target=widened(slim.target, target_pads))
    for rule in ("never", "always", "strict", "target"):
        assert outputs(decode(wide, rule, prompts, max_new_tokens=10)) == outputs(
            decode(slim, rule, prompts, max_new_tokens=10)
        )
    hot = Sampling(temperature=5.0)
    sampled = decode(wide, "strict", prompts, max_new_tokens=10, sampling=hot)
    assert max(max(rollout.output_ids) for rollout in sampled) < VOCAB_SIZE
    risks = [decision.target_prob_of_draft for rollout in sampled for decision in rollout.decisions]
    assert max(risks) > 1e-3, "padding ids took the probability mass"


def test_draft_alone_decodes_as_the_draft(llama: Pair, prompts: list[list[int]]) -> None:
    rollouts = decode(llama.draft_alone(), "target", prompts[:3], max_new_tokens=10)
    assert outputs(rollouts) == [target_text(llama.draft, tuple(prompt), NUM_TOKENS)[:10] for prompt in prompts[:3]]


# ---- bad input ------------------------------------------------------------------------------------------------------


def forbidden(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("a model was run before the input was checked")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "empty"),
        ([5] * CONTEXT, "shorten the prompt"),
        ([5, VOCAB_SIZE, 6], f"token id {VOCAB_SIZE}"),
        ([5, -1], "token id -1"),
    ],
)
def test_bad_prompts_are_refused_before_any_pass(
    prompt: list[int], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = family_pair("llama", "sdpa")
    monkeypatch.setattr(type(pair.target), "forward", forbidden)
    engine = Engine(pair, rule_named("never"), max_new_tokens=4)
    with pytest.raises(ValueError, match=message) as caught:
        engine.rollouts([Request("fine", [5, 6]), Request("culprit", prompt)])
    assert "'culprit'" in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_draft_tokens": 0}, "num_draft_tokens is 0"),
        ({"num_draft_tokens": -3}, "num_draft_tokens is -3"),
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"bonus": "both"}, "bonus is 'both'"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Engine(family_pair("llama", "sdpa"), rule_named("never"), **settings)


@pytest.mark.parametrize(("name", "message"), [("arbiter", "--arbiter"), ("nevr", "never")])
def test_rules_that_cannot_be_had_say_why(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rule_named(name)


# ---- records --------------------------------------------------------------------------------------------------------


def test_rollouts_survive_json_without_loss(llama: Pair, prompts: list[list[int]]) -> None:
    engine = Engine(
        llama,
        CoinRule(),
        max_new_tokens=12,
        eos_token_ids=[17, 30],
        sampling=Sampling(0.7, 20, 0.9),
        seed=2**40,
    )
    requests = [Request(i if i % 2 else f"é\u2028{i}", prompt) for i, prompt in enumerate(prompts)]
    rollouts = engine.rollouts(requests)
    assert any(rollout.decisions for rollout in rollouts)
    for rollout in rollouts:
        again = rollout_from_json(json.loads(json.dumps(rollout.to_json())))
        assert again == rollout
        assert isinstance(again.blocks[0].emitted_ids, tuple)
        assert hash(again) == hash(rollout)


@pytest.mark.parametrize("damage", ["missing", "unknown", "unknown in a block"])
def test_a_damaged_record_is_refused_by_name(llama: Pair, damage: str) -> None:
    row = json.loads(json.dumps(decode(llama, "never", [[5, 6]], max_new_tokens=3)[0].to_json())) | {"id": "row-7"}
    if damage == "missing":
        del row["blocks"]
    elif damage == "unknown":
        row["colour"] = "red"
    else:
        row["blocks"][0]["decisions"] = [{"colour": "red"}]
    with pytest.raises(ValueError, match="row-7"):
        rollout_from_json(row)
