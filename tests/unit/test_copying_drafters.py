"""Drafters that copy: the searches against plain ones, and strict decoding with them against the target alone."""

from __future__ import annotations

import dataclasses
import functools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import (
    BOS,
    VOCAB_SIZE,
    late_ids,
    pair_of,
    random_prompts,
    tiny_config,
    tiny_model,
    word_tokenizer,
)
from engine_checks import assert_counters, outputs, trace
from hypothesis import given, settings
from hypothesis import strategies as st

from cospec.datastore import build_datastore, suffix_order
from cospec.engine.decode import Engine
from cospec.engine.drafters import Drafter, check_use, drafter_named
from cospec.engine.drafters.datastore import SEPARATOR, Datastore
from cospec.engine.drafters.ngram import longest_match
from cospec.engine.metrics import acceptance
from cospec.engine.record import Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.pair import Pair, tokenizer_digest

NUM_NEW = 30
FEW_IDS = st.integers(0, 3)


# ---- the searches ---------------------------------------------------------------------------------------------------


def plain_match(text: Sequence[int], most: int, fewest: int, *, last: bool) -> int:
    """`longest_match` of one row, as one would say it."""
    for num in range(min(most, len(text) - 1), fewest - 1, -1):
        ends = [end for end in range(num, len(text)) if text[end - num : end] == text[len(text) - num :]]
        if ends:
            return ends[-1 if last else 0]
    return len(text)


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.lists(FEW_IDS, min_size=1, max_size=14), min_size=1, max_size=4),
    most=st.integers(1, 5),
    fewest=st.integers(1, 5),
    last=st.booleans(),
    padding=st.integers(0, 4),
)
def test_the_longest_match_is_the_plain_searchs(
    rows: list[list[int]], most: int, fewest: int, last: bool, padding: int
) -> None:
    width = max(map(len, rows)) + padding
    # What stands behind a row's text is another round's, and must not be found.
    text = torch.tensor([row + [1] * (width - len(row)) for row in rows])
    lengths = torch.tensor([len(row) for row in rows])
    found = longest_match(text, lengths, most, fewest, last=last).tolist()
    assert found == [plain_match(row, most, fewest, last=last) for row in rows]


def plain_continuation(texts: Sequence[Sequence[int]], ids: Sequence[int], fewest: int, length: int) -> list[int]:
    for num in range(len(ids), fewest - 1, -1):
        wanted = list(ids[len(ids) - num :])
        following = [
            list(text[end : end + length])
            for text in texts
            for end in range(num, len(text))
            if list(text[end - num : end]) == wanted
        ]
        chain: list[int] = []
        while len(chain) < length:
            agreeing = [rest for rest in following if len(rest) > len(chain) and rest[: len(chain)] == chain]
            counts = Counter(rest[len(chain)] for rest in agreeing)
            if not counts:
                break
            chain.append(min(counts, key=lambda token_id: (-counts[token_id], token_id)))
        if chain:
            return chain
    return []


@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(st.lists(FEW_IDS, min_size=1, max_size=12), min_size=1, max_size=4),
    ids=st.lists(FEW_IDS, min_size=1, max_size=6),
    fewest=st.integers(1, 3),
    length=st.integers(1, 4),
)
def test_a_continuation_is_the_plain_searchs(texts: list[list[int]], ids: list[int], fewest: int, length: int) -> None:
    found = stored(tuple(map(tuple, texts))).continuation(ids, fewest, 5000, length)
    assert found == (plain_continuation(texts, ids, fewest, length) if len(ids) >= fewest else [])


@functools.cache
def stored(texts: tuple[tuple[int, ...], ...]) -> Datastore:
    """A datastore that is nowhere on disk."""
    store = object.__new__(Datastore)
    store.tokens = np.concatenate([np.array([*text, SEPARATOR], dtype=np.int32) for text in texts])
    store.suffixes = suffix_order(store.tokens)
    return store


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([-1, 0, 1, 255, 256, 65_535, 65_536, 70_000, 151_935, 2**31 - 2]), min_size=1, max_size=30)
)
def test_suffixes_are_in_the_order_of_their_ids_however_large(ids: list[int]) -> None:
    order = suffix_order(np.array(ids, dtype=np.int32))
    assert order.tolist() == sorted(range(len(ids)), key=lambda start: ids[start:])


def test_so_many_hits_are_counted_and_no_more_evenly() -> None:
    # 300 occurrences of 7, of which the first 200 in suffix order go on with 1 and the others with 2.
    store = stored(((7, 1),) * 200 + ((7, 2),) * 100)
    assert store.find([7]) == (600, 900)
    for most in (1, 3, 30, 5000):
        assert store.continuation([7], 1, most, 2) == [1]
    assert stored(((7, 1),) * 100 + ((7, 2),) * 200).continuation([7], 1, 3, 1) == [2]


