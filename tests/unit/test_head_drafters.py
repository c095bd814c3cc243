"""Drafting with EAGLE-3 heads and MTP layers: exact, whatever the head and the batch."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import pytest
import torch
from conftest import VOCAB_SIZE, family_pair, late_ids, pair_of, random_prompts, tiny_config, tiny_model
from engine_checks import assert_counters, decode, outputs, trace
from heads import (
    drafted_again,
    eagle3_head,
    features_of,
    logits_again,
    memoryless_target,
    mtp_head,
    plain_states,
    saved_drafter,
)
from reference import generated
from test_sampling import (
    TOY_SIZE,
    all_outcomes,
    assert_same_law,
    chain_law,
    law_of,
    nothing_matters_behind_a_rejection,
)

from cospec.engine.contexts import Contexts
from cospec.engine.drafters import Draft, Drafter, RunShape
from cospec.engine.drafters.head import BoundHeadDrafter, HeadDrafter
from cospec.engine.heads import DraftHead
from cospec.engine.record import Sampling
from cospec.engine.sampling import Draws, processed_rows
from cospec.pair import Pair
from cospec.training.unroll import Unrolled

KINDS = ["eagle3", "mtp"]
NUM_TOKENS = 18


@pytest.fixture(params=["llama-sdpa", "qwen3-eager"])
def family(request: pytest.FixtureRequest) -> Pair:
    return family_pair(*request.param.rsplit("-", 1))


@pytest.fixture(params=KINDS)
def drafter(request: pytest.FixtureRequest, family: Pair, tmp_path: Path) -> Drafter:
    return saved_drafter(request.param, family, tmp_path / request.param)


# ---- exactness ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 4])
def test_strict_writes_the_targets_own_text(
    family: Pair, drafter: Drafter, prompts: list[list[int]], batch_size: int
) -> None:
    rollouts = decode(
        family, "strict", prompts, drafter=drafter, batch_size=batch_size, max_new_tokens=NUM_TOKENS, num_draft_tokens=4
    )
    assert outputs(rollouts) == [generated(family.target, prompt, NUM_TOKENS) for prompt in prompts]
    for rollout in rollouts:
        assert_counters(rollout)
        assert rollout.settings.drafter == drafter.spec
    assert any(rollout.num_drafted > rollout.num_accepted for rollout in rollouts)


def test_drafts_equal_those_of_full_recomputation(family: Pair, drafter: Drafter, prompts: list[list[int]]) -> None:
    """Caches, batches, refills, accepted and rejected drafts leave no trace in what is drafted next."""
    for rule in ("strict", "always"):
        rollouts = decode(family, rule, prompts, drafter=drafter, batch_size=4, max_new_tokens=12, num_draft_tokens=3)
        for rollout in rollouts:
            text = [*rollout.prompt_ids, *rollout.output_ids]
            for block in rollout.blocks:
                before = text[: block.start]
                if len(before) > 1:
                    assert list(block.draft_ids) == drafted_again(drafter.head, before, len(block.draft_ids))
                else:
                    assert not block.draft_ids, "a single token has no hidden state before it"


@pytest.mark.parametrize("bonus", ["target", "arbitrated"])
def test_a_batch_equals_its_texts_alone(family: Pair, drafter: Drafter, prompts: list[list[int]], bonus: str) -> None:
    eos = late_ids([generated(family.target, prompt, NUM_TOKENS) for prompt in prompts])
    settings = {"bonus": bonus, "max_new_tokens": NUM_TOKENS, "num_draft_tokens": 3, "eos_token_ids": eos}
    rule = "strict" if bonus == "target" else "never"
    rollouts = decode(family, rule, prompts, drafter=drafter, batch_size=4, prefill_chunk=5, **settings)
    assert {rollout.finish_reason for rollout in rollouts} == {"eos", "length"}
    for number, (prompt, rollout) in enumerate(zip(prompts, rollouts, strict=True)):
        (alone,) = decode(family, rule, [prompt], drafter=drafter, batch_size=1, **settings)
        assert trace(rollout)["blocks"] == trace(alone)["blocks"], number
        assert list(rollout.output_ids) == generated(family.target, prompt, NUM_TOKENS, eos)


def test_a_sampled_text_does_not_depend_on_its_batch(family: Pair, drafter: Drafter, prompts: list[list[int]]) -> None:
    settings = {"sampling": Sampling(0.8, top_p=0.9), "max_new_tokens": 12, "num_draft_tokens": 3, "drafter": drafter}
    together = decode(family, "strict", prompts, batch_size=6, **settings)
    two = decode(family, "strict", prompts, batch_size=2, **settings)
    assert outputs(together) == outputs(two)
    assert [rollout.num_accepted for rollout in together] == [rollout.num_accepted for rollout in two]


def test_a_text_beyond_the_heads_context_goes_on_without_drafts(tmp_path: Path) -> None:
    pair = family_pair("llama", "sdpa")
    drafter = saved_drafter("eagle3", pair, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["transformer_layer_config"]["max_position_embeddings"] = 12
    (tmp_path / "config.json").write_text(json.dumps(config))
    prompts = random_prompts(4, 20, 11, 7)
    rollouts = decode(pair, "strict", prompts, drafter=drafter, batch_size=2, max_new_tokens=14, num_draft_tokens=3)
    assert outputs(rollouts) == [generated(pair.target, prompt, 14) for prompt in prompts]
    for rollout in rollouts:
        drafted = [len(block.draft_ids) for block in rollout.blocks]
        assert all(block.start + len(block.draft_ids) <= 12 or not block.draft_ids for block in rollout.blocks)
        assert any(drafted) == (len(rollout.prompt_ids) < 12)


class Varying(HeadDrafter):
    """Drafts for a row as many tokens as its length modulo four: none in rounds in which others are drafted for."""

    def bind(self, run: RunShape) -> BoundHeadDrafter:
        bound = super().bind(run)
        propose = bound.propose

        def varied(contexts: Contexts, num_steps: int, draws: Draws) -> Draft:
            limits = torch.minimum(contexts.limits, contexts.lengths % 4)
            return propose(dataclasses.replace(contexts, limits=limits), num_steps, draws)

        bound.propose = varied  # type: ignore[method-assign]
        return bound


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["strict", "always"])
def test_blocks_of_varying_length_leave_no_token_unread(kind: str, rule: str, prompts: list[list[int]]) -> None:
    """A row may sit a round out and be drafted for in the next."""
    pair = family_pair("llama", "sdpa")
    drafter = Varying(kind, lambda _: eagle3_head(pair) if kind == "eagle3" else mtp_head(pair))
    rollouts = decode(pair, rule, prompts, drafter=drafter, batch_size=3, max_new_tokens=30, num_draft_tokens=3)
    lengths = set()
    for rollout in rollouts:
        text = [*rollout.prompt_ids, *rollout.output_ids]
        for block, behind in itertools.pairwise(rollout.blocks):
            assert list(block.draft_ids) == drafted_again(drafter.head, text[: block.start], len(block.draft_ids))
            lengths.add((len(block.draft_ids), len(behind.draft_ids)))
    assert (0, 1) in lengths, "of a block and the one behind it"
    assert len({first for first, _ in lengths}) > 2
    if rule == "strict":
        assert outputs(rollouts) == [generated(pair.target, prompt, 30) for prompt in prompts]


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_as_long_as_pays_are_drafted_from_the_whole_text(kind: str, prompts: list[list[int]]) -> None:
    pair = family_pair("llama", "sdpa")
    drafter = HeadDrafter(kind, lambda _: eagle3_head(pair) if kind == "eagle3" else mtp_head(pair))
    rollouts = decode(
        pair, "strict", prompts, drafter=drafter, batch_size=3, max_new_tokens=30, num_draft_tokens=4, cost_ratio=0.1
    )
    for rollout in rollouts:
        text = [*rollout.prompt_ids, *rollout.output_ids]
        blocks = [block for block in rollout.blocks if block.start > 1]
        assert len({len(block.draft_ids) for block in blocks}) > 2
        for block in blocks:
            assert list(block.draft_ids) == drafted_again(drafter.head, text[: block.start], len(block.draft_ids))
    assert outputs(rollouts) == [generated(pair.target, prompt, 30) for prompt in prompts]


# ---- a head that agrees ---------------------------------------------------------------------------------------------


def test_drafts_that_agree_are_accepted() -> None:
    """An MTP layer whose block adds nothing repeats what the target says of the same token: a target without memory."""
    target = memoryless_target()
    pair = pair_of(target, target)
    head = mtp_head(pair)
    with torch.no_grad():
        size = target.config.hidden_size
        head.input_proj.weight.copy_(torch.cat([torch.eye(size), torch.zeros(size, size)], dim=1))
        head.token_layernorm.weight.fill_(1.0)
        head.block.self_attn.o_proj.weight.zero_()
        head.block.mlp.down_proj.weight.zero_()
        head.final_layernorm.load_state_dict(target.model.norm.state_dict())
    drafter = HeadDrafter("mtp", lambda _: head)
    rollouts = decode(pair, "strict", random_prompts(3, 5, 2), drafter=drafter, max_new_tokens=20, num_draft_tokens=4)
    for rollout in rollouts:
        assert rollout.num_accepted == rollout.num_drafted > 0


# ---- the law of sampled texts ---------------------------------------------------------------------------------------


def toy(draft_vocab_size: int) -> tuple[Pair, dict[str, DraftHead]]:
    """A target over three ids and its heads; the EAGLE-3 head drafts ``draft_vocab_size`` of them."""
    shape = {"vocab_size": TOY_SIZE, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    shape |= {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "pad_token_id": None}
    target = tiny_model(tiny_config("llama", **shape, initializer_range=0.6), seed=5)
    pair = pair_of(target, target, vocab_size=TOY_SIZE)
    return pair, {"eagle3": eagle3_head(pair, draft_vocab_size=draft_vocab_size), "mtp": mtp_head(pair)}


@pytest.mark.parametrize("sampling", [Sampling(1.0), Sampling(1.3, min_p=0.2, repetition_penalty=1.7)], ids=str)
@pytest.mark.parametrize(("kind", "draft_vocab_size"), [("eagle3", 2), ("eagle3", 3), ("mtp", 3)])
def test_strict_has_exactly_the_targets_law(kind: str, draft_vocab_size: int, sampling: Sampling) -> None:
    """Every draw enumerated; a head that never drafts an id leaves it to the residual."""
    pair, heads = toy(draft_vocab_size)
    drafter = HeadDrafter(kind, lambda _: heads[kind])
    outcomes = all_outcomes(pair, "strict", 2, 2, sampling, nothing_matters_behind_a_rejection, drafter=drafter)
    assert_same_law(law_of(outcomes), chain_law(pair.target, 2, sampling))
    assert any(rollout.num_accepted for _, rollout in outcomes)
    assert any(rollout.num_accepted < rollout.num_drafted for _, rollout in outcomes)


class Noting(HeadDrafter):
    """Keeps what it proposed, with the texts it was proposed behind; one row at a time."""

    def bind(self, run: RunShape) -> BoundHeadDrafter:
        bound, self.noted = super().bind(run), []
        propose = bound.propose

        def noted(contexts: Contexts, num_steps: int, draws: Draws) -> Draft:
            draft = propose(contexts, num_steps, draws)
            self.noted.append((contexts.ids[0, : contexts.lengths[0]].tolist(), draft))
            return draft

        bound.propose = noted  # type: ignore[method-assign]
        return bound


@pytest.mark.parametrize("kind", KINDS)
def test_q_and_logits_are_those_of_full_recomputation_and_reach_behind_the_block(kind: str) -> None:
    pair = family_pair("llama", "sdpa")
    head = eagle3_head(pair) if kind == "eagle3" else mtp_head(pair)
    drafter, sampling = Noting(kind, lambda _: head), Sampling(0.9)
    decode(
        pair, "ensemble:weight=0.5", random_prompts(6), drafter=drafter, bonus="rule", sampling=sampling,
        max_new_tokens=12, num_draft_tokens=3,
    )  # fmt: skip
    assert len(drafter.noted) >= 3
    for text, draft in drafter.noted:
        num = int(draft.num_positions[0])
        expected = logits_again(head, text, draft.ids[0, :num].tolist())
        torch.testing.assert_close(draft.logits[0, : num + 1], expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(draft.q[0, : num + 1], processed_rows(expected, sampling), atol=1e-5, rtol=1e-4)


def test_contrastive_decoding_takes_heads_that_leave_ids_out(prompts: list[list[int]]) -> None:
    """At beta 0 it is strict, draw for draw; beyond, what is never drafted counts as least likely."""
    pair = family_pair("llama", "sdpa")
    drafter = HeadDrafter("eagle3", lambda _: eagle3_head(pair))
    settings = {"drafter": drafter, "sampling": Sampling(0.9), "max_new_tokens": 10, "num_draft_tokens": 3}
    strict = decode(pair, "strict", prompts, bonus="target", **settings)
    assert outputs(decode(pair, "contrastive:beta=0", prompts, bonus="target", **settings)) == outputs(strict)
    pushed = decode(pair, "contrastive:beta=1", prompts, **settings)
    assert outputs(pushed) != outputs(strict)
    written = {token for rollout in pushed for token in rollout.output_ids}
    assert len(written) > 5


@pytest.mark.parametrize("kind", KINDS)
def test_q_is_the_heads_own_row_over_the_targets_ids(kind: str, tmp_path: Path) -> None:
    pair = family_pair("llama", "sdpa")
    head = saved_drafter(kind, pair, tmp_path)
    head.load(pair, 4)
    states = torch.randn(3, pair.target.config.hidden_size, generator=torch.Generator().manual_seed(3))
    logits = head.head.logits(states)
    assert logits.shape == (3, VOCAB_SIZE)
    known = logits.isfinite().all(0)
    assert known.sum() == (40 if kind == "eagle3" else VOCAB_SIZE)
    if kind == "eagle3":
        assert not known[: VOCAB_SIZE - 40].any()
        torch.testing.assert_close(logits[:, VOCAB_SIZE - 40 :], head.head.draft_logits(states))


# ---- training unrolls what drafting does ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_training_unrolls_the_states_of_drafting(family: Pair, kind: str) -> None:
    """Step k at place t has the state that drafting would have, fed the text's tokens."""
    head = eagle3_head(family) if kind == "eagle3" else mtp_head(family)
    text, seen = random_prompts(9, seed=6)[0], []
    read = head.read

    def noted(*args: object) -> torch.Tensor:
        seen.append(read(*args))
        return seen[-1]

    head.read = noted  # type: ignore[method-assign]
    ids = torch.tensor([text])
    Unrolled(head, 3)(ids, ids)
    head.read = read  # type: ignore[method-assign]
    hidden = features_of(head, text)[:, :-1]
    for place in range(1, len(text) - 4):
        behind, states = list(text[1 : place + 2]), hidden[:, : place + 1]
        for step in range(3):
            newest = plain_states(head, behind, states)[:, -1:]
            torch.testing.assert_close(seen[step][:, place], newest[:, 0], atol=1e-4, rtol=1e-4)
            behind, states = [*behind, text[place + 2 + step]], torch.cat([states, newest], dim=1)
