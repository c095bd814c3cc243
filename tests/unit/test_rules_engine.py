"""Relaxed rules in the engine: batches, endings, counters, strict points draw for draw, and temperature 0."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from conftest import EOS, VOCAB_SIZE, family_pair, random_prompts
from engine_checks import assert_counters, decode, outputs, trace
from reference import Uncached
from torch import Tensor

from cospec.engine.decode import Engine
from cospec.engine.drafters import drafter_named
from cospec.engine.metrics import acceptance
from cospec.engine.record import Bonus, Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import RULES, RoundView, Rule, Verdict, rule_named
from cospec.pair import Pair
from cospec.rewards.span import accepted_span

SAMPLED = Sampling(0.9, 12, 0.95)
NUM_NEW = 8
DEFAULTS = [info.name for info in RULES.values() if info.make and info.parameters]
#: Every rule, and variants that take other paths.
SPECS = [
    *DEFAULTS,
    "mentored:form=optimal",
    "contrastive:alpha=0.1",
    "r_fuzzy:rows=raw,threshold=0.02",
    "fuzzy:threshold=0.02",
    "cascade_opt:rows=processed",
    "fly:window=1,theta=0.1",
    "fly:window=1,theta=0.1,variant=code",
    "fly:window=0,theta=0.1,variant=vllm",
    "trt_relaxed:begin=7,end=9,delta=0.05",
]


@functools.cache
def pair() -> Pair:
    return family_pair("llama", "sdpa")


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What rules say of their settings is tested by itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="rule '")
        yield


def works_greedily(spec: str) -> bool:
    return rule_named(spec).greedy != "refused"


def requests_for(spec: str) -> list[Request]:
    """Caps, stop strings, penalties and seeds by turns; every third one greedy where the rule goes with it."""
    samplings = [SAMPLED, Sampling(1.3, min_p=0.1, repetition_penalty=1.4), Sampling(repetition_penalty=1.2)]
    prompts = random_prompts(1, 4, 9, 2, 17, seed=11)
    found = [
        Request(f"r{i}", tuple(prompt), [None, 5][i % 2], [(), ("w3",)][i // 2 % 2], samplings[i % 3], [None, 7][i % 2])
        for i, prompt in enumerate(prompts)
    ]
    return found if works_greedily(spec) else [request for request in found if request.sampling != samplings[2]]


def engine_of(spec: str, **changes: Any) -> Engine:
    settings = {"num_draft_tokens": 3, "max_new_tokens": NUM_NEW, "batch_size": 4, "sampling": SAMPLED}
    return Engine(pair(), rule_named(spec), **(settings | {"eos_token_ids": [EOS, 31]} | changes))


#: Each rule with its usual bonus, and each way of a bonus with some rule of its kind.
CASES: list[tuple[str, Bonus | None]] = [
    *((spec, None) for spec in SPECS),
    ("ensemble", "rule"),
    ("cascade_v1", "rule"),
    ("mentored", "rule"),
    ("fuzzy", "rule"),
    ("trt_relaxed", "target"),
    ("cactus", "arbitrated"),
    ("fly:window=1,theta=0.1", "arbitrated"),
]


@pytest.mark.parametrize(("spec", "bonus"), CASES)
def test_a_batch_equals_its_requests_alone(spec: str, bonus: Bonus | None) -> None:
    requests = requests_for(spec)
    alone = [trace(engine_of(spec, bonus=bonus).rollouts([request])[0]) for request in requests]
    found = engine_of(spec, bonus=bonus, batch_size=3).rollouts(requests[::-1])
    assert [trace(rollout) for rollout in found] == alone[::-1]
    for rollout in found:
        assert_counters(rollout)
        assert rollout.settings.rule == rule_named(spec).spec
        written = [len(block.emitted_ids) - block.accepted_len for block in rollout.blocks[:-1]]
        if bonus != "arbitrated":
            # Group 13: all but a text's last round commit one token more than was accepted.
            assert written == [1] * len(written)


STRICT_POINTS = [info.strict_point for info in RULES.values() if info.make and info.strict_point and info.parameters]


@pytest.mark.parametrize("spec", STRICT_POINTS)
def test_at_its_strict_point_a_rule_is_strict_token_for_token(spec: str) -> None:
    """Group 4, on shared draws: blocks, decisions and texts, whichever bonus."""
    requests = [request for request in requests_for(spec) if request.sampling and not request.sampling.greedy]

    def blocks(rollouts: list[Rollout]) -> list[Any]:
        return [
            [
                (b.draft_ids, b.target_ids, b.accepted_len, b.emitted_ids, [d.position for d in b.decisions])
                for b in r.blocks
            ]
            for r in rollouts
        ]

    strict = blocks(engine_of("strict").rollouts(requests))
    assert any(0 < accepted < 3 for rollout in strict for _, _, accepted, _, _ in rollout)
    for bonus in ("target", "rule") if rule_named(spec).has_own_bonus else ("target",):
        assert blocks(engine_of(spec, bonus=bonus).rollouts(requests)) == strict


def test_relaxed_rules_are_relaxed_and_v3_at_alpha_0_is_not_strict() -> None:
    """Group 4, negative, and a check that the strict points above do not hold by themselves."""
    requests = requests_for("strict")[:2]
    strict = outputs(engine_of("strict").rollouts(requests))
    for spec in ("cactus", "lenience", "ensemble:weight=0.5", "mentored", "cascade_v3:alpha=0", "fuzzy:threshold=0"):
        assert outputs(engine_of(spec).rollouts(requests)) != strict, spec


@pytest.mark.parametrize("spec", SPECS)
def test_where_no_text_may_be_drafted_for_the_target_writes_alone(spec: str) -> None:
    """All texts are at the end of the draft's context, in the first round or after some."""
    short = dataclasses.replace(pair(), draft_context=24)
    prompts = random_prompts(30, 24, 23, seed=4)
    for bonus in ("rule", "target", "arbitrated"):
        if bonus == "rule" and not rule_named(spec).has_own_bonus:
            continue
        settings = {"max_new_tokens": 5, "batch_size": 2, "sampling": SAMPLED, "bonus": bonus}
        for rollout in decode(short, spec, prompts, **settings):
            assert_counters(rollout)
            assert not rollout.blocks[-1].draft_ids
            assert len(rollout.output_ids) == 5


