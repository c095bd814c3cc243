"""What may be changed around a request without changing it: same ids, blocks and text in float32.

Order, batch size and longer neighbours under fixed settings are in test_engine_exactness.py, block lengths in
test_block_length.py, recorded and compiled passes of the plain rules in test_compiled.py.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from conftest import CONTEXT, EOS, VOCAB_SIZE, family_pair, pair_of, perturbed, random_prompts, tiny_config, tiny_model
from engine_checks import CoinRule, decode, outputs, trace
from test_arbiter import live_arbiter
from test_compiled import FixedInputs

from cospec.arbiter.model import ArbiterScorer
from cospec.engine.compiled import RecordedPasses
from cospec.engine.decode import Engine
from cospec.engine.record import Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, Rule, rule_named
from cospec.pair import Pair

NUM_NEW = 14
NUM_REQUESTS = 10
RULES = ("target", "strict", "never", "always", "coin", "arbiter-shared", "arbiter-own")


@functools.cache
def pair() -> Pair:
    return family_pair("llama", "sdpa")


def rule_of(name: str) -> Rule:
    if name == "coin":
        return CoinRule()
    if name.startswith("arbiter"):
        mode = "own" if name.endswith("own") else "shared"
        return ArbiterRule(ArbiterScorer(live_arbiter(pair().draft, mode), EOS))
    return rule_named(name)


def engine_of(rule: Rule | str, **changes: Any) -> Engine:
    """Two end ids and a stop string of its own, so that rows end at all times and places are refilled."""
    settings = {"num_draft_tokens": 3, "max_new_tokens": NUM_NEW, "batch_size": 4, "stop": ["w9 w1"]}
    rule = rule_of(rule) if isinstance(rule, str) else rule
    return Engine(pair(), rule, **(settings | {"eos_token_ids": [EOS, 31]} | changes))


@functools.cache
def mixed_requests() -> tuple[Request, ...]:
    """Every other one greedy; caps, stop strings, penalties and seeds by turns."""
    prompts = random_prompts(1, 4, 9, 2, 17, 6, 30, 3, 12, 5, seed=11)
    samplings = [None, Sampling(0.9, 12, 0.95), Sampling(repetition_penalty=1.4), Sampling(1.3, min_p=0.1)]
    stops = [(), ("w3",), ("w2 ", "1 w"), (" ",)]
    return tuple(
        Request(f"r{i}", tuple(prompt), [None, 5, 11][i % 3], stops[i % 4], samplings[i % 4], [None, 7][i % 2])
        for i, prompt in enumerate(prompts)
    )


@functools.cache
def singles(rule: str) -> dict[str | int, dict[str, Any]]:
    """What each request gives alone, by its id."""
    engine = engine_of(rule, batch_size=1)
    found = {request.id: trace(engine.rollouts([request])[0]) for request in mixed_requests()}
    assert {"eos", "stop", "length"} == {each["finish_reason"] for each in found.values()}
    return found


def assert_as_alone(rule: str, rollouts: Sequence[Rollout]) -> None:
    for rollout in rollouts:
        assert trace(rollout) == singles(rule)[rollout.id]


def streamed(engine: Engine, requests: Sequence[Request]) -> list[Rollout]:
    return [event for _, event in engine.stream(requests) if isinstance(event, Rollout)]


@pytest.mark.parametrize("rule", RULES)
def test_neither_order_nor_company_changes_a_request(rule: str) -> None:
    requests, generator = mixed_requests(), random.Random(3)
    for batch_size in (2, 3, 64):
        order = generator.sample(requests, len(requests))
        found = engine_of(rule, batch_size=batch_size).rollouts(order)
        assert [rollout.id for rollout in found] == [request.id for request in order]
        assert_as_alone(rule, found)
        # Split in two, on one engine, the second part read along.
        cut, engine = generator.randrange(1, len(order)), engine_of(rule, batch_size=batch_size)
        parts = [*engine.rollouts(order[:cut]), *streamed(engine, order[cut:])]
        assert len(parts) == len(order)
        assert_as_alone(rule, parts)


@pytest.mark.parametrize("rule", RULES)
def test_runs_that_take_turns_give_what_each_gives_alone(rule: str) -> None:
    """On one engine, and on two that share a rule."""
    one = engine_of(rule, batch_size=2)
    two = engine_of(one.rule, batch_size=3)
    halves = mixed_requests()[:6], mixed_requests()[6:]
    for engines in ((one, one), (one, two)):
        runs = [engine.stream(half) for engine, half in zip(engines, halves, strict=True)]
        found: list[Rollout] = []
        while runs:
            for run in list(runs):
                event = next(run, None)
                if event is None:
                    runs.remove(run)
                elif isinstance(event[1], Rollout):
                    found.append(event[1])
        assert len(found) == len(mixed_requests())
        assert_as_alone(rule, found)


@pytest.mark.parametrize("rule", RULES)
def test_neighbours_that_need_far_larger_buffers_change_nothing(rule: str) -> None:
    """Each request's own cap is below the engine's, which only its neighbours use up to the context's last place."""
    requests = [
        dataclasses.replace(request, max_new_tokens=request.max_new_tokens or NUM_NEW) for request in mixed_requests()
    ]
    neighbours = [
        Request("wide", (7,) * (CONTEXT - 1), sampling=Sampling(2.0, repetition_penalty=3.0)),
        Request("long", (9, 8), CONTEXT, sampling=Sampling(2.0)),
        Request("short", (5,), 1),
    ]
    crowd = [neighbours[0], *requests[:4], neighbours[1], *requests[4:], neighbours[2]]
    found = engine_of(rule, max_new_tokens=4 * CONTEXT, batch_size=5).rollouts(crowd)
    ours = [rollout for rollout in found if str(rollout.id).startswith("r")]
    assert len(ours) == NUM_REQUESTS
    assert_as_alone(rule, ours)


