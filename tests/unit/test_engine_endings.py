"""Every kind of ending at every position of a block: EOS, stop strings, caps, alone and against one another.

The word-level tokenizer writes "w9 w10 w9": a stop string can end inside a token, begin in an earlier one, or be one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pytest
from conftest import family_pair, late_ids, random_prompts
from engine_checks import CoinRule, assert_counters, decode
from hypothesis import given, settings
from hypothesis import strategies as st

from cospec.engine.decode import Engine
from cospec.engine.record import Bonus, Rollout, cut_block, rollout_from_json
from cospec.engine.request import Request
from cospec.engine.rules import Rule, rule_named
from cospec.engine.text import cut_at_stop, decode_text
from cospec.pair import Pair

CAP = 12
RULES = ("never", "coin", "always", "target")
KINDS = ("token", "part of a token", "two tokens", "across a border of tokens")


def rule_of(name: str) -> Rule:
    return CoinRule() if name == "coin" else rule_named(name)


@functools.cache
def pair() -> Pair:
    return family_pair("llama", "sdpa")


@functools.cache
def free_texts(rule: str, bonus: Bonus) -> tuple[Rollout, ...]:
    """Four rollouts that only the cap ends."""
    prompts = random_prompts(5, 2, 9, 3, seed=8)
    return tuple(decode(pair(), rule_of(rule), prompts, num_draft_tokens=4, bonus=bonus, max_new_tokens=CAP))


def expected(free: Rollout, eos: Sequence[int], stops: Sequence[str], cap: int) -> tuple[tuple[int, ...], str, str]:
    """Ids, text and reason, by looking at the free text after every token."""
    tokenizer = pair().tokenizer
    for count in range(1, len(free.output_ids) + 1):
        ids = free.output_ids[:count]
        if ids[-1] in eos:
            return ids, decode_text(tokenizer, ids[:-1]), "eos"
        text = decode_text(tokenizer, ids)
        if any(stop in text for stop in stops):
            return ids, cut_at_stop(text, stops), "stop"
        if count == cap:
            return ids, text, "length"
    raise AssertionError("the free text is shorter than the cap")


def check(rollout: Rollout, free: Rollout, eos: Sequence[int], stops: Sequence[str], cap: int = CAP) -> None:
    """Ids, text, reason, blocks and counters agree with the free text cut at its first ending."""
    ids, text, reason = expected(free, eos, stops, cap)
    assert (rollout.output_ids, rollout.text, rollout.finish_reason) == (ids, text, reason)
    assert (rollout.stop in stops) if reason == "stop" else rollout.stop is None
    assert_counters(rollout)
    if reason != "stop":
        return
    # Up to a stop string nothing is decoded otherwise than without it.
    blocks, left = [], len(ids)
    for block in free.blocks:
        blocks.append(cut_block(block, left))
        left -= len(blocks[-1].emitted_ids)
        if not left:
            break
    assert [b.emitted_ids for b in rollout.blocks] == [b.emitted_ids for b in blocks]
    assert [b.accepted_len for b in rollout.blocks] == [b.accepted_len for b in blocks]
    places = [[d.position for d in block.decisions] for block in rollout.blocks]
    assert places == [[d.position for d in block.decisions] for block in blocks]


def run_both_ways(engine: Engine, requests: Sequence[Request]) -> list[Rollout]:
    """The rollouts; read along piece by piece they are the same and the pieces join to the texts."""
    whole = engine.rollouts(requests)
    pieces: dict[int, str] = dict.fromkeys(range(len(requests)), "")
    streamed: dict[int, Rollout] = {}
    for index, event in engine.stream(requests):
        assert index not in streamed, "something came behind the end of a text"
        if isinstance(event, Rollout):
            streamed[index] = event
        else:
            assert event
            pieces[index] += event
    for index, rollout in enumerate(whole):
        assert pieces[index] == streamed[index].text == rollout.text
        assert streamed[index].output_ids == rollout.output_ids
        assert streamed[index].blocks == rollout.blocks
    return whole


def stop_at(rollout: Rollout, position: int, kind: str) -> str:
    """A stop string that is complete with the token at ``position``, if not earlier; special tokens show nothing."""
    word, before = (decode_text(pair().tokenizer, [rollout.output_ids[i]]) for i in (position, position - 1))
    if not word or kind == "token":
        return f" {word or 'w1'}" if position % 2 else f"{word or 'w1'} "
    if kind == "part of a token":
        return word[:2]
    return f"{before} {word}" if kind == "two tokens" else f"{before[-1:]} {word[:2]}"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("bonus", ["arbitrated", "target"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_stop_string_at_every_position_ends_the_text_there(rule: str, bonus: Bonus, batch_size: int) -> None:
    free = free_texts(rule, bonus)[: 1 if batch_size == 1 else 2]
    wanted = [(text, (stop_at(text, i, kind),)) for text in free for kind in KINDS for i in range(CAP)]
    engine = Engine(pair(), rule_of(rule), num_draft_tokens=4, bonus=bonus, max_new_tokens=CAP, batch_size=batch_size)
    requests = [Request(i, text.prompt_ids, stop=stops) for i, (text, stops) in enumerate(wanted)]
    places = set()
    for rollout, (text, stops) in zip(run_both_ways(engine, requests), wanted, strict=True):
        check(rollout, text, (), stops)
        if rollout.finish_reason == "stop":
            places.add(len(rollout.blocks[-1].emitted_ids))
    assert len(places) >= (1 if rule == "target" else 3), "the stops fell on too few positions of a block"


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_earliest_ending_wins(data: st.DataObject) -> None:
    rule = data.draw(st.sampled_from(RULES))
    bonus: Bonus = data.draw(st.sampled_from(["arbitrated", "target"])) if rule != "target" else "target"
    free = free_texts(rule, bonus)
    positions = st.integers(0, CAP - 1)
    kinds = st.sampled_from(KINDS)
    stops = [stop_at(data.draw(st.sampled_from(free)), data.draw(positions), data.draw(kinds)) for _ in range(2)]
    own = [stop_at(text, data.draw(positions), data.draw(kinds)) for text in free]
    eos = [
        data.draw(st.sampled_from(free)).output_ids[data.draw(positions)] for _ in range(data.draw(st.integers(0, 2)))
    ]
    caps = [data.draw(st.integers(1, CAP)) for _ in free]
    engine = Engine(
        pair(),
        rule_of(rule),
        num_draft_tokens=4,
        bonus=bonus,
        max_new_tokens=CAP,
        eos_token_ids=eos,
        stop=stops,
        batch_size=data.draw(st.sampled_from([1, 2, 4])),
    )
    requests = [
        Request(i, text.prompt_ids, cap, (stop,))
        for i, (text, cap, stop) in enumerate(zip(free, caps, own, strict=True))
    ]
    for rollout, whole, cap, stop in zip(run_both_ways(engine, requests), free, caps, own, strict=True):
        check(rollout, whole, eos, (*stops, stop), cap)


def test_a_stop_string_on_the_caps_last_token_is_a_stop() -> None:
    free = free_texts("never", "target")[0]
    words = free.text.split(" ")
    last = next(i for i in range(CAP - 1, 0, -1) if words[i] not in words[:i])
    rollout = decode(pair(), "never", [free.prompt_ids], max_new_tokens=last + 1, stop=[words[last]])[0]
    assert (rollout.finish_reason, rollout.stop, len(rollout.output_ids)) == ("stop", words[last], last + 1)
    assert rollout.text == " ".join(words[:last]) + " "


def test_a_stop_string_in_the_prompt_is_no_ending() -> None:
    free = free_texts("never", "target")[0]
    prompt = decode_text(pair().tokenizer, free.prompt_ids)
    stop = next(word for word in prompt.split(" ") if word not in free.text)
    rollout = decode(pair(), "never", [free.prompt_ids], num_draft_tokens=4, max_new_tokens=CAP, stop=[stop])[0]
    assert (rollout.output_ids, rollout.finish_reason) == (free.output_ids, "length")


@pytest.mark.parametrize("stop", ["", "a\ufffd", "</s>"])
def test_stop_strings_that_no_text_holds_are_refused_before_anything_runs(stop: str) -> None:
    with pytest.raises(ValueError, match="stop string"):
        Engine(pair(), rule_named("never"), stop=["w9", stop])
    with pytest.raises(ValueError, match="stop string"):
        Engine(pair(), rule_named("never")).rollouts([Request(1, [5], stop=(stop,))])


def test_records_without_stop_strings_of_earlier_versions_are_read() -> None:
    free = free_texts("never", "target")[0]
    row = free.to_json()
    del row["stop"], row["settings"]["stop"]
    assert rollout_from_json(row) == free


@pytest.mark.parametrize("k", [3, 16])
def test_nothing_is_drafted_behind_an_end(k: int) -> None:
    prompts = random_prompts(3, 9, 5, 14)
    ends = late_ids([rollout.output_ids for rollout in decode(pair(), "target", prompts, max_new_tokens=24)])
    for prompt in prompts:
        passes = []
        handle = pair().draft.register_forward_hook(lambda *called: passes.append(1))  # noqa: B023
        try:
            (rollout,) = decode(pair(), "strict", [prompt], num_draft_tokens=k, max_new_tokens=24, eos_token_ids=ends)
        finally:
            handle.remove()
        assert len(passes) == rollout.num_drafted