# ---- what is written and counted ---------------------------------------------------------------------------------


def test_a_rejected_match_is_no_decision_and_the_rules_own_token_is_written() -> None:
    """Typical rejects what the coupling matched but is not likely enough, and writes the target's likeliest token."""
    sampling, target = Sampling(1.5), Uncached(pair().target, VOCAB_SIZE)
    rollouts = decode(
        pair(), "typical:epsilon=1,delta=1", random_prompts(3, 8, 5, 6, seed=2), max_new_tokens=20, sampling=sampling
    )
    found = 0
    for rollout in rollouts:
        assert_counters(rollout)
        assert 0 <= accepted_span(rollout) <= 1
        text = [*rollout.prompt_ids, *rollout.output_ids]
        for block in rollout.blocks:
            place = block.accepted_len
            if place == len(block.draft_ids) or len(block.emitted_ids) == place:
                continue
            best = target.choice(text[: block.start + place])
            assert block.emitted_ids[place] == best
            if block.draft_ids[place] == block.target_ids[place]:
                assert all(decision.position < place for decision in block.decisions)
                assert best != block.target_ids[place]
                found += 1
    assert found > 3
    sums = acceptance(rollouts)
    assert sums.num_kept <= sums.num_mismatches
    assert sums.num_tokens == sum(len(rollout.output_ids) for rollout in rollouts)


def test_a_kept_mismatch_stays_a_mismatch_of_the_record() -> None:
    rollouts = engine_of("ensemble:weight=0").rollouts(requests_for("ensemble")[:2])
    decisions = [decision for rollout in rollouts for decision in rollout.decisions]
    assert decisions
    assert all(decision.kept and decision.draft_id != decision.target_id for decision in decisions)
    assert acceptance(rollouts).keep_rate == 1


class Peek(Rule):
    """A rule that shows what it is shown."""

    name = "peek"

    def __init__(self, inner: Rule) -> None:
        self.inner, self.default_bonus, self.seen = inner, inner.default_bonus, list[RoundView]()

    @property
    def needs_draft_logits(self) -> bool:
        return self.inner.needs_draft_logits

    def decide(self, view: RoundView) -> Verdict:
        self.seen.append(view)
        return self.inner.decide(view)