@pytest.mark.parametrize("rule", RULES)
def test_prompts_are_read_alike_in_chunks_of_any_length(rule: str) -> None:
    for chunk in (1, 2, 7, 16, CONTEXT):
        assert_as_alone(rule, engine_of(rule, prefill_chunk=chunk).rollouts(mixed_requests()))


@pytest.mark.parametrize("rule", ["never", "coin", "arbiter-shared", "arbiter-own"])
def test_chunks_and_company_change_nothing_beyond_a_short_draft_context(rule: str) -> None:
    draft = perturbed(tiny_model(tiny_config("llama", max_position_embeddings=20), seed=1), seed=2, scale=0.02)
    short = pair_of(draft, pair().target)
    prompts = random_prompts(1, 9, 18, 19, 20, 21, 40, seed=6)
    if rule.startswith("arbiter"):
        mode = "own" if rule.endswith("own") else "shared"
        chosen: Rule = ArbiterRule(ArbiterScorer(live_arbiter(draft, mode), EOS))
    else:
        chosen = rule_of(rule)
    requests = [Request(i, prompt) for i, prompt in enumerate(prompts)]
    settings: dict[str, Any] = {"max_new_tokens": NUM_NEW, "num_draft_tokens": 3}
    alone = [trace(Engine(short, chosen, batch_size=1, **settings).rollouts([request])[0]) for request in requests]
    for batch_size, chunk in ((2, 1), (3, 5), (7, 64)):
        engine = Engine(short, chosen, batch_size=batch_size, prefill_chunk=chunk, **settings)
        assert [trace(rollout) for rollout in engine.rollouts(requests)] == alone
        backwards = engine.rollouts(requests[::-1])
        assert [trace(rollout) for rollout in backwards] == alone[::-1]


@pytest.mark.parametrize("rule", RULES)
def test_recorded_passes_serve_mixed_requests_and_arbiters(rule: str) -> None:
    for batch_size in (1, 4):
        engine, FixedInputs.made = engine_of(rule, batch_size=batch_size), []
        engine._pass = RecordedPasses(FixedInputs)
        assert_as_alone(rule, engine.rollouts(mixed_requests()))
        # A request alone is too short for a shape to come back often, one refilled batch of ten is not.
        assert FixedInputs.made or batch_size == 1


@pytest.mark.parametrize("rule", ["target", "strict", "never"])
def test_a_greedy_text_goes_on_where_it_was_cut(rule: str) -> None:
    """The prompt and the first tokens of its text, as a prompt, give the rest, whatever the block it is cut in."""
    prompts = random_prompts(1, 6, 15, seed=5)
    for sampling in (Sampling(), Sampling(repetition_penalty=1.3)):
        settings: dict[str, Any] = {"num_draft_tokens": 4, "batch_size": 8, "sampling": sampling}
        whole = outputs(decode(pair(), rule, prompts, max_new_tokens=NUM_NEW, **settings))
        for cut in range(1, NUM_NEW):
            started = [[*prompt, *text[:cut]] for prompt, text in zip(prompts, whole, strict=True)]
            rest = decode(pair(), rule, started, max_new_tokens=NUM_NEW - cut, **settings)
            assert outputs(rest) == [text[cut:] for text in whole]


@pytest.mark.parametrize("rule", ["target", "strict", "never"])
@pytest.mark.parametrize("bonus", ["arbitrated", "target"])
def test_no_block_length_changes_a_greedy_text_of_the_target(rule: str, bonus: str) -> None:
    requests = [request for request in mixed_requests() if request.sampling is None or request.sampling.greedy]
    assert len(requests) > 3
    for length, cost in ((1, None), (2, None), (9, None), (40, None), (CONTEXT * 1000, None), (12, 0.1), (12, 0.9)):
        engine = engine_of(rule, num_draft_tokens=length, cost_ratio=cost, bonus=bonus)
        for rollout in engine.rollouts(requests):
            alone = singles(rule)[rollout.id]
            for name in ("output_ids", "text", "finish_reason", "stop"):
                assert getattr(rollout, name) == alone[name]


@pytest.mark.parametrize("rule", ["strict", "always", "arbiter-shared"])
def test_neither_name_nor_seed_changes_a_greedy_text(rule: str) -> None:
    prompts = random_prompts(3, 8, 5, seed=2)
    texts = [
        outputs(engine_of(rule, seed=seed).rollouts([Request((name, i)[i % 2], p) for i, p in enumerate(prompts)]))
        for seed, name in ((0, "a"), (5, "\ud800 é"), (-(2**70), ""))
    ]
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("rule", RULES)
def test_endings_that_never_come_change_nothing(rule: str) -> None:
    prompts = random_prompts(3, 8, 5, seed=2)
    plain = decode(pair(), rule_of(rule), prompts, num_draft_tokens=3, max_new_tokens=NUM_NEW)
    # Ids that neither model ever proposes, strings that no word holds.
    seen = {token for rollout in plain for block in rollout.blocks for token in (*block.draft_ids, *block.emitted_ids)}
    strangers = [token for token in range(VOCAB_SIZE) if token not in seen]
    assert len(strangers) > 3
    ends = {"eos_token_ids": strangers, "stop": ["never", "w\n", "  "]}
    found = decode(pair(), rule_of(rule), prompts, num_draft_tokens=3, max_new_tokens=NUM_NEW, **ends)
    assert [trace(rollout)["blocks"] for rollout in found] == [trace(rollout)["blocks"] for rollout in plain]
    assert [rollout.text for rollout in found] == [rollout.text for rollout in plain]
