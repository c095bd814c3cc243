"""Processed rows, random draws, and the law of the engine's output by exact enumeration of every draw."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

import pytest
import torch
from conftest import family_pair, pair_of, perturbed, random_prompts, tiny_config, tiny_model
from reference import Uncached, generated
from torch import Tensor
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from cospec.engine import sampling as library
from cospec.engine.decode import Engine
from cospec.engine.record import Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.engine.sampling import (
    CounterDraws,
    Stream,
    _cut_rows,
    processed_rows,
    request_key,
    residual_rows,
    round_key,
    uniform,
)
from cospec.pair import Pair

GRID = [
    Sampling(*values)
    for values in itertools.product((0.3, 1.0, 2.5), (0, 1, 3, 99), (0.2, 0.75, 1.0), (0.0, 0.1, 0.6, 1.0))
]


def random_logits(num: int, vocab_size: int, seed: int = 0) -> Tensor:
    return 2 * torch.randn(num, vocab_size, generator=torch.Generator().manual_seed(seed))


def simple_row(logits: Sequence[float], sampling: Sampling, held: Collection[int] = ()) -> list[float]:
    """Penalty for the ids ``held``, temperature, top-k, top-p, min-p of one row, in Python's floats."""
    penalty = sampling.repetition_penalty
    changed = {i: logits[i] * penalty if logits[i] < 0 else logits[i] / penalty for i in held}
    logits = [changed.get(i, value) for i, value in enumerate(logits)]
    top = max(logits)
    if sampling.greedy:
        return [float(i == list(logits).index(top)) for i in range(len(logits))]
    weights = [math.exp((value - top) / sampling.temperature) for value in logits]
    order = sorted(range(len(weights)), key=lambda i: -weights[i])
    if sampling.top_k:
        order = order[: sampling.top_k]
    total, mass, kept = sum(weights[i] for i in order), 0.0, []
    for i in order:
        if mass >= sampling.top_p * total:
            break
        kept.append(i)
        mass += weights[i]
    kept = [i for i in kept if weights[i] >= sampling.min_p * weights[order[0]]]
    mass = sum(weights[i] for i in kept)
    return [weights[i] / mass if i in kept else 0.0 for i in range(len(weights))]


def _top_k(logits: Tensor, sampling: Sampling) -> Tensor:
    logits = logits / sampling.temperature
    return TopKLogitsWarper(sampling.top_k)(None, logits) if sampling.top_k else logits


# ---- rows -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", GRID, ids=str)
def test_processed_rows_equal_a_simple_reference_and_transformers(sampling: Sampling) -> None:
    logits = random_logits(20, 13)
    rows = processed_rows(logits, sampling)
    expected = torch.tensor([simple_row(row, sampling) for row in logits.tolist()])
    torch.testing.assert_close(rows, expected, atol=1e-6, rtol=1e-5)
    scores = TemperatureLogitsWarper(sampling.temperature)(None, logits)
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(None, scores)
    if sampling.top_p < 1.0:
        scores = TopPLogitsWarper(sampling.top_p)(None, scores)
    if sampling.min_p:
        scores = MinPLogitsWarper(sampling.min_p)(None, scores)
    torch.testing.assert_close(rows, scores.softmax(-1), atol=1e-6, rtol=1e-5)


def test_rows_keep_their_leading_dimensions_and_batch() -> None:
    logits, sampling = random_logits(12, 7).view(3, 4, 7), Sampling(0.8, 4, 0.9)
    rows = processed_rows(logits, sampling)
    assert rows.shape == logits.shape
    for i, j in itertools.product(range(3), range(4)):
        assert torch.equal(rows[i, j], processed_rows(logits[i, j][None], sampling)[0])