def test_the_drafters_logits_are_kept_only_for_rules_that_read_them() -> None:
    for spec, kept in (("strict", False), ("cactus", False), ("cascade_v3", False), ("cascade_opt", True)):
        rule = Peek(rule_named(spec))
        Engine(pair(), rule, sampling=SAMPLED, max_new_tokens=6).rollouts(requests_for(spec)[:1])
        assert all((view.rows.draft.logits is not None) == kept for view in rule.seen)


def draft_passes(spec: str, bonus: Bonus | None = None) -> tuple[int, int, float]:
    """Passes of the draft, rounds, and the seconds that were counted as drafting."""
    num = 0

    def count(*ignored: Any) -> None:
        nonlocal num
        num += 1

    hook = pair().draft.register_forward_hook(count)
    engine = engine_of(spec, bonus=bonus, eos_token_ids=[])
    rollout = engine.rollouts([Request(0, [5, 6, 7, 8], NUM_NEW)])[0]
    hook.remove()
    return num, rollout.num_rounds, engine.clock.draft_s


def test_the_rules_own_bonus_takes_one_more_draft_pass_a_round() -> None:
    for spec in ("contrastive", "ensemble"):
        num, rounds, seconds = draft_passes(spec, "rule")
        plain, plain_rounds, _ = draft_passes(spec, "target")
        # Three draft steps a round, fewer in the last.
        assert 3 * plain_rounds - 2 <= plain - 1 <= 3 * plain_rounds
        assert 4 * rounds - 3 <= num - 1 <= 4 * rounds
        assert seconds > 0
    # Lossless rules have the target's law, with the same token and passes: comparable with rules' own bonuses.
    assert draft_passes("strict", "rule")[:2] == draft_passes("strict", "target")[:2]
    assert draft_passes("never", "rule")[:2] == draft_passes("strict", "target")[:2]
    texts = [outputs(engine_of("strict", bonus=bonus).rollouts(requests_for("strict"))) for bonus in ("rule", "target")]
    assert texts[0] == texts[1]
    # A gate's own bonus is the target's likeliest token: nothing more is drafted.
    assert draft_passes("top_k", "rule")[0] <= 3 * draft_passes("top_k", "rule")[1] + 1


# ---- temperature 0 -----------------------------------------------------------------------------------------------

FLY = "fly:variant=vllm,theta=0"
GREEDY = {"num_draft_tokens": 4, "max_new_tokens": 12}
PROMPTS = random_prompts(3, 8, 5, seed=2)


@functools.cache
def target_row(text: tuple[int, ...]) -> Tensor:
    return Uncached(pair().target, VOCAB_SIZE).row(text).softmax(-1)


@functools.cache
def draft_row(text: tuple[int, ...]) -> Tensor:
    return Uncached(pair().draft, VOCAB_SIZE).row(text).softmax(-1)


def entropy(p: Tensor) -> float:
    return float(-(p * p.log()).sum())


def jensen_shannon(p: Tensor, q: Tensor) -> float:
    return entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2


#: What a gate lets through at temperature 0, from the definitions: both models' rows at temperature 1, the draft's id.
GATES: dict[str, Callable[[Tensor, Tensor, int], bool]] = {
    "cascade_chow:alpha=0.8": lambda p, q, x: bool(q.max() >= 1 - 0.8),
    "cascade_diff:alpha=0": lambda p, q, x: bool(q.max() >= p.max()),
    "cascade_opt:alpha=-0.1": lambda p, q, x: bool(q.max() >= p.max() + 0.1 * (p - q).clamp_min(0).sum()),
    "cascade_v1:alpha=0.005": lambda p, q, x: bool(q[x] >= p.max() - 0.005),
    "cascade_v2:alpha=0.1": lambda p, q, x: bool(p[x] >= p.max() - 0.1),
    "cascade_v3:alpha=0.5": lambda p, q, x: bool(p[x] >= 0.5 * p.max()),
    "tok_lt:alpha=0.5": lambda p, q, x: bool(p[x] >= 0.5 * p.max()),
    "top_k:k=3": lambda p, q, x: bool((p > p[x]).sum() < 3),
    "trt_relaxed:k=3,delta=0.15": lambda p, q, x: bool((p > p[x]).sum() < 3 and p[x] >= p.max() - 0.15),
    "aasd:alpha=0.01,beta=0.08": lambda p, q, x: bool(p[x] >= min(0.08 - 0.01 * entropy(p), p.max())),
    "r_fuzzy:threshold=0.1,rows=raw": lambda p, q, x: bool(jensen_shannon(p, q) <= 0.1),
    "fuzzy:threshold=0.1": lambda p, q, x: bool(jensen_shannon(p, q) < 0.1),
    "fuzzy:divergence=kl,threshold=0.4": lambda p, q, x: bool((p * (p / q).log()).sum() < 0.4),
    "fuzzy:divergence=tv,threshold=0.35": lambda p, q, x: bool((p - q).clamp_min(0).sum() < 0.35),
}


