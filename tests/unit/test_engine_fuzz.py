"""Engines and requests of all sorts: never a wrong id, never a crash, and what is refused is named.

Greedy texts are held to transformers' own generate, to the uncached reference or, for what neither has, to the same
request alone; sampled ones to the same request alone.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from conftest import EOS, VOCAB_SIZE, family_pair, pair_of, perturbed, random_prompts, tiny_config, tiny_model
from engine_checks import CoinRule, assert_counters, coin, decode, outputs, trace
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from reference import Uncached, generated, reference_rollout
from test_text import byte_level

from cospec.engine.decode import Engine
from cospec.engine.record import Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import RULES, Rule, rule_named
from cospec.engine.text import cut_at_stop, decode_text
from cospec.pair import Pair

#: What rules say of their settings is tested by itself.
pytestmark = pytest.mark.filterwarnings("ignore:rule '")

TARGET_RULES = ("target", "strict", "never")
RELAXED = [info.name for info in RULES.values() if info.make and info.parameters]
KEEPS: dict[str, Callable[[int, int], bool]] = {"always": lambda start, position: True, "coin": coin}
MAX_NEW = 14


@functools.cache
def pair_named(name: str) -> Pair:
    """Words, words with a draft of a shorter context, and single bytes, whose texts are mostly no UTF-8."""
    if name == "bytes":
        tokenizer = byte_level()
        shape = {"vocab_size": len(tokenizer), "max_position_embeddings": 48}
        target, draft = (tiny_model(tiny_config("qwen3", **shape), seed=4) for _ in range(2))
        return pair_of(perturbed(draft, 5, 0.02), target, len(tokenizer), tokenizer=tokenizer)
    limits = (40, 40) if name == "words" else (40, 24)
    target, draft = (tiny_model(tiny_config("llama", max_position_embeddings=limit), seed=1) for limit in limits)
    return pair_of(perturbed(draft, 2, 0.02), target)


@functools.cache
def uncached(name: str) -> tuple[Uncached, Uncached]:
    pair = pair_named(name)
    return Uncached(pair.draft, pair.vocab_size), Uncached(pair.target, pair.vocab_size)


@functools.cache
def target_text(name: str, prompt: tuple[int, ...], num: int, eos: tuple[int, ...], penalty: float) -> list[int]:
    options = {} if penalty == 1.0 else {"repetition_penalty": penalty}
    return generated(pair_named(name).target, prompt, num, eos, **options)


@dataclass(frozen=True)
class Case:
    """An engine and its requests; ``flaw`` is what its refusal must name, None where all must be decoded."""

    pair: str
    rule: str
    engine: dict[str, Any]
    requests: list[dict[str, Any]]
    flaw: str | None

    def rollouts(self) -> list[Rollout]:
        engine, asked = self.run()
        return engine.rollouts(asked)

    def run(self) -> tuple[Engine, list[Request]]:
        rule: Rule = CoinRule() if self.rule == "coin" else rule_named(self.rule)
        engine = Engine(pair_named(self.pair), rule, **with_sampling(self.engine))
        return engine, [Request(**with_sampling(request)) for request in self.requests]


def with_sampling(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a ``sampling`` as one, which refuses bad ones."""
    found = dict(values)
    if found.get("sampling") is not None:
        found["sampling"] = Sampling(**found["sampling"])
    return found


# ---- what there is to choose from ------------------------------------------------------------------------------------