def test_a_look_up_searches_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where long ends occur at the end of a text alone, and one token has another place."""
    text = tuple(range(1, 31))
    store, searched, find = stored((text, (30, 7))), [], Datastore.find
    monkeypatch.setattr(Datastore, "find", lambda self, ids: searched.append(len(ids)) or find(self, ids))
    assert store.continuation(text[-16:], 1, 5000, 2) == [7]
    assert len(searched) <= 5
    for fewest in (2, 9):
        searched.clear()
        assert store.continuation(text[-16:], fewest, 5000, 2) == []
        assert 0 < len(searched) <= 4


# ---- decoding -------------------------------------------------------------------------------------------------------


@functools.cache
def repeating_target() -> Pair:
    """A target alone, whose greedy texts fall into loops now and then, which copying foresees."""
    config = tiny_config("llama", initializer_range=0.18)
    return pair_of(None, tiny_model(config, seed=1), tokenizer_digest=tokenizer_digest(word_tokenizer()))


PROMPTS = [
    [1, 5, 6, 7, 8, 9, 5, 6, 7],
    [9],
    [20, 21, 22, 23, 20, 21],
    *random_prompts(4, 12, 7, seed=3),
]


@pytest.fixture(scope="module")
def datastore(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The target's own texts on other prompts, and on two of these."""
    pair, directory = repeating_target(), tmp_path_factory.mktemp("retrieval") / "store"
    prompts = [*random_prompts(5, 9, 3, 6, seed=11), *PROMPTS[:2]]
    texts = [[*r.prompt_ids, *r.output_ids] for r in decoded(pair, None, prompts, rule="target")]
    build_datastore(texts, word_tokenizer(), directory)
    return directory


def decoded(
    pair: Pair, drafter: Drafter | None, prompts: Sequence[Sequence[int]], rule: str = "strict", **more: object
) -> list[Rollout]:
    engine = Engine(pair, rule_named(rule), drafter=drafter, **{"max_new_tokens": NUM_NEW, **more})
    return engine.rollouts([Request(i, list(prompt)) for i, prompt in enumerate(prompts)])


SPECS = [
    "ngram",
    "ngram:max_match=2,match=last,copy=3",
    "ngram:min_match=3,max_match=5",
    "retrieval:{}",
    "retrieval:{},min_match=1",
]


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("spec", SPECS)
def test_strict_writes_the_targets_greedy_text(spec: str, batch_size: int, datastore: Path) -> None:
    pair, drafter = repeating_target(), drafter_named(spec.format(datastore))
    expected = decoded(pair, None, PROMPTS, rule="target")
    found = decoded(pair, drafter, PROMPTS, batch_size=batch_size)
    assert outputs(found) == outputs(expected)
    sums = acceptance(found)
    assert sums.num_accepted > 10, "nothing worth copying"
    assert 0 in {len(block.draft_ids) for rollout in found for block in rollout.blocks}
    for rollout in found:
        assert_counters(rollout)
        assert rollout.settings.drafter == drafter.spec
        assert drafter_named(drafter.spec).spec == drafter.spec


@pytest.mark.parametrize("spec", ["ngram", "retrieval:{}"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.7, top_p=0.9, repetition_penalty=1.1)])
def test_company_changes_nothing(spec: str, sampling: Sampling, datastore: Path) -> None:
    pair, drafter = repeating_target(), drafter_named(spec.format(datastore))
    together = decoded(pair, drafter, PROMPTS, batch_size=4, sampling=sampling, prefill_chunk=3)
    alone = decoded(pair, drafter, PROMPTS, batch_size=1, sampling=sampling)
    assert [trace(rollout) for rollout in together] == [trace(rollout) for rollout in alone]


@pytest.mark.parametrize("spec", ["ngram:match=last", "retrieval:{}"])
def test_texts_end_where_the_targets_do(spec: str, datastore: Path) -> None:
    pair, drafter = repeating_target(), drafter_named(spec.format(datastore))
    whole = decoded(pair, None, PROMPTS, rule="target")
    ends = late_ids(outputs(whole))
    expected = decoded(pair, None, PROMPTS, rule="target", eos_token_ids=ends)
    found = decoded(pair, drafter, PROMPTS, eos_token_ids=ends, batch_size=3)
    assert outputs(found) == outputs(expected)
    assert [r.finish_reason for r in found] == [r.finish_reason for r in expected]
    assert {"eos", "length"} <= {rollout.finish_reason for rollout in found}
    stop = whole[0].text.split()[5]
    stopped = decoded(pair, drafter, PROMPTS, stop=(stop,), batch_size=3)
    assert [r.text for r in stopped] == [r.text for r in decoded(pair, None, PROMPTS, rule="target", stop=(stop,))]
    for rollout in found:
        for block in rollout.blocks:
            assert not set(block.draft_ids[:-1]) & set(ends), "a block goes on behind its end"