@pytest.mark.parametrize("spec", GATES)
def test_a_gate_at_temperature_0_looks_at_probabilities_at_temperature_1(spec: str) -> None:
    """Group 14: an accepted draft passed the gate (or is the argmax), and a rejection writes the target's argmax."""
    rollouts = decode(pair(), spec, PROMPTS, **GREEDY)
    tested = {True: 0, False: 0}
    for rollout in rollouts:
        text = (*rollout.prompt_ids, *rollout.output_ids)
        for block in rollout.blocks:
            for place, token in enumerate(block.draft_ids[: block.accepted_len + 1]):
                before = (*text[: block.start], *block.draft_ids[:place])
                if len(before) >= len(text):
                    break
                p, q = target_row(before), draft_row(before)
                passes = GATES[spec](p, q, token)
                if int(p.argmax()) == token and not spec.startswith("fuzzy"):
                    passes = True
                assert passes == (place < block.accepted_len), (block, place)
                tested[passes] += token != int(p.argmax())
                if not passes:
                    assert block.emitted_ids[place] == int(p.argmax())
    assert min(tested.values()) > 0, f"the gate says the same of all: {tested}"


def greedy_outputs(spec: str, **settings: Any) -> list[list[int]]:
    return outputs(decode(pair(), spec, PROMPTS, **GREEDY, **settings))


def greedy_blocks(spec: str) -> list[Any]:
    return [
        [(block.draft_ids, block.accepted_len, block.emitted_ids) for block in rollout.blocks]
        for rollout in decode(pair(), spec, PROMPTS, **GREEDY)
    ]


@pytest.mark.parametrize("spec", [*SPECS, "cascade_v3:rows=processed", "fuzzy:rows=processed", "r_fuzzy:threshold=-1"])
def test_every_rule_does_at_temperature_0_what_it_says(spec: str) -> None:
    """Group 14."""
    rule = rule_named(spec)
    if rule.greedy == "refused":
        with pytest.raises(ValueError, match="makes no sense at temperature 0"):
            Engine(pair(), rule)
        engine = Engine(pair(), rule, sampling=SAMPLED)
        with pytest.raises(ValueError, match="set a temperature above 0"):
            engine.rollouts([Request(0, [5, 6], sampling=Sampling())])
        return
    assert rule.greedy in ("strict", "gate", "random")
    texts = greedy_outputs(spec)
    if rule.greedy == "strict":
        same = [greedy_blocks(each) for each in (spec, "strict")]
        assert same[0] == same[1]
    reseeded = [greedy_outputs(spec, seed=seed) for seed in ((1, 2, 3) if rule.greedy == "random" else (1,))]
    assert all(each == texts for each in reseeded) == (rule.greedy != "random")


def test_contrastive_at_temperature_0_writes_the_best_contrastive_score() -> None:
    rollouts = decode(pair(), "contrastive:beta=2,alpha=0.5", PROMPTS, **GREEDY)
    differs = 0
    for rollout in rollouts:
        text = (*rollout.prompt_ids, *rollout.output_ids)
        for place in range(len(rollout.prompt_ids), len(text)):
            p, q = target_row(text[:place]), draft_row(text[:place])
            scores = torch.where(p >= 0.5 * p.max(), 3 * p.log() - 2 * q.log(), -torch.inf)
            assert text[place] == int(scores.argmax())
            differs += text[place] != int(p.argmax())
    assert differs