OFTEN_GREEDY = st.sampled_from([0.0, 0.0, 0.0, 1e-10, 1e-3, 0.7, 1.0, 3.0, 1e10])
SAMPLINGS = st.fixed_dictionaries(
    {"temperature": OFTEN_GREEDY},
    optional={
        "top_k": st.sampled_from([0, 1, 5, VOCAB_SIZE, 2**70]),
        "top_p": st.sampled_from([5e-324, 1e-40, 0.3, 0.95, 1.0]),
        "min_p": st.sampled_from([0.0, 5e-324, 0.1, 1.0]),
        "repetition_penalty": st.sampled_from([1.0, 0.7, 1.3, 8.0, 1e-10, 1e10]),
    },
)
SEEDS = st.one_of(st.integers(0, 3), st.integers())
IDS = st.one_of(st.integers(), st.text(st.characters(), max_size=4))
#: Strings that occur in the texts, and strings that only Unicode makes.
STOPS = st.one_of(
    st.integers(7, VOCAB_SIZE - 1).map(lambda number: f"w{number}"),
    st.sampled_from("0123456789 eo"),
    st.sampled_from(
        ["w1", " w2", "3 w", "8 ", "Ġ", "a", "T", "\\", "\x00", "é", "e\u0301", "你", "\u200d", "🇩🇪", "\n\n"]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd<"), min_size=1, max_size=3),
)
STOP_LISTS = st.lists(STOPS, max_size=3)


def engines(vocab_size: int) -> st.SearchStrategy[dict[str, Any]]:
    """Settings that work, each there or left out."""
    token = st.integers(0, vocab_size - 1)
    return st.fixed_dictionaries(
        {"max_new_tokens": st.sampled_from([MAX_NEW, 9, 5, 2, 1]), "batch_size": st.sampled_from([1, 2, 3, 7, 2**70])},
        optional={
            "num_draft_tokens": st.sampled_from([1, 2, 3, 4, 6, 11, 50, 2**40]),
            "bonus": st.sampled_from([None, "arbitrated", "target"]),
            "sampling": st.one_of(st.none(), SAMPLINGS),
            "eos_token_ids": st.one_of(st.lists(token, max_size=3), st.lists(token, min_size=6, max_size=12)),
            "stop": STOP_LISTS,
            "seed": SEEDS,
            "cost_ratio": st.sampled_from([None, None, 5e-324, 0.05, 0.4, 1.0, 1e308]),
            "prefill_chunk": st.sampled_from([1, 2, 3, 8, 512, 2**70]),
        },
    )


def requests(vocab_size: int, context: int) -> st.SearchStrategy[dict[str, Any]]:
    token = st.integers(0, vocab_size - 1)
    short = st.lists(token, min_size=1, max_size=8)
    # Up to the last place of the context; one token again and again, as hypothesis draws no long lists.
    long = st.tuples(short, token, st.integers(1, context - 1)).map(lambda t: [*t[0], *[t[1]] * context][: t[2]])
    return st.fixed_dictionaries(
        {"id": IDS, "prompt_ids": st.one_of(short, long)},
        optional={
            "max_new_tokens": st.sampled_from([None, 1, 3, 8, 2**70]),
            "stop": STOP_LISTS.map(tuple),
            "sampling": st.one_of(st.none(), SAMPLINGS),
            "seed": st.one_of(st.none(), SEEDS),
        },
    )


BAD_STOPS = [[""], ["w9", ""], ["\ufffd"], ["a\ufffd"], ["\ud800"], "w9", ""]
BAD_SAMPLINGS: dict[str, list[Any]] = {
    "temperature": [-1.0, 1e-40, 5e-324, 1e300, float("inf"), float("nan")],
    "top_k": [-1, -(2**70)],
    "top_p": [0.0, -0.5, 1.0001, float("nan")],
    "min_p": [-0.1, 1.01, float("nan")],
    "repetition_penalty": [0.0, -1.0, 1e-40, 1e300, float("inf"), float("nan")],
}
#: (where, setting, values, what the message must hold)
FLAWS: list[tuple[str, str, list[Any], str]] = [
    *(("engine", name, [0, -1, -(2**70)], name) for name in ("num_draft_tokens", "batch_size", "prefill_chunk")),
    ("engine", "max_new_tokens", [0, -7], "max_new_tokens"),
    ("engine", "cost_ratio", [0.0, -1.0, float("nan"), float("inf")], "cost_ratio"),
    ("engine", "bonus", ["both", "", 1], "bonus"),
    ("engine", "compile_mode", ["graphs", "fast"], "compile mode"),
    ("engine", "eos_token_ids", [[-1], [3, 10**4], [2**70]], "eos_token_ids"),
    ("engine", "stop", [*BAD_STOPS[:-1], ["w1 </s>", "<end>"]], "stop"),
    ("request", "stop", [*map(tuple, BAD_STOPS[:-2]), "w9"], "stop"),
    ("request", "max_new_tokens", [0, -1], "max_new_tokens"),
    ("request", "prompt_ids", [[]], "is empty"),
    ("request", "prompt_ids", [[5] * 48, [5] * 10**4], "context holds"),
    ("request", "prompt_ids", [[-1], [5, 10**4], [2**70], [-(2**70), 5]], "token id"),
    *(("sampling", name, values, name) for name, values in BAD_SAMPLINGS.items()),
]


def suit(rule: Rule, engine: dict[str, Any], asked: Sequence[dict[str, Any]]) -> None:
    """The rule's own bonus for every other seed, and no greedy request where it refuses them."""
    if rule.has_own_bonus and engine.get("seed", 1) % 2:
        engine["bonus"] = "rule"
    if rule.greedy == "refused":
        engine.setdefault("sampling", None)
        for values in (engine, *asked):
            if "sampling" in values and (values is engine or values["sampling"]):
                sampling = values["sampling"] or {"temperature": 0.0}
                values["sampling"] = sampling | {"temperature": sampling["temperature"] or 0.7}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(["words", "short draft", "bytes"]))
    pair = pair_named(name)
    rule = draw(st.one_of(st.sampled_from([*TARGET_RULES, *KEEPS]), st.sampled_from(RELAXED)))
    engine = draw(engines(pair.vocab_size))
    asked = draw(st.lists(requests(pair.vocab_size, pair.target_context), min_size=1, max_size=5))
    if rule in RELAXED:
        suit(rule_named(rule), engine, asked)
    flaw = None
    if draw(st.integers(0, 3)) == 3:
        where, setting, values, flaw = draw(st.sampled_from(FLAWS))
        value = draw(st.sampled_from(values))
        place = (
            engine if where == "engine" else draw(st.sampled_from([*asked, engine] if where == "sampling" else asked))
        )
        place[setting if where != "sampling" else "sampling"] = value if where != "sampling" else {setting: value}
    return Case(name, rule, engine, asked, flaw)