def test_greedy_rows_are_one_hot_at_the_argmax() -> None:
    logits = random_logits(9, 11)
    rows = processed_rows(logits, Sampling())
    assert torch.equal(rows.argmax(-1), logits.argmax(-1))
    assert torch.equal(rows.sum(-1), torch.ones(9))
    assert set(rows.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("sampling", [Sampling(1e-3), Sampling(1e-3, 2, 0.5), Sampling(50.0), Sampling(1.0, 0, 1e-6)])
def test_extreme_settings_leave_a_finite_row_of_mass_one(sampling: Sampling) -> None:
    rows = processed_rows(100 * random_logits(9, 11), sampling)
    assert rows.isfinite().all()
    torch.testing.assert_close(rows.sum(-1), torch.ones(9))


def test_rows_of_half_precision_are_computed_in_float32() -> None:
    logits = random_logits(4, 9).bfloat16()
    rows = processed_rows(logits, Sampling(0.7, 0, 0.8))
    assert rows.dtype == torch.float32
    assert torch.equal(rows, processed_rows(logits.float(), Sampling(0.7, 0, 0.8)))


WIDE = [
    *(Sampling(0.6, 0, 0.95), Sampling(1.0, 0, 0.5), Sampling(3.0, 0, 0.9), Sampling(1.0, 40, 0.9)),
    *(Sampling(1.0, 0, 0.9, 0.05), Sampling(1.0, 0, 1e-9)),
]


@pytest.mark.parametrize("sampling", WIDE, ids=str)
def test_rows_of_many_tokens_are_those_that_a_sort_of_all_gives(sampling: Sampling) -> None:
    # In bfloat16 many tokens are equally likely, so that the order of ids decides which of them stay.
    logits = (4 * random_logits(12, 6000)).bfloat16().float()
    logits[:6, ::700] += 14.0
    logits[6] = 0.0
    logits[7] = torch.linspace(3.0, 0.0, 6000).bfloat16().float()
    rows, sorted_all = processed_rows(logits, sampling), _cut_rows(_top_k(logits, sampling), sampling)
    assert torch.equal(rows > 0, sorted_all > 0)
    torch.testing.assert_close(rows, sorted_all, atol=1e-7, rtol=1e-5)
    for i, row in enumerate(logits):
        assert torch.equal(processed_rows(row[None], sampling)[0], rows[i]), "a row depends on its neighbours"


def test_rows_of_many_tokens_equal_a_simple_reference() -> None:
    logits = 3 * random_logits(3, 5000)
    for sampling in (Sampling(0.6, 0, 0.9), Sampling(1.0, 60, 0.9, 0.02)):
        expected = torch.tensor([simple_row(row, sampling) for row in logits.tolist()])
        torch.testing.assert_close(processed_rows(logits, sampling), expected, atol=1e-6, rtol=1e-5)


def test_only_rows_whose_likeliest_tokens_do_not_tell_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = random_logits(5, 6000)
    # Of equal tokens those of the smallest ids stay, which the likeliest ones need not hold; so flat a row needs more.
    logits[1], logits[3] = 0.0, 0.1 * logits[3]
    logits[[0, 2, 4], 17] = 12.0
    sorted_rows: list[int] = []

    def noted(rows: Tensor, sampling: Sampling) -> Tensor:
        sorted_rows.append(len(rows))
        return _cut_rows(rows, sampling)

    monkeypatch.setattr(library, "_cut_rows", noted)
    rows = processed_rows(logits, Sampling(1.0, 0, 0.9))
    assert sorted_rows == [2]
    assert torch.equal(rows[1].nonzero().squeeze(1), torch.arange(5400))


def test_residual_rows() -> None:
    p, q = random_logits(30, 6).softmax(-1), random_logits(30, 6, seed=1).softmax(-1)
    excess = [[max(0.0, a - b) for a, b in zip(x, y, strict=True)] for x, y in zip(p.tolist(), q.tolist(), strict=True)]
    expected = torch.tensor([[value / sum(row) for value in row] for row in excess])
    torch.testing.assert_close(residual_rows(p, q), expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(residual_rows(p, p), p)
    tiny = p + torch.tensor([1e-8, *[0.0] * 5])
    torch.testing.assert_close(residual_rows(tiny, p).sum(-1), torch.ones(30))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"top_p": math.nan}, "top_p is nan"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"min_p": 1.1}, "min_p is 1.1"),
        ({"min_p": math.nan}, "min_p is nan"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"repetition_penalty": math.inf}, "repetition_penalty is inf"),
        ({"repetition_penalty": math.nan}, "repetition_penalty is nan"),
    ],
)
def test_bad_sampling_values_are_refused(values: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Sampling(**values)


# ---- draws ----------------------------------------------------------------------------------------------------------


def keys_of(num: int, seed: int = 0, round_number: int = 0) -> Tensor:
    return torch.tensor([round_key(request_key(seed, i), round_number) for i in range(num)])


def chi_square(counts: Tensor, expected: Tensor) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def test_uniform_numbers_are_uniform_and_streams_rounds_positions_and_seeds_independent() -> None:
    num, bins = 4096, 8
    columns = {
        (stream, position, round_number, seed): uniform(keys_of(num, seed, round_number), stream, position)
        for stream, position, round_number, seed in [
            *((stream, position, 0, 0) for stream in Stream for position in (0, 1)),
            (Stream.DRAFT, 0, 1, 0),
            (Stream.DRAFT, 0, 0, 1),
        ]
    }
    cells = {}
    for name, values in columns.items():
        assert 0.0 <= float(values.min()) <= float(values.max()) < 1.0
        cells[name] = (values * bins).long()
        # 7 degrees of freedom: 29.9 is the 1e-4 quantile; the draws are fixed, so this never flickers.
        assert chi_square(cells[name].bincount(minlength=bins), torch.full((bins,), num / bins)) < 29.9
    for one, other in itertools.combinations(cells.values(), 2):
        joint = (one * bins + other).bincount(minlength=bins**2)
        # 63 degrees of freedom; 122 is the 1e-5 quantile.
        assert chi_square(joint, torch.full((bins**2,), num / bins**2)) < 122


def test_categorical_and_bernoulli_follow_their_probabilities() -> None:
    probs, num = torch.tensor([0.5, 0.0, 0.3, 0.15, 0.05, 0.0]), 4096
    ids = CounterDraws().categorical(probs.expand(num, -1), keys_of(num), Stream.DRAFT, 3)
    counts = ids.bincount(minlength=6)
    assert counts[1] == counts[5] == 0
    assert chi_square(counts[probs > 0], num * probs[probs > 0]) < 21.1  # 3 degrees of freedom, 1e-4
    hits = int(CounterDraws().bernoulli(torch.full((num,), 0.3), keys_of(num), Stream.ACCEPT, 0).sum())
    assert abs(hits - 0.3 * num) < 4 * math.sqrt(num * 0.21)


@pytest.mark.parametrize("point", [0.0, 0.5, 1.0 - 2.0**-53])
def test_an_id_of_probability_zero_is_never_drawn(point: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "uniform", lambda keys, *_: torch.full(keys.shape, point, dtype=torch.double))
    probs = torch.tensor(
        [[0.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.1, 0.0, 0.0, 0.9], [0.0, 0.3, 1e-30, 0.0], [1e-12, 0, 0, 0]]
    )
    ids = CounterDraws().categorical(probs, torch.arange(5), Stream.RESIDUAL, 0)
    assert (probs.gather(1, ids[:, None]) > 0).all()
    never = CounterDraws().bernoulli(torch.zeros(2), torch.arange(2), Stream.ACCEPT, 0)
    always = CounterDraws().bernoulli(torch.ones(2), torch.arange(2), Stream.ACCEPT, 0)
    assert always.all()
    assert not never.any()


def test_draws_do_not_depend_on_the_batch() -> None:
    probs, keys, draws = random_logits(32, 50).softmax(-1), keys_of(32), CounterDraws()
    whole = draws.categorical(probs, keys, Stream.DRAFT, 2)
    assert torch.equal(whole, draws.categorical(probs, keys, Stream.DRAFT, 2))
    order = torch.randperm(32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(whole[order], draws.categorical(probs[order], keys[order], Stream.DRAFT, 2))
    parts = [draws.categorical(probs[i : i + 5], keys[i : i + 5], Stream.DRAFT, 2) for i in range(0, 32, 5)]
    assert torch.equal(whole, torch.cat(parts))
    for other in (
        draws.categorical(probs, keys, Stream.DRAFT, 3),
        draws.categorical(probs, keys, Stream.RESIDUAL, 2),
        draws.categorical(probs, keys_of(32, seed=1), Stream.DRAFT, 2),
        draws.categorical(probs, keys_of(32, round_number=1), Stream.DRAFT, 2),
    ):
        assert not torch.equal(whole, other)


def test_request_keys_are_the_same_on_every_machine_and_tell_requests_apart() -> None:
    assert request_key(0, "a") == request_key(0, "a")
    keys = [request_key(seed, name) for seed in (0, 1, 10) for name in (0, 1, "0", "1", "00", 10)]
    assert len(set(keys)) == len(keys)
    assert all(-(2**63) <= key < 2**63 for key in keys)
    # Pinned (and checked against splitmix64 in Python's integers): recorded rollouts stay reproducible only as long as
    # these numbers do not move.
    assert uniform(keys_of(2), Stream.ACCEPT, 1).tolist() == [0.30155798346680507, 0.05702746105233414]


# ---- the law of the output, by enumeration --------------------------------------------------------------------------

TOY_SIZE, TOY_EOS = 3, 2
TOY_PROMPT = [0, 2, 1]


@pytest.fixture(scope="module")
def toy() -> Pair:
    """Two unlike models over three ids."""
    shape = {"vocab_size": TOY_SIZE, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    shape |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "pad_token_id": None}
    models = [tiny_model(tiny_config("llama", **shape, initializer_range=0.6), seed=seed) for seed in (5, 6)]
    return pair_of(*models, vocab_size=TOY_SIZE)


class Branches:
    """Draws that follow one path of choices, and note every branch they pass; for one request at a time.

    A path is the list of choices in the order in which the draws come. Where it ends, the first option is taken and
    the others become paths of their own. ``matters`` says whether a draw can change the text: where it cannot, one
    option stands for all (if the engine used such a draw after all, the law would come out wrong).
    """

    def __init__(self, path: list[int], matters: Callable[[Branches, int, Stream, int], bool]) -> None:
        self.path, self.matters = list(path), matters
        self.weight, self.place = 1.0, 0
        self.found: list[list[int]] = []
        #: The first rejected position of each round, by the round's key.
        self.rejected: dict[int, int] = {}

    def _choose(self, probs: Sequence[float]) -> int:
        if self.place == len(self.path):
            self.found += [[*self.path, other] for other in range(1, len(probs))]
            self.path.append(0)
        choice = self.path[self.place]
        self.place += 1
        self.weight *= probs[choice]
        return choice

    def categorical(self, probs: Tensor, keys: Tensor, stream: Stream, position: int) -> Tensor:
        (row,), (key,) = probs.double().tolist(), keys.tolist()
        options = [i for i, p in enumerate(row) if p > 0]
        if not self.matters(self, key, stream, position):
            return torch.tensor(options[:1])
        return torch.tensor([options[self._choose([row[i] / sum(row) for i in options])]])

    def bernoulli(self, probs: Tensor, keys: Tensor, stream: Stream, position: int) -> Tensor:
        (p,), (key,) = probs.double().tolist(), keys.tolist()
        if 0.0 < p < 1.0 and self.matters(self, key, stream, position):
            outcome = self._choose([p, 1.0 - p]) == 0
        else:
            outcome = p >= 1.0
        if not outcome:
            self.rejected.setdefault(key, position)
        return torch.tensor([outcome])


def every_draw_matters(branches: Branches, key: int, stream: Stream, position: int) -> bool:
    return True


def nothing_matters_behind_a_rejection(branches: Branches, key: int, stream: Stream, position: int) -> bool:
    return stream == Stream.DRAFT or position <= branches.rejected.get(key, position)


def only_drafts_matter(branches: Branches, key: int, stream: Stream, position: int) -> bool:
    return stream == Stream.DRAFT


def all_outcomes(
    pair: Pair, rule: str, k: int, num_tokens: int, sampling: Sampling, matters: Callable[..., bool], **settings: object
) -> list[tuple[float, Rollout]]:
    """Every rollout of the toy prompt with its probability."""
    engine = Engine(
        pair, rule_named(rule), num_draft_tokens=k, max_new_tokens=num_tokens, sampling=sampling, **settings
    )
    outcomes, waiting = [], [[]]
    while waiting:
        engine.draws = branches = Branches(waiting.pop(), matters)
        rollout = engine.rollouts([Request(0, TOY_PROMPT)])[0]
        outcomes.append((branches.weight, rollout))
        waiting += branches.found
    assert sum(weight for weight, _ in outcomes) == pytest.approx(1.0, abs=1e-9)
    return outcomes


def law_of(outcomes: Sequence[tuple[float, Rollout]]) -> dict[tuple[int, ...], float]:
    law: dict[tuple[int, ...], float] = defaultdict(float)
    for weight, rollout in outcomes:
        law[rollout.output_ids] += weight
    return law


def chain_law(
    model: torch.nn.Module, num_tokens: int, sampling: Sampling, eos: Sequence[int] = ()
) -> dict[tuple[int, ...], float]:
    """The law of a model's own text: the product of its processed rows."""
    uncached, law = Uncached(model, TOY_SIZE), {}

    def extend(text: tuple[int, ...], weight: float) -> None:
        if len(text) == num_tokens or (text and text[-1] in eos):
            law[text] = weight
            return
        row = simple_row(uncached.row([*TOY_PROMPT, *text]).tolist(), sampling, {*TOY_PROMPT, *text})
        for token, p in enumerate(row):
            if p > 0:
                extend((*text, token), weight * p)

    extend((), 1.0)
    return law


def assert_same_law(law: dict[tuple[int, ...], float], expected: dict[tuple[int, ...], float]) -> None:
    assert set(law) == set(expected)
    for text, weight in expected.items():
        assert law[text] == pytest.approx(weight, abs=1e-6), text


SAMPLINGS = [Sampling(1.0), Sampling(0.7, 2), Sampling(1.6, 0, 0.8), Sampling(1.3, min_p=0.4, repetition_penalty=1.7)]


#: (rule, k, number of tokens); an arbitrated block is one longer, which is dear where no cut thins the branches out.
CASES = [
    (case, sampling)
    for case in (("strict", 1, 3), ("strict", 2, 2), ("never", 1, 3), ("never", 1, 2), ("never", 2, 2))
    for sampling in SAMPLINGS
    if (case, sampling) != (("never", 1, 3), Sampling(1.0))
]


@pytest.mark.parametrize(("case", "sampling"), CASES, ids=str)
def test_strict_and_never_have_exactly_the_targets_law(
    toy: Pair, case: tuple[str, int, int], sampling: Sampling
) -> None:
    num_tokens = case[2]
    outcomes = all_outcomes(toy, *case, sampling, nothing_matters_behind_a_rejection)
    law = law_of(outcomes)
    assert_same_law(law, chain_law(toy.target, num_tokens, sampling))
    draft = chain_law(toy.draft, num_tokens, sampling)
    assert max(abs(law.get(text, 0.0) - weight) for text, weight in draft.items()) > 0.01, "draft and target are alike"


def test_the_targets_law_with_every_draw_enumerated(toy: Pair) -> None:
    for rule in ("strict", "never"):
        outcomes = all_outcomes(toy, rule, 1, 2, Sampling(1.0), every_draw_matters)
        assert_same_law(law_of(outcomes), chain_law(toy.target, 2, Sampling(1.0)))


@pytest.mark.parametrize("rule", ["strict", "never"])
def test_the_targets_law_with_an_eos(toy: Pair, rule: str) -> None:
    outcomes = all_outcomes(
        toy, rule, 2, 3, Sampling(1.0, 2), nothing_matters_behind_a_rejection, eos_token_ids=[TOY_EOS]
    )
    assert_same_law(law_of(outcomes), chain_law(toy.target, 3, Sampling(1.0, 2), eos=[TOY_EOS]))
    assert {rollout.finish_reason for _, rollout in outcomes} == {"eos", "length"}


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_always_has_exactly_the_drafts_law(toy: Pair, sampling: Sampling) -> None:
    for k in (1, 2):
        outcomes = all_outcomes(toy, "always", k, 3, sampling, only_drafts_matter)
        assert_same_law(law_of(outcomes), chain_law(toy.draft, 3, sampling))


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_the_coupling_is_maximal(toy: Pair, sampling: Sampling) -> None:
    """The first position is a mismatch with probability TV(p, q), and both its tokens have their own models' law."""
    outcomes = all_outcomes(toy, "never", 1, 1, sampling, every_draw_matters)
    rows = [
        simple_row(Uncached(model, TOY_SIZE).row(TOY_PROMPT).tolist(), sampling, TOY_PROMPT)
        for model in (toy.target, toy.draft)
    ]
    mismatch = sum(weight for weight, rollout in outcomes if rollout.num_mismatches)
    assert mismatch == pytest.approx(sum(abs(p - q) for p, q in zip(*rows, strict=True)) / 2, abs=1e-6)
    for name, row in zip(("target_ids", "draft_ids"), rows, strict=True):
        for token, p in enumerate(row):
            share = sum(weight for weight, rollout in outcomes if getattr(rollout.blocks[0], name) == (token,))
            assert share == pytest.approx(p, abs=1e-6)


# ---- sampled texts --------------------------------------------------------------------------------------------------


def sampled(pair: Pair, rule: str, requests: Sequence[Request], seed: int = 0, **settings: object) -> list[Rollout]:
    engine = Engine(
        pair,
        rule_named(rule),
        num_draft_tokens=3,
        max_new_tokens=12,
        sampling=Sampling(0.9, 12, 0.95),
        seed=seed,
        **settings,
    )
    return engine.rollouts(requests)


@pytest.mark.parametrize("rule", ["strict", "never", "always"])
def test_a_sampled_text_depends_on_seed_and_request_alone(llama: Pair, rule: str, prompts: list[list[int]]) -> None:
    requests = [Request(f"r{i}", prompt) for i, prompt in enumerate(prompts)]
    alone = [sampled(llama, rule, [request])[0].output_ids for request in requests]
    order = [4, 0, 5, 2, 1, 3]
    for batch_size in (2, 6):
        crowd = sampled(llama, rule, [requests[i] for i in order], batch_size=batch_size)
        assert [rollout.output_ids for rollout in crowd] == [alone[i] for i in order]
    other_seed = [rollout.output_ids for rollout in sampled(llama, rule, requests, seed=1)]
    assert all(one != other for one, other in zip(alone, other_seed, strict=True))


def test_the_same_prompt_under_two_ids_gets_two_texts(llama: Pair) -> None:
    one, other = sampled(llama, "strict", [Request("a", [5, 6, 7]), Request("b", [5, 6, 7])])
    assert one.output_ids != other.output_ids


def test_strict_and_never_agree_draw_for_draw_at_the_same_bonus(llama: Pair, prompts: list[list[int]]) -> None:
    requests = [Request(i, prompt) for i, prompt in enumerate(prompts)]
    for bonus in ("target", "arbitrated"):
        texts = [[r.output_ids for r in sampled(llama, rule, requests, bonus=bonus)] for rule in ("strict", "never")]
        assert texts[0] == texts[1]


def test_temperature_near_zero_is_the_greedy_text(llama: Pair, prompts: list[list[int]]) -> None:
    requests = [Request(i, prompt) for i, prompt in enumerate(prompts)]
    texts = []
    for sampling in (Sampling(), Sampling(1e-5), Sampling(1.0, top_k=1), Sampling(1.0, top_p=1e-9)):
        engine = Engine(llama, rule_named("never"), max_new_tokens=10, sampling=sampling)
        texts.append([rollout.output_ids for rollout in engine.rollouts(requests)])
    assert all(text == texts[0] for text in texts)


@pytest.mark.parametrize("sampling", [None, Sampling(repetition_penalty=1.8), Sampling(0.9, repetition_penalty=1.8)])
def test_risk_is_the_unprocessed_softmax(llama: Pair, prompts: list[list[int]], sampling: Sampling | None) -> None:
    target, num = Uncached(llama.target, llama.vocab_size), 0
    requests = [Request(i, prompt, sampling=sampling) for i, prompt in enumerate(prompts[3:5])]
    for rollout in sampled(llama, "always", requests):
        text = [*rollout.prompt_ids, *rollout.output_ids]
        for block in rollout.blocks:
            for decision in block.decisions:
                expected = target.prob(text[: block.start + decision.position], decision.draft_id)
                assert decision.target_prob_of_draft == pytest.approx(expected, rel=1e-3, abs=1e-6)
                num += 1
    assert num > 0


def test_a_sampling_batch_beyond_the_drafts_context(prompts: list[list[int]]) -> None:
    draft = perturbed(tiny_model(tiny_config("llama", max_position_embeddings=14), seed=1), seed=2, scale=0.02)
    pair = pair_of(draft, family_pair("llama", "sdpa").target)
    requests = [Request(i, prompt) for i, prompt in enumerate([*prompts, *random_prompts(13, 14, 15, seed=1)])]
    for rule in ("strict", "never", "always"):
        rollouts = sampled(pair, rule, requests, batch_size=4)
        assert all(len(rollout.output_ids) == 12 for rollout in rollouts)
        assert rollouts[5].num_drafted == 0
        assert [sampled(pair, rule, [request])[0].output_ids for request in requests] == [
            rollout.output_ids for rollout in rollouts
        ]


# ---- each request its own -------------------------------------------------------------------------------------------

MIXED = [
    Sampling(),
    Sampling(0.9, 12, 0.95),
    Sampling(repetition_penalty=1.3),
    Sampling(1.5, min_p=0.2),
    None,
    Sampling(0.7, repetition_penalty=0.8),
]


@pytest.mark.parametrize("rule", ["strict", "never", "always", "target"])
def test_requests_of_different_sampling_and_seeds_share_a_batch(
    llama: Pair, rule: str, prompts: list[list[int]]
) -> None:
    requests = [
        Request(i, prompt, sampling=sampling, seed=i % 2 or None)
        for i, (prompt, sampling) in enumerate(zip(prompts, MIXED, strict=True))
    ]
    alone = [sampled(llama, rule, [request])[0] for request in requests]
    for order, batch_size in (([4, 0, 5, 2, 1, 3], 6), ([1, 3, 5, 0, 2, 4], 3)):
        crowd = sampled(llama, rule, [requests[i] for i in order], batch_size=batch_size)
        assert [rollout.output_ids for rollout in crowd] == [alone[i].output_ids for i in order]
    # What is on record is what decoded the text: an engine of these settings writes it again.
    for rollout, prompt in zip(alone, prompts, strict=True):
        found = rollout.settings
        engine = Engine(
            llama,
            rule_named(rule),
            num_draft_tokens=3,
            max_new_tokens=12,
            sampling=found.sampling,
            seed=found.seed,
        )
        assert engine.settings == found
        assert engine.rollouts([Request(rollout.id, prompt)])[0].output_ids == rollout.output_ids


@pytest.mark.parametrize("penalty", [0.7, 1.3, 5.0])
def test_a_repetition_penalty_gives_the_text_of_transformers(
    pair: Pair, prompts: list[list[int]], penalty: float
) -> None:
    sampling = Sampling(repetition_penalty=penalty)
    plain = [generated(pair.target, prompt, 12) for prompt in prompts]
    expected = [generated(pair.target, prompt, 12, repetition_penalty=penalty) for prompt in prompts]
    assert expected != plain
    requests = [Request(i, prompt) for i, prompt in enumerate(prompts)]
    for rule, k in (("target", 1), ("strict", 1), ("strict", 4), ("never", 3), ("never", 7)):
        engine = Engine(pair, rule_named(rule), num_draft_tokens=k, max_new_tokens=12, sampling=sampling, batch_size=4)
        assert [list(rollout.output_ids) for rollout in engine.rollouts(requests)] == expected


def test_a_penalty_forgets_the_row_that_was_in_its_place(llama: Pair) -> None:
    requests = [Request(i, prompt) for i, prompt in enumerate(random_prompts(3, 9, 4, 6, 2, 8, 5, seed=2))]
    texts = []
    for batch_size in (1, 2, 7):
        engine = Engine(
            llama,
            rule_named("strict"),
            max_new_tokens=9,
            sampling=Sampling(repetition_penalty=3.0),
            batch_size=batch_size,
        )
        texts.append([rollout.output_ids for rollout in engine.rollouts(requests)])
    assert texts[0] == texts[1] == texts[2]