def test_fly_keeps_a_mismatch_only_where_the_next_positions_match() -> None:
    """The rule of its section: accepted length falls with window and theta, and W+1 accepted hold one mismatch."""
    prompts = random_prompts(*range(3, 9), seed=5)
    settings = {"num_draft_tokens": 6, "max_new_tokens": 12}
    for window in (0, 1, 2):
        rollouts = decode(pair(), f"fly:window={window},theta=0", prompts, **settings)
        kept = 0
        for rollout in rollouts:
            for block in rollout.blocks:
                taken = [d != t for d, t in zip(block.draft_ids, block.target_ids, strict=True)][: block.accepted_len]
                kept += sum(taken)
                assert all(sum(taken[i : i + window + 1]) <= 1 for i in range(len(taken)))
        assert kept, "nothing was kept"
        if window == 0:
            assert all(d.kept for rollout in rollouts for d in rollout.decisions)
    # One round from the same text: neither a longer window nor a higher theta accepts more.
    first = {}
    strict = outputs(decode(pair(), "strict", prompts, num_draft_tokens=6, max_new_tokens=7))
    for window in (0, 1, 6):
        for theta in (0.0, 0.8, float("inf")):
            rollouts = decode(
                pair(), f"fly:window={window},theta={theta}", prompts, num_draft_tokens=6, max_new_tokens=7
            )
            first[window, theta] = [rollout.blocks[0].accepted_len for rollout in rollouts]
            if theta == float("inf") or window == 6:
                assert outputs(rollouts) == strict
    for (window, theta), lengths in first.items():
        for (other, higher), fewer in first.items():
            if window <= other and theta <= higher:
                assert all(a >= b for a, b in zip(lengths, fewer, strict=True))
    assert first[0, 0.0] != first[6, 0.0]


def test_a_phase_of_thinking_is_where_trt_relaxed_relaxes() -> None:
    """Begin and end ids anywhere: outside a phase the text is the target's own, inside it is relaxed as without one."""
    relaxed = "trt_relaxed:k=5,delta=1"
    prompts = [[*prompt, 40] for prompt in PROMPTS]
    free = outputs(decode(pair(), relaxed, prompts, **GREEDY))
    strict = outputs(decode(pair(), "strict", prompts, **GREEDY))
    assert free != strict
    seen = {token for text in (*free, *strict) for token in text}
    never = next(token for token in range(VOCAB_SIZE) if token not in seen)
    assert outputs(decode(pair(), f"{relaxed},begin=40,end={never}", prompts, **GREEDY)) == free
    assert outputs(decode(pair(), f"{relaxed},begin={never},end=40", prompts, **GREEDY)) == strict
    # Both occur, the prompt's end closing its phase.
    closed = [[40, *prompt, never] for prompt in PROMPTS]
    expected = outputs(decode(pair(), "strict", closed, **GREEDY))
    assert outputs(decode(pair(), f"{relaxed},begin=40,end={never}", closed, **GREEDY)) == expected


# ---- what is said ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "settings", "message"),
    [
        ("cactus", {}, "decides exactly as strict does at temperature 0"),
        ("fly", {"num_draft_tokens": 5}, "no position of a block of 5 has a window of 6"),
        ("fly:variant=vllm,window=6", {"num_draft_tokens": 5}, "no position of a block of 5 has a window of 6"),
    ],
)
def test_settings_that_make_a_rule_strict_are_said(spec: str, settings: dict[str, Any], message: str) -> None:
    with pytest.warns(UserWarning, match=message):
        Engine(pair(), rule_named(spec), **settings)


def test_vllms_window_fits_into_the_block_unless_one_is_asked_for() -> None:
    for k, window in ((2, 1), (5, 4), (7, 6), (9, 6)):
        settings = GREEDY | {"num_draft_tokens": k}
        # The last block of a text is shorter, and its window is that of the others.
        same = [outputs(decode(pair(), f"{FLY}{more}", PROMPTS, **settings)) for more in ("", f",window={window}")]
        assert same[0] == same[1]
        assert not list(rule_named(FLY).notes(Sampling(), k, one_hot=False))


def test_token_ids_that_the_pair_does_not_have_begin_no_phase() -> None:
    with pytest.raises(ValueError, match=f"end={VOCAB_SIZE} is none of the pair's {VOCAB_SIZE} token ids"):
        Engine(pair(), rule_named(f"trt_relaxed:begin=5,end={VOCAB_SIZE}"))


