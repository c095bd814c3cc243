"""The law of whole texts as the engine draws them: models, caches, sampling and its own random numbers together."""

from __future__ import annotations

import math

import pytest
import torch
from conftest import pair_of, perturbed, random_prompts, tiny_config, tiny_model
from engine_checks import decode

from cospec.engine.record import Rollout, Sampling
from cospec.pair import Pair

#: Wide enough that the rows of top-p are made from the likeliest tokens first.
VOCAB = 5000


@pytest.fixture(scope="module")
def wide() -> Pair:
    config = tiny_config("llama", vocab_size=VOCAB, initializer_range=0.6)
    draft = perturbed(tiny_model(config, seed=1), seed=2, scale=0.04)
    return pair_of(draft, tiny_model(config, seed=1), VOCAB)


def targets_rows(pair: Pair, rollout: Rollout, sampling: Sampling) -> torch.Tensor:
    """Log-probabilities (n, V) of the target behind every prefix of the text, from one pass and a plain sort."""
    prompt, text = list(rollout.prompt_ids), list(rollout.output_ids)
    with torch.no_grad():
        logits = pair.target(torch.tensor([prompt + text])).logits[0, len(prompt) - 1 : -1]
    p = (logits.double() / sampling.temperature).softmax(-1)
    ordered, order = p.sort(-1, descending=True)
    kept = torch.zeros_like(p).scatter(-1, order, (ordered.cumsum(-1) - ordered < sampling.top_p).double())
    return (kept * p / (kept * p).sum(-1, keepdim=True)).log()


def surprise(pair: Pair, rule: str, sampling: Sampling, num_draft_tokens: int) -> tuple[float, int, float]:
    """How far the texts' log-probability under the target is from what its own would be, in standard deviations.

    Behind every prefix the expectation of log p(x) under p is -H(p), so that the sum of log p(x) + H(p) over a text of
    the target's law is a martingale. Further: how many tokens p excludes, and the tokens of a round.
    """
    prompts = random_prompts(*[6] * 60, vocab_size=VOCAB)
    settings = {"num_draft_tokens": num_draft_tokens, "max_new_tokens": 30, "batch_size": 30, "sampling": sampling}
    rollouts = decode(pair, rule, prompts, **settings)
    total = variance = 0.0
    outside = 0
    for rollout in rollouts:
        rows = targets_rows(pair, rollout, sampling)
        found = rows[range(len(rows)), list(rollout.output_ids)]
        written = found > -math.inf
        outside += int((~written).sum())
        p, finite = rows.exp(), rows.masked_fill(rows == -math.inf, 0.0)
        mean = (p * finite).sum(-1)
        total += float((found - mean)[written].sum())
        variance += float(((p * finite**2).sum(-1) - mean**2).sum())
    tokens = sum(len(rollout.output_ids) for rollout in rollouts)
    return total / variance**0.5, outside, tokens / sum(len(rollout.blocks) for rollout in rollouts)


@pytest.mark.parametrize(
    ("sampling", "num_draft_tokens"),
    [(Sampling(0.8), 4), (Sampling(0.8, top_p=0.9), 4), (Sampling(0.8, top_p=0.9), 1)],
    ids=["whole", "top-p", "top-p, one token"],
)
def test_stricts_texts_are_as_likely_as_the_targets_own(wide: Pair, sampling: Sampling, num_draft_tokens: int) -> None:
    deviation, outside, tokens_per_round = surprise(wide, "strict", sampling, num_draft_tokens)
    assert abs(deviation) < 3.5
    assert outside == 0
    assert 1.2 < tokens_per_round < 0.8 * (num_draft_tokens + 1), (
        "the pair says nothing: all is rejected, or all accepted"
    )


@pytest.mark.parametrize("rule", ["lenience:alpha=0.9", "ensemble:weight=0.7"])
def test_relaxed_texts_are_not(wide: Pair, rule: str) -> None:
    """The check can fail."""
    deviation, _, _ = surprise(wide, rule, Sampling(0.8), 4)
    assert deviation < -5