# ---- what must hold --------------------------------------------------------------------------------------------------


def greedy_ids(case: Case, rollout: Rollout) -> list[int] | None:
    """The ids by another way than the engine's, stop strings aside; None for what only the engine can do."""
    found, prompt, pair = rollout.settings, rollout.prompt_ids, pair_named(case.pair)
    room = min(found.max_new_tokens, pair.target_context - len(prompt))
    if case.rule in RELAXED:
        return None
    # Beyond what float32 tells apart, a penalty makes ties.
    if not found.sampling.greedy or not 0.01 < found.sampling.repetition_penalty < 100:
        return None
    if case.rule in TARGET_RULES:
        return target_text(case.pair, prompt, room, found.eos_token_ids, found.sampling.repetition_penalty)
    if found.cost_ratio is not None or found.sampling.repetition_penalty != 1.0:
        return None
    return reference_rollout(
        *uncached(case.pair),
        prompt,
        KEEPS[case.rule],
        k=found.num_draft_tokens,
        bonus=found.bonus,
        max_new_tokens=room,
        eos=found.eos_token_ids,
        draft_context=pair.draft_context,
        target_context=pair.target_context,
    ).output_ids


def ended(case: Case, rollout: Rollout, ids: Sequence[int]) -> tuple[tuple[int, ...], str, str]:
    """Ids, text and reason of a text that runs on as ``ids``: cut at the first stop string to be complete."""
    found, tokenizer = rollout.settings, pair_named(case.pair).tokenizer
    for count in range(1, len(ids) + 1):
        if ids[count - 1] in found.eos_token_ids:
            return tuple(ids[:count]), decode_text(tokenizer, ids[: count - 1]), "eos"
        text = decode_text(tokenizer, ids[:count])
        if any(stop in text for stop in found.stop):
            return tuple(ids[:count]), cut_at_stop(text, found.stop), "stop"
    return tuple(ids), decode_text(tokenizer, ids), "length"


def check(case: Case, seen: Counter[str]) -> None:
    if case.flaw is not None:
        with pytest.raises(ValueError, match=case.flaw):
            case.rollouts()
        seen["refused"] += 1
        return
    engine, asked = case.run()
    found = engine.rollouts(asked)
    assert [rollout.id for rollout in found] == [request.id for request in asked]
    pieces = dict.fromkeys(range(len(asked)), "")
    for index, event in engine.stream(asked):
        pieces[index] += event if isinstance(event, str) else ""
    single, _ = Case(case.pair, case.rule, case.engine | {"batch_size": 1, "prefill_chunk": 512}, [], None).run()
    for index, (request, rollout) in enumerate(zip(asked, found, strict=True)):
        assert trace(rollout) == trace(single.rollouts([request])[0])
        assert pieces[index] == rollout.text
        assert_counters(rollout)
        ids = greedy_ids(case, rollout)
        if ids is not None:
            assert (rollout.output_ids, rollout.text, rollout.finish_reason) == ended(case, rollout, ids)
            seen[f"by {'the target' if case.rule in TARGET_RULES else 'the reference'}"] += 1
        seen[rollout.finish_reason] += 1