def test_a_requests_own_sampling_that_makes_a_rule_strict_is_said_once() -> None:
    greedy = [Request(i, [5, 6], 2, sampling=Sampling()) for i in range(2)]
    engine = Engine(pair(), rule_named("cactus"), sampling=SAMPLED)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        engine.rollouts([Request("own", [5, 6], 2)])
        assert not found
        engine.rollouts(greedy)
        engine.rollouts(greedy)
    assert ["decides exactly as strict does at temperature 0" in str(warning.message) for warning in found] == [True]


def test_a_drafter_without_a_distribution_is_refused_or_warned_of() -> None:
    notes = rule_named("cascade_opt").notes(SAMPLED, 5, one_hot=True)
    assert "looks certain of every token" in next(iter(notes))
    assert not list(rule_named("cactus").notes(SAMPLED, 5, one_hot=True))
    for spec, bonus in (("contrastive", "target"), ("ensemble", "rule"), ("fuzzy:divergence=kl", "target")):
        with pytest.raises(ValueError, match="needs the drafter's distribution"):
            rule_named(spec).check_drafter(bonus, one_hot=True)
    rule_named("top_k").check_drafter("rule", one_hot=True)
    rule_named("fuzzy:divergence=tv").check_drafter("target", one_hot=True)


def test_a_divergence_that_cut_rows_make_infinite_is_said() -> None:
    kl = rule_named("fuzzy:divergence=kl,rows=processed")
    for sampling in (Sampling(1.0, top_k=5), Sampling(1.0, top_p=0.9), Sampling(1.0, min_p=0.1)):
        (note,) = kl.notes(sampling, 5, one_hot=False)
        assert "accepts nothing where top-k, top-p or min-p cut a token" in note
        for spec in ("fuzzy:divergence=kl", "fuzzy:rows=processed"):
            assert not list(rule_named(spec).notes(sampling, 5, one_hot=False))
    assert not list(kl.notes(Sampling(1.0), 5, one_hot=False))


def test_a_bonus_that_a_rule_does_not_have_is_refused() -> None:
    for spec in ("always", "cactus", "lenience", "fly"):
        with pytest.raises(ValueError, match="has no law of its own for a bonus token"):
            Engine(pair(), rule_named(spec), bonus="rule")
    assert Engine(pair(), rule_named("contrastive"), sampling=SAMPLED).settings.bonus == "rule"
    engine = Engine(pair(), dataclasses.replace(rule_named("contrastive"), alpha=0.2))  # type: ignore[type-var]
    assert engine.settings.rule == "contrastive:alpha=0.2,beta=0.5"


# ---- drafters without a distribution -----------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [spec for spec in SPECS if not spec.startswith("contrastive")])
def test_a_batch_equals_its_requests_alone_with_a_copying_drafter(spec: str) -> None:
    """Blocks of any length, empty ones among them, with one-hot q."""
    texts = [[5, 6, 7, 5, 6, 7, 5], [9, 9, 9, 9], [11, 12, 13], [4, 8, 4, 8, 4]]
    requests = [Request(f"r{i}", text) for i, text in enumerate(texts)]
    changes = {"drafter": drafter_named("ngram"), "sampling": Sampling(0.4)}
    alone = [trace(engine_of(spec, batch_size=1, **changes).rollouts([request])[0]) for request in requests]
    found = engine_of(spec, batch_size=4, **changes).rollouts(requests)
    assert [trace(rollout) for rollout in found] == alone
    for rollout in found:
        assert_counters(rollout)
    lengths = {len(block.draft_ids) for rollout in found for block in rollout.blocks}
    assert 0 in lengths
    assert max(lengths) == 3


def test_a_gate_writes_the_likeliest_token_also_where_nothing_was_drafted() -> None:
    """TensorRT-LLM's rule never samples: with a drafter that proposes nothing its text is the greedy one."""
    prompts = [[5, 6], [9, 10, 11]]
    settings: dict[str, Any] = {"max_new_tokens": 4, "drafter": drafter_named("ngram:min_match=3")}
    found = decode(pair(), "trt_relaxed", prompts, sampling=Sampling(2.0), **settings)
    assert all(not block.draft_ids for rollout in found for block in rollout.blocks)
    assert outputs(found) == outputs(decode(pair(), "target", prompts, max_new_tokens=4))
