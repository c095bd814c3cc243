"""Sampling with one-hot drafts: the exact law of the text, with every draw enumerated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import pair_of, tiny_config, tiny_model, word_tokenizer
from reference import Uncached
from test_sampling import (
    TOY_EOS,
    TOY_PROMPT,
    TOY_SIZE,
    all_outcomes,
    assert_same_law,
    chain_law,
    law_of,
    nothing_matters_behind_a_rejection,
)

from cospec.datastore import build_datastore
from cospec.engine.drafters import drafter_named
from cospec.engine.record import Sampling
from cospec.engine.sampling import processed_rows
from cospec.pair import Pair, tokenizer_digest

SPECS = ["ngram", "ngram:match=last,max_match=1", "retrieval:{}"]
SAMPLINGS = [Sampling(1.0), Sampling(1.5, top_p=0.95, repetition_penalty=1.2)]


@pytest.fixture(scope="module")
def alone() -> Pair:
    """A target of three ids, and no draft model."""
    shape = {"vocab_size": TOY_SIZE, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    shape |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "pad_token_id": None}
    target = tiny_model(tiny_config("llama", **shape, initializer_range=0.6), seed=6)
    return pair_of(None, target, vocab_size=TOY_SIZE, tokenizer_digest=tokenizer_digest(word_tokenizer()))


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    directory: Path = tmp_path_factory.mktemp("law") / "store"
    build_datastore([[0, 2, 1, 1, 0], [2, 1, 0, 0, 1], [1, 0, 2, 2, 0, 1]], word_tokenizer(), directory)
    return lambda spec: spec.format(directory)


#: (rule, number of tokens, sampling)
CASES = [("strict", 4, SAMPLINGS[0]), ("strict", 3, SAMPLINGS[1]), ("never", 3, SAMPLINGS[0])]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("spec", SPECS)
def test_the_texts_have_exactly_the_targets_law(
    alone: Pair, named: Callable[[str], str], spec: str, case: tuple[str, int, Sampling]
) -> None:
    (rule, num_tokens, sampling), drafter = case, drafter_named(named(spec))
    outcomes = all_outcomes(alone, rule, 2, num_tokens, sampling, nothing_matters_behind_a_rejection, drafter=drafter)
    assert_same_law(law_of(outcomes), chain_law(alone.target, num_tokens, sampling))
    assert {block.accepted_len for _, rollout in outcomes for block in rollout.blocks} >= {0, 1, 2}


@pytest.mark.parametrize("spec", SPECS)
def test_the_law_with_an_eos(alone: Pair, named: Callable[[str], str], spec: str) -> None:
    drafter, sampling = drafter_named(named(spec)), Sampling(1.0)
    outcomes = all_outcomes(
        alone,
        "strict",
        3,
        3,
        sampling,
        nothing_matters_behind_a_rejection,
        drafter=drafter,
        eos_token_ids=(TOY_EOS,),
    )
    assert_same_law(law_of(outcomes), chain_law(alone.target, 3, sampling, (TOY_EOS,)))


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(1.5, top_p=0.9)], ids=str)
def test_a_copy_is_accepted_with_the_targets_own_probability(alone: Pair, sampling: Sampling) -> None:
    """And the token in place of a rejected one is distributed as p without it."""
    outcomes = all_outcomes(
        alone, "strict", 1, 2, sampling, nothing_matters_behind_a_rejection, drafter=drafter_named("ngram")
    )
    # The prompt 0 2 1 holds no other 1, so that the target writes the first token alone.
    uncached, seen = Uncached(alone.target, TOY_SIZE), defaultdict[tuple[int, ...], dict[int, float]](dict)
    for weight, rollout in outcomes:
        first, *rest = rollout.blocks
        assert first.draft_ids == ()
        if rest and rest[0].draft_ids:
            key = (*first.emitted_ids, *rest[0].draft_ids)
            written = rest[0].emitted_ids[0]
            seen[key][written] = seen[key].get(written, 0.0) + weight
            assert (rest[0].accepted_len == 1) == (written == rest[0].draft_ids[0])
    assert len(seen) > 1
    for (start, _), masses in seen.items():
        row = processed_rows(uncached.row([*TOY_PROMPT, start])[None], sampling)[0]
        total = sum(masses.values())
        for token_id, mass in masses.items():
            assert mass / total == pytest.approx(float(row[token_id]), abs=1e-6)