@pytest.mark.parametrize("bonus", ["target", "arbitrated"])
def test_texts_fill_the_targets_context_to_the_last_place(bonus: str) -> None:
    pair = dataclasses.replace(repeating_target(), target_context=30, draft_context=30)
    found = decoded(pair, drafter_named("ngram"), PROMPTS, bonus=bonus, max_new_tokens=100, batch_size=3)
    expected = decoded(pair, None, PROMPTS, rule="target", max_new_tokens=100)
    assert outputs(found) == outputs(expected)
    assert {len(rollout.prompt_ids) + len(rollout.output_ids) for rollout in found} == {30}


def test_every_rule_that_suits_copies_decodes_with_them() -> None:
    for rule in ("always", "never", "cactus", "ensemble:weight=0.8"):
        sampling = Sampling(temperature=0.8)
        for rollout in decoded(repeating_target(), drafter_named("ngram"), PROMPTS, rule=rule, sampling=sampling):
            assert_counters(rollout)


# ---- what cannot be -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ngram:min_match=4", "min_match 4 above max_match 3"),
        ("ngram:max_match=0", "max_match=0 is out of range"),
        ("ngram:match=middle", "match=middle is out of range: it must be in first or last"),
        ("ngram:depth=3", "has no parameter 'depth': it takes copy, match, max_match, min_match"),
        ("retrieval", "lacks a datastore, as `cospec datastore build` writes it"),
        ("retrieval:nowhere/store", "'nowhere/store' does not exist, so there is no datastore.json"),
    ],
)
def test_what_no_drafter_can_be_is_refused(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drafter_named(spec)


def test_options_without_effect_are_refused(datastore: Path) -> None:
    for spec in ("ngram:copy=9", f"retrieval:{datastore},copy=9"):
        with pytest.raises(ValueError, match="copies up to 9 tokens and a block holds 5"):
            decoded(repeating_target(), drafter_named(spec), PROMPTS[:1])
        with pytest.raises(ValueError, match=r"cost_ratio is 0.1, and drafter .* has no draft steps"):
            decoded(repeating_target(), drafter_named(spec), PROMPTS[:1], num_draft_tokens=9, cost_ratio=0.1)


def test_a_datastore_of_another_tokenizer_is_refused(datastore: Path) -> None:
    pair = dataclasses.replace(repeating_target(), tokenizer_digest="0" * 64)
    with pytest.raises(ValueError, match="was built with another tokenizer"):
        decoded(pair, drafter_named(f"retrieval:{datastore}"), PROMPTS[:1])


@pytest.mark.parametrize("name", ["tokens.bin", "suffixes.bin"])
@pytest.mark.parametrize("harm", ["flip", "cut", "lose"])
def test_a_damaged_datastore_is_refused(datastore: Path, tmp_path: Path, name: str, harm: str) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in datastore.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    body = bytearray((copy / name).read_bytes())
    body[len(body) // 2] ^= 1
    (copy / name).write_bytes(body if harm == "flip" else body[:-4])
    if harm == "lose":
        (copy / name).unlink()
    message = f"has no {name}" if harm == "lose" else "is damaged"
    with pytest.raises(ValueError, match=message):
        decoded(repeating_target(), drafter_named(f"retrieval:{copy}"), PROMPTS[:1])


def test_a_datastores_card_must_be_readable(datastore: Path, tmp_path: Path) -> None:
    card = tmp_path / "datastore.json"
    for text, message in (("{", "cannot be read"), ("{}", "cannot be read")):
        card.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=message):
            drafter_named(f"retrieval:{tmp_path}")
    whole = (datastore / "datastore.json").read_text()
    for wrong in ("3", '"4"', "true", "null"):
        card.write_text(whole.replace('"place_bytes": 4', f'"place_bytes": {wrong}'))
        with pytest.raises(ValueError, match=r"cannot be read .*place_bytes"):
            drafter_named(f"retrieval:{tmp_path}")
    card.write_text(whole.replace('"layout_version": 1', '"layout_version": 2'))
    with pytest.raises(ValueError, match="layout version 2, this is 1"):
        drafter_named(f"retrieval:{tmp_path}")


def test_a_datastore_needs_texts_and_a_new_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there are no texts"):
        build_datastore([], word_tokenizer(), tmp_path / "store")
    with pytest.raises(ValueError, match="is there already"):
        build_datastore([[BOS, 5]], word_tokenizer(), tmp_path)
    assert list(tmp_path.iterdir()) == []
    info = build_datastore([[BOS, 5, VOCAB_SIZE - 1], [6]], word_tokenizer(), tmp_path / "store")
    assert (info.num_tokens, info.num_texts, info.largest_id) == (6, 2, VOCAB_SIZE - 1)
    assert [file.name for file in tmp_path.iterdir()] == ["store"]


def test_an_arbiter_needs_the_draft_models_own_tokens() -> None:
    with pytest.raises(ValueError, match="rule 'arbiter' judges the draft model's tokens over its cache"):
        check_use(drafter_named("ngram"), arbiter=True, cost_ratio=None)
    check_use(drafter_named("model"), arbiter=True, cost_ratio=0.2)
