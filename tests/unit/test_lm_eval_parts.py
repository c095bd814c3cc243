"""What the lm-evaluation-harness adapter is made of, without the harness: stop strings and log-likelihoods."""

from __future__ import annotations

import pytest
import torch
from conftest import family_pair, random_prompts

from cospec.evaluation.lm_eval.likelihood import Continuation, log_likelihoods


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_log_likelihoods_do_not_depend_on_the_batch(family: str, batch_size: int) -> None:
    pair = family_pair(family, "sdpa")
    texts = random_prompts(2, 5, 9, 30, 4, 17, seed=3)
    wanted = [Continuation(tuple(ids[:cut]), tuple(ids[cut:])) for ids in texts for cut in (1, len(ids) // 2)]
    counts: list[int] = []
    found = log_likelihoods(pair.target, pair.vocab_size, wanted, batch_size, counts.append)
    assert sum(counts) == len(wanted)
    for one, (logp, is_greedy) in zip(wanted, found, strict=True):
        logits = pair.target(torch.tensor([[*one.context, *one.ids]])).logits[0]
        rows = logits[len(one.context) - 1 : -1].log_softmax(-1)
        assert logp == pytest.approx(float(sum(row[token] for row, token in zip(rows, one.ids, strict=True))), abs=1e-4)
        assert is_greedy == (rows.argmax(-1).tolist() == list(one.ids))


def test_a_greedy_continuation_is_known_as_one() -> None:
    pair = family_pair("llama", "sdpa")
    ids = random_prompts(5)[0]
    for _ in range(4):
        ids = [*ids, int(pair.target(torch.tensor([ids])).logits[0, -1].argmax())]
    [(logp, is_greedy)] = log_likelihoods(
        pair.target, pair.vocab_size, [Continuation(tuple(ids[:5]), tuple(ids[5:]))], 1
    )
    assert is_greedy
    assert logp < 0


def test_padding_ids_have_no_probability() -> None:
    pair = family_pair("llama", "sdpa")
    wanted = [Continuation((1, 9), (token,)) for token in range(20)]
    found = log_likelihoods(pair.target, 20, wanted, 7)
    assert sum(torch.tensor([logp for logp, _ in found]).exp()) == pytest.approx(1.0, abs=1e-4)