def fuzz(num_examples: int) -> Counter[str]:
    """Check that many cases; what they came to, counted."""
    seen: Counter[str] = Counter()

    # Cases are large and models slow, which says nothing of either.
    @settings(
        max_examples=num_examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(cases())
    def every(case: Case) -> None:
        seen["cases"] += 1
        check(case, seen)

    every()
    print(f"\n{dict(seen)}")
    assert {"refused", "eos", "stop", "length", "by the target", "by the reference"} <= set(seen), "too much alike"
    return seen


def test_eighty_engines_and_their_requests() -> None:
    fuzz(80)


@pytest.mark.slow
def test_two_thousand_engines_and_their_requests() -> None:
    seen = fuzz(2000)
    assert seen["refused"] > 100
    assert seen["by the target"] > 400


@pytest.mark.parametrize("flaw", FLAWS, ids=lambda flaw: f"{flaw[0]} {flaw[1]}")
@pytest.mark.parametrize("name", ["words", "bytes"])
def test_every_flaw_is_named(name: str, flaw: tuple[str, str, list[Any], str]) -> None:
    where, setting, values, message = flaw
    for value in values:
        changed = {"sampling": {setting: value}} if where == "sampling" else {setting: value}
        for place in ("engine", "request") if where == "sampling" else (where,):
            request = {"id": 0, "prompt_ids": [5]} | (changed if place == "request" else {})
            check(Case(name, "strict", changed if place == "engine" else {}, [request], message), Counter())


# ---- what it has found -----------------------------------------------------------------------------------------------


def test_a_tiny_top_p_or_temperature_writes_the_greedy_text() -> None:
    prompts, pair = random_prompts(3, 7, 12), family_pair("llama", "sdpa")
    greedy = outputs(decode(pair, "strict", prompts, max_new_tokens=9))
    for sampling in (Sampling(1.0, top_p=1e-50), Sampling(5.0, top_p=5e-324), Sampling(1e-10), Sampling(1e-10, 3, 0.5)):
        for rule in ("strict", "target", "never"):
            assert outputs(decode(pair, rule, prompts, max_new_tokens=9, sampling=sampling)) == greedy


@pytest.mark.parametrize(
    "sampling", [Sampling(1e-10, repetition_penalty=1e-10), Sampling(1e10, repetition_penalty=1e10)]
)
def test_the_most_extreme_values_have_finite_rows(sampling: Sampling) -> None:
    pair, prompts = family_pair("llama", "sdpa"), random_prompts(3, 7, 12)
    texts = outputs(decode(pair, "target", prompts, max_new_tokens=30, sampling=sampling))
    if sampling.temperature < 1:
        penalty = Sampling(repetition_penalty=sampling.repetition_penalty)
        assert texts == outputs(decode(pair, "target", prompts, max_new_tokens=30, sampling=penalty))
    else:
        assert len({token for text in texts for token in text}) > VOCAB_SIZE / 2


def test_an_ending_id_that_no_text_holds_is_refused_unless_it_is_the_pairs_own() -> None:
    pair = family_pair("llama", "sdpa")
    with pytest.raises(ValueError, match=f"eos_token_ids holds {VOCAB_SIZE}, outside the pair's {VOCAB_SIZE} ids"):
        Engine(pair, rule_named("strict"), eos_token_ids=[EOS, VOCAB_SIZE])
    own = pair_of(pair.draft, pair.target, eos_token_ids=(EOS, VOCAB_SIZE))
    for given_ids in (None, own.eos_token_ids):
        assert Engine(own, rule_named("strict"), eos_token_ids=given_ids).settings.eos_token_ids == (EOS, VOCAB_SIZE)


def test_one_string_for_the_list_of_stop_strings_does_not_end_texts_at_its_characters() -> None:
    pair = family_pair("llama", "sdpa")
    with pytest.raises(ValueError, match="stop is the one string 'w9'"):
        Engine(pair, rule_named("strict"), stop="w9")
    with pytest.raises(ValueError, match="stop is the one string 'w9'"):
        Engine(pair, rule_named("strict")).rollouts([Request(0, [5], stop="w9")])  # type: ignore[arg-type]


def test_blocks_longer_than_any_text_take_no_memory() -> None:
    pair, prompts = family_pair("llama", "sdpa"), random_prompts(3, 7)
    found = [outputs(decode(pair, "always", prompts, max_new_tokens=9, num_draft_tokens=k)) for k in (9, 10**15)]
    assert found[0] == found[1]
