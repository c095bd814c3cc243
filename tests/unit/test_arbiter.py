"""The arbiter: layout by hand, cached against uncached scores, packed against per-block scores and gradients."""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from conftest import VOCAB_SIZE, family_pair, late_ids, pair_of, perturbed, random_prompts, tiny_config, tiny_model
from peft import PeftModel
from reference import Uncached
from torch import Tensor
from transformers.cache_utils import DynamicCache

from cospec.arbiter.layout import (
    Packed,
    PackItem,
    context_mask,
    decisions_item,
    pack,
    region_mask,
    region_rows,
    region_width,
)
from cospec.arbiter.model import ArbiterScorer, LoraSpec, new_arbiter, separator
from cospec.engine.cache import cache_argument
from cospec.engine.cached_model import CachedModel
from cospec.engine.decode import Engine
from cospec.engine.record import Block, Bonus, ContextCache, Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, Regions, rule_named
from cospec.pair import Pair

SEP = 2
MODES: tuple[ContextCache, ...] = ("shared", "own")


def fresh_arbiter(draft: torch.nn.Module, mode: ContextCache, seed: int = 0) -> PeftModel:
    """A random arbiter whose LoRA acts and whose opinions differ from block to block."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        arbiter = new_arbiter(draft, mode, LoraSpec(r=4, alpha=8))
        with torch.no_grad():
            for name, weight in arbiter.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.2)
                elif name.endswith("score.weight") and weight.requires_grad:
                    weight.mul_(12.0)
    return arbiter.eval()


#: For tests that leave the weights as they are.
live_arbiter = functools.cache(fresh_arbiter)


class Recording:
    """A scorer that notes every block it was asked about, and what it answered."""

    def __init__(self, arbiter: PeftModel) -> None:
        self.scorer = ArbiterScorer(arbiter, SEP)
        self.context_cache = self.scorer.context_cache
        #: (context, draft ids, target ids, logits)
        self.seen: list[tuple[list[int], list[int], list[int], Tensor]] = []

    def bind(self, draft: CachedModel) -> Recording:
        self._bound = self.scorer.bind(draft)
        self.admit, self.select_rows = self._bound.admit, self._bound.select_rows
        return self

    def score(self, regions: Regions, rows: Tensor) -> Tensor:
        logits = self._bound.score(regions, rows)
        assert logits.shape == (len(rows), regions.draft_ids.shape[1])
        for row, values in zip(rows.tolist(), logits, strict=True):
            n = int(regions.num_positions[row])
            context = regions.ids[row, : int(regions.lengths[row])].tolist()
            block = regions.draft_ids[row, :n].tolist(), regions.target_ids[row, :n].tolist()
            self.seen.append((context, *block, values[:n].clone()))
        return logits


def uncached_logits(
    arbiter: PeftModel, draft: torch.nn.Module, context: Sequence[int], mine: Sequence[int], other: Sequence[int]
) -> Tensor:
    """Keep logits (n,) of one block alone: ``context SEP d SEP t SEP`` in full, without the engine and the packing."""
    net = arbiter.get_base_model()
    region = [SEP, *mine, SEP, *other, SEP]
    num, width = len(context), len(region)
    allowed = torch.ones(num + width, num + width, dtype=torch.bool).tril()
    allowed[num + 1 :] = True
    mask = allowed[None, None]
    if net.backbone.config._attn_implementation == "eager":
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    positions = torch.arange(num + width)[None]
    if net.context_cache == "own":
        ids = torch.tensor([[*context, *region]])
        output = net.backbone(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
        hidden = output.last_hidden_state[0, num:]
    else:
        cache = DynamicCache()
        with torch.no_grad():
            draft(input_ids=torch.tensor([list(context)]), use_cache=True, **{cache_argument(draft): cache})
        hidden = net.backbone(
            input_ids=torch.tensor([region]),
            attention_mask=mask[:, :, num:],
            position_ids=positions[:, num:],
            use_cache=True,
            **{cache_argument(net.backbone): cache},
        ).last_hidden_state[0]
    return net.head(hidden[1 : 1 + len(mine)])


def decode(pair: Pair, rule: Any, prompts: Sequence[Sequence[int]], **settings: Any) -> list[Rollout]:
    requests = [Request(i, prompt) for i, prompt in enumerate(prompts)]
    return Engine(pair, rule, **settings).rollouts(requests)


def arbitrated(pair: Pair, mode: ContextCache, prompts: Sequence[Sequence[int]], **settings: Any) -> list[Rollout]:
    rule = ArbiterRule(ArbiterScorer(live_arbiter(pair.draft, mode), SEP))
    return decode(pair, rule, prompts, **({"num_draft_tokens": 3, "max_new_tokens": 12} | settings))


def context_of(rollout: Rollout, block: Block) -> list[int]:
    return [*rollout.prompt_ids, *rollout.output_ids][: block.start]


def art(mask: Tensor) -> list[str]:
    return ["".join(".x"[int(cell)] for cell in row) for row in mask]


# ---- layout ---------------------------------------------------------------------------------------------------------


def test_region_layout_by_hand() -> None:
    region = region_rows(
        torch.tensor([[5, 6], [7, 40]]),
        torch.tensor([[5, 8], [9, 41]]),
        num_positions=torch.tensor([2, 1]),
        starts=torch.tensor([3, 10]),
        sep=SEP,
    )
    assert region.ids[0].tolist() == [SEP, 5, 6, SEP, 5, 8, SEP]
    assert region.ids[1, :5].tolist() == [SEP, 7, SEP, 9, SEP]
    assert region.positions.tolist() == [[3, 4, 5, 6, 7, 8, 9], [10, 11, 12, 13, 14, 14, 14]]
    assert art(region.real) == ["xxxxxxx", "xxxxx.."]
    assert art(region.among[0]) == ["x......", *["xxxxxxx"] * 6]
    assert art(region.among[1]) == ["x......", *["xxxxx.."] * 4, ".....x.", "......x"]
    assert region_width(2) == 7


def two_blocks() -> PackItem:
    blocks = [
        Block(2, (5, 6), (5, 8), (), 1, (5, 8)),
        Block(4, (7,), (9,), (), 0, (9,)),
    ]
    return PackItem([10, 11, 5, 8, 9], blocks, [[1], [0]])


def test_packed_layout_by_hand() -> None:
    packed = pack([two_blocks()], SEP)
    # The token behind the last block's start is seen by no region.
    assert packed.context_ids.tolist() == [[10, 11, 5, 8]]
    assert packed.context_lengths.tolist() == [4]
    assert packed.region_ids.tolist() == [[SEP, 5, 6, SEP, 5, 8, SEP, SEP, 7, SEP, 9, SEP]]
    assert packed.region_positions.tolist() == [[2, 3, 4, 5, 6, 7, 8, 4, 5, 6, 7, 8]]
    assert packed.read_at.tolist() == [[2, 8]]
    assert art(context_mask(packed)[0]) == ["x...", "xx..", "xxx.", "xxxx"]
    assert art(region_mask(packed)[0]) == [
        "xx..x...........",
        *["xx..xxxxxxx....."] * 6,
        "xxxx.......x....",
        *["xxxx.......xxxxx"] * 4,
    ]


def test_no_row_of_a_padded_pack_is_blind() -> None:
    packed = pack([two_blocks(), PackItem([10, 11], [], []), PackItem([4] * 9, two_blocks().blocks[:1], [[0, 1]])], SEP)
    assert region_mask(packed).any(2).all()
    assert context_mask(packed).any(2).all()
    assert packed.read_mask.sum(1).tolist() == [2, 0, 2]
    padding = packed.region_blocks < 0
    assert (region_mask(packed)[padding].sum(1) == 1).all(), "padding sees more than itself"
    assert not region_mask(packed)[:, :, packed.context_ids.shape[1] :][~padding][:, 0].all()


# ---- scores inside the engine ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bonus", ["arbitrated", "target"])
def test_cached_scores_equal_uncached_ones_in_a_refilled_batch(
    untied: Pair, prompts: list[list[int]], mode: ContextCache, bonus: Bonus
) -> None:
    arbiter = live_arbiter(untied.draft, mode)
    settings = {"num_draft_tokens": 3, "bonus": bonus, "batch_size": 3, "max_new_tokens": 10}
    free = decode(untied, ArbiterRule(ArbiterScorer(arbiter, SEP)), prompts, **settings)
    # End ids from two rows' own texts, so that rows end early, blocks are ragged and places are refilled.
    settings["eos_token_ids"] = late_ids([rollout.output_ids for rollout in free])
    recording = Recording(arbiter)
    rollouts = decode(untied, ArbiterRule(recording), prompts, **settings)
    assert len({len(rollout.output_ids) for rollout in rollouts}) > 1
    expected = {}
    for context, mine, other, logits in recording.seen:
        assert mine != other, "a block without a mismatch was scored"
        with torch.no_grad():
            alone = uncached_logits(arbiter, untied.draft, context, mine, other)
        torch.testing.assert_close(logits, alone, atol=1e-5, rtol=1e-5)
        expected[tuple(context), tuple(mine)] = torch.sigmoid(alone).tolist()
    num_blocks = 0
    for rollout in rollouts:
        for block in rollout.blocks:
            if block.decisions:
                num_blocks += 1
                probs = expected[tuple(context_of(rollout, block)), block.draft_ids]
                for decision in block.decisions:
                    assert decision.keep_prob == pytest.approx(probs[decision.position], abs=1e-5)
                    assert decision.kept == (decision.keep_prob > 0.5)
    assert num_blocks == len(recording.seen)
    kept = [decision.kept for rollout in rollouts for decision in rollout.decisions]
    assert len(kept) >= 12
    assert 0 < sum(kept) < len(kept), "the random arbiter has one opinion only"


@pytest.mark.parametrize("mode", MODES)
def test_an_arbiter_pass_leaves_no_trace(untied: Pair, prompts: list[list[int]], mode: ContextCache) -> None:
    draft, target = Uncached(untied.draft, VOCAB_SIZE), Uncached(untied.target, VOCAB_SIZE)
    for rollout in arbitrated(untied, mode, prompts, batch_size=4):
        for block in rollout.blocks:
            text = context_of(rollout, block)
            for mine, other in zip(block.draft_ids, block.target_ids, strict=True):
                assert (mine, other) == (draft.choice(text), target.choice(text))
                text.append(mine)


@pytest.mark.parametrize("mode", MODES)
def test_arbitrated_texts_do_not_depend_on_the_batch(llama: Pair, prompts: list[list[int]], mode: ContextCache) -> None:
    singles = [arbitrated(llama, mode, [prompt])[0] for prompt in prompts]
    for order, batch_size in (([5, 2, 0, 4, 3, 1], 2), ([1, 3, 5, 0, 2, 4], 6)):
        for i, rollout in zip(
            order, arbitrated(llama, mode, [prompts[i] for i in order], batch_size=batch_size), strict=True
        ):
            assert rollout.output_ids == singles[i].output_ids
            assert [d.kept for d in rollout.decisions] == [d.kept for d in singles[i].decisions]
            probs = [d.keep_prob for d in rollout.decisions]
            assert probs == pytest.approx([d.keep_prob for d in singles[i].decisions], abs=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_a_region_fits_into_the_drafts_context(mode: ContextCache, prompts: list[list[int]]) -> None:
    draft = perturbed(tiny_model(tiny_config("llama", max_position_embeddings=24), seed=1), seed=2, scale=0.02)
    pair = pair_of(draft, family_pair("llama", "sdpa").target)
    everyone = [*prompts, *random_prompts(18, 19, 20, 23, 24, 25, 40, seed=6)]
    for batch_size in (1, 4):
        for rollout in arbitrated(pair, mode, everyone, batch_size=batch_size, max_new_tokens=16):
            assert len(rollout.output_ids) == 16
            for block in rollout.blocks:
                n = len(block.draft_ids)
                assert n == 0 or block.start + region_width(n) <= 24
        assert rollout.num_drafted == 0


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0)], ids=["greedy", "sampling"])
def test_arbiter_rule_survives_a_round_in_which_nobody_may_draft(sampled: bool, sampling: Sampling) -> None:
    draft = tiny_model(tiny_config("llama", max_position_embeddings=8), seed=1)
    pair = pair_of(draft, family_pair("llama", "sdpa").target)
    rule = ArbiterRule(ArbiterScorer(live_arbiter(draft, "shared"), SEP), sampled=sampled)
    for rollout in decode(pair, rule, random_prompts(2, 7, 9), max_new_tokens=12, sampling=sampling):
        assert len(rollout.output_ids) == 12
        assert rollout.blocks[-1].draft_ids == ()


# ---- the rule -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [-0.01, 1.01, float("nan")])
def test_thresholds_outside_0_and_1_are_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        ArbiterRule(Recording(live_arbiter(family_pair("llama", "sdpa").draft, "shared")), threshold)


@pytest.mark.parametrize("mode", MODES)
def test_extreme_thresholds_are_the_two_controls(llama: Pair, prompts: list[list[int]], mode: ContextCache) -> None:
    scorer = ArbiterScorer(live_arbiter(llama.draft, mode), SEP)
    for threshold, control in ((1.0, "never"), (0.0, "always")):
        texts = [
            [rollout.output_ids for rollout in decode(llama, rule, prompts, max_new_tokens=10)]
            for rule in (ArbiterRule(scorer, threshold), rule_named(control))
        ]
        assert texts[0] == texts[1]


def test_settings_record_the_rule(llama: Pair) -> None:
    rule = ArbiterRule(ArbiterScorer(live_arbiter(llama.draft, "own"), SEP), 0.3, sampled=True)
    settings = decode(llama, rule, [[5, 6]], max_new_tokens=2)[0].settings
    assert (settings.rule, settings.threshold, settings.sampled_decisions) == ("arbiter", 0.3, True)
    assert (settings.context_cache, settings.bonus) == ("own", "arbitrated")


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8)], ids=["greedy", "sampling"])
def test_sampled_decisions_follow_the_keep_probability_and_the_seed(llama: Pair, sampling: Sampling) -> None:
    prompts = random_prompts(*[5] * 16, seed=9)
    arbiter = live_arbiter(llama.draft, "shared")

    def played(seed: int, order: Sequence[int], batch_size: int) -> dict[int, tuple[Rollout, list[bool]]]:
        rule = ArbiterRule(ArbiterScorer(arbiter, SEP), sampled=True)
        engine = Engine(llama, rule, max_new_tokens=12, seed=seed, batch_size=batch_size, sampling=sampling)
        rollouts = engine.rollouts([Request(i, prompts[i]) for i in order])
        return {rollout.id: (rollout.output_ids, [d.kept for d in rollout.decisions]) for rollout in rollouts}, rollouts

    first, rollouts = played(0, range(16), 8)
    again, _ = played(0, random.Random(2).sample(range(16), 16), 5)
    other, _ = played(1, range(16), 8)
    assert again == first
    assert other != first
    decisions = [decision for rollout in rollouts for decision in rollout.decisions]
    spread = sum(d.keep_prob * (1 - d.keep_prob) for d in decisions) ** 0.5
    assert len(decisions) > 40
    assert spread > 2, "the decisions are too certain to test anything"
    assert abs(sum(d.kept for d in decisions) - sum(d.keep_prob for d in decisions)) < 4 * spread
    assert any(d.kept != (d.keep_prob > 0.5) for d in decisions), "nothing was sampled"


# ---- the packed form ------------------------------------------------------------------------------------------------


def packed_logits(arbiter: PeftModel, items: Sequence[PackItem]) -> tuple[Tensor, Packed]:
    packed = pack(items, SEP)
    return arbiter(**packed.tensors()), packed


@pytest.mark.parametrize("mode", MODES)
def test_packed_scores_equal_per_block_and_decoding_scores(
    untied: Pair, prompts: list[list[int]], mode: ContextCache
) -> None:
    arbiter = live_arbiter(untied.draft, mode)
    rollouts = arbitrated(untied, mode, prompts)
    with torch.no_grad():
        together, packed = packed_logits(arbiter, [decisions_item(rollout) for rollout in rollouts])
        assert together.shape == packed.read_mask.shape
        for rollout, row, real in zip(rollouts, together, packed.read_mask, strict=True):
            expected = [
                uncached_logits(arbiter, untied.draft, context_of(rollout, block), block.draft_ids, block.target_ids)[
                    decision.position
                ]
                for block in rollout.blocks
                for decision in block.decisions
            ]
            assert int(real.sum()) == len(expected) == rollout.num_mismatches
            torch.testing.assert_close(row[: len(expected)], torch.stack(expected), atol=1e-5, rtol=1e-5)
            probs = [decision.keep_prob for decision in rollout.decisions]
            assert torch.sigmoid(row[real]).tolist() == pytest.approx(probs, abs=1e-5)
            alone, _ = packed_logits(arbiter, [decisions_item(rollout)])
            torch.testing.assert_close(row[real], alone[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_blocks_before_and_behind_a_region_do_not_touch_it(llama: Pair, mode: ContextCache) -> None:
    """Any positions of any blocks can be read, in a pack of all blocks as in a pack of one."""
    arbiter = live_arbiter(llama.draft, mode)
    rollout = arbitrated(llama, mode, random_prompts(6, seed=3))[0]
    blocks = [block for block in rollout.blocks if block.draft_ids]
    text = [*rollout.prompt_ids, *rollout.output_ids]
    read = [list(range(len(block.draft_ids))) for block in blocks]
    with torch.no_grad():
        whole = packed_logits(arbiter, [PackItem(text, blocks, read)])[0][0]
        parts = [packed_logits(arbiter, [PackItem(text, [b], [r])])[0][0] for b, r in zip(blocks, read, strict=True)]
    torch.testing.assert_close(whole, torch.cat(parts), atol=1e-5, rtol=1e-5)


def gradient_of(arbiter: PeftModel, loss: Callable[[], Tensor]) -> dict[str, Tensor]:
    arbiter.train()
    arbiter.zero_grad(set_to_none=True)
    loss().backward()
    return {name: weight.grad.clone() for name, weight in arbiter.named_parameters() if weight.requires_grad}


def assert_same_gradient(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float = 1e-5) -> None:
    assert one.keys() == other.keys()
    for name, gradient in one.items():
        assert gradient.norm() > 0, f"{name} has no gradient"
        assert (gradient - other[name]).norm() <= tolerance * gradient.norm(), name


@pytest.mark.parametrize("mode", MODES)
def test_packed_gradient_equals_the_per_block_one(untied: Pair, prompts: list[list[int]], mode: ContextCache) -> None:
    arbiter = live_arbiter(untied.draft, mode)
    rollouts = arbitrated(untied, mode, prompts[1:5])
    labels = iter(random.Random(0).choices([0.0, 0.2, 1.0], k=200))
    wanted = [[[next(labels) for _ in b.decisions] for b in r.blocks if b.decisions] for r in rollouts]

    def loss_of(logits: Tensor, values: Sequence[float]) -> Tensor:
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor(values), reduction="sum")

    def packed_loss() -> Tensor:
        logits, packed = packed_logits(arbiter, [decisions_item(rollout) for rollout in rollouts])
        return loss_of(logits[packed.read_mask], [value for row in wanted for block in row for value in block])

    def blockwise_loss() -> Tensor:
        total = torch.zeros(())
        for rollout, row in zip(rollouts, wanted, strict=True):
            for block, values in zip([b for b in rollout.blocks if b.decisions], row, strict=True):
                context = context_of(rollout, block)
                logits = uncached_logits(arbiter, untied.draft, context, block.draft_ids, block.target_ids)
                total = total + loss_of(logits[[d.position for d in block.decisions]], values)
        return total

    assert_same_gradient(gradient_of(arbiter, packed_loss), gradient_of(arbiter, blockwise_loss))


@pytest.mark.parametrize("mode", MODES)
def test_a_rollout_without_decisions_packs_and_reads_nothing(llama: Pair, mode: ContextCache) -> None:
    arbiter = live_arbiter(llama.draft, mode)
    plain = decode(llama, rule_named("target"), [[5, 6, 7]], max_new_tokens=4)[0]
    busy = arbitrated(llama, mode, random_prompts(6, seed=3))[0]
    logits, packed = packed_logits(arbiter, [decisions_item(plain)])
    assert not packed.read_mask.any()
    assert torch.equal(logits, torch.zeros_like(logits))
    both, packed = packed_logits(arbiter, [decisions_item(plain), decisions_item(busy)])
    assert both.isfinite().all()
    assert torch.equal(both[0], torch.zeros_like(both[0]))
    torch.testing.assert_close(both[1], packed_logits(arbiter, [decisions_item(busy)])[0][0], atol=1e-5, rtol=1e-5)
    gradient = gradient_of(arbiter, lambda: packed_logits(arbiter, [decisions_item(plain)])[0].sum())
    assert all(not value.any() for value in gradient.values())


def test_a_pack_holds_the_text_once_and_each_region_once(llama: Pair, prompts: list[list[int]]) -> None:
    for rollout in arbitrated(llama, "shared", prompts):
        packed = pack([decisions_item(rollout)], SEP)
        with_decisions = [block for block in rollout.blocks if block.decisions]
        assert with_decisions
        assert int((packed.region_blocks >= 0).sum()) == sum(region_width(len(b.draft_ids)) for b in with_decisions)
        assert packed.context_ids.numel() <= len(rollout.prompt_ids) + len(rollout.output_ids)
        assert packed.context_ids.numel() == max(block.start for block in with_decisions)


# ---- weights --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_training_moves_lora_and_head_and_nothing_else(
    untied: Pair, prompts: list[list[int]], mode: ContextCache
) -> None:
    before = copy.deepcopy(untied.draft.state_dict())
    arbiter = fresh_arbiter(untied.draft, mode)
    items = [decisions_item(rollout) for rollout in arbitrated(untied, mode, prompts[:3])]
    parameters = dict(arbiter.named_parameters())
    trainable = {name for name, weight in parameters.items() if weight.requires_grad}
    lora = {name for name in trainable if "lora_A" in name or "lora_B" in name}
    # q, k, v, o, gate, up, down of two layers, A and B each; norm and two linear layers of the head.
    assert len(lora) == 7 * 2 * 2
    assert {name.split("default.")[-1] for name in trainable - lora} == {
        f"{part}.{kind}" for part in ("normalise", "reduce", "score") for kind in ("weight", "bias")
    }
    assert all(".head." in name for name in trainable - lora)
    assert not any(weight.requires_grad for weight in untied.draft.parameters())
    frozen = {name: parameters[name].clone() for name in parameters.keys() - trainable}
    old = {name: parameters[name].detach().clone() for name in trainable}
    optimizer = torch.optim.SGD([parameters[name] for name in trainable], lr=0.1)
    arbiter.train()
    packed_logits(arbiter, items)[0].square().sum().backward()
    optimizer.step()
    assert all(not torch.equal(parameters[name], old[name]) for name in trainable)
    assert all(torch.equal(parameters[name], value) for name, value in frozen.items())
    assert all(torch.equal(value, before[name]) for name, value in untied.draft.state_dict().items())


@pytest.mark.parametrize("mode", MODES)
def test_the_arbiter_shares_the_drafts_memory_and_leaves_its_modules_alone(untied: Pair, mode: ContextCache) -> None:
    classes = [type(module) for module in untied.draft.modules()]
    backbone = live_arbiter(untied.draft, mode).get_base_model().backbone
    mine = {name.replace(".base_layer", ""): tensor for name, tensor in backbone.named_parameters()}
    for name, weight in untied.draft.base_model.named_parameters():
        assert mine[name].data_ptr() == weight.data_ptr(), name
    buffers = dict(backbone.named_buffers())
    for name, buffer in untied.draft.base_model.named_buffers():
        assert buffers[name].data_ptr() == buffer.data_ptr(), name
    assert [type(module) for module in untied.draft.modules()] == classes


def test_an_arbiter_over_an_unfrozen_draft_freezes_it() -> None:
    draft = tiny_model(tiny_config("llama"), seed=4).requires_grad_(True)
    arbiter = new_arbiter(draft, "own")
    assert not any(weight.requires_grad for weight in draft.base_model.parameters())
    assert all(
        "lora_" in name or ".head." in name for name, weight in arbiter.named_parameters() if weight.requires_grad
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_fresh_lora_changes_nothing_and_a_live_one_does(untied: Pair, mode: ContextCache) -> None:
    ids = torch.tensor(random_prompts(9, 9, seed=7))
    with torch.no_grad():
        plain = untied.draft.base_model(input_ids=ids).last_hidden_state
        fresh = new_arbiter(untied.draft, mode).get_base_model().backbone(input_ids=ids).last_hidden_state
        live = live_arbiter(untied.draft, mode).get_base_model().backbone(input_ids=ids).last_hidden_state
        again = untied.draft.base_model(input_ids=ids).last_hidden_state
    assert torch.equal(fresh, plain)
    assert torch.equal(again, plain)
    assert (live - plain).abs().max() > 0.1


@pytest.mark.parametrize("mode", MODES)
def test_lora_and_both_halves_of_the_region_reach_the_scores(llama: Pair, mode: ContextCache) -> None:
    context, mine, other = [5, 9, 12, 7], [8, 21, 30], [8, 22, 31]
    arbiter = fresh_arbiter(llama.draft, mode)

    def score(context: list[int], mine: list[int], other: list[int]) -> Tensor:
        item = PackItem(context, [Block(len(context), tuple(mine), tuple(other), (), 0, ())], [[0, 1, 2]])
        with torch.no_grad():
            return packed_logits(arbiter, [item])[0][0]

    base = score(context, mine, other)
    for changed in (
        score([6, 9, 12, 7], mine, other),
        score(context, [8, 21, 33], other),
        score(context, mine, [8, 22, 34]),
    ):
        # The region is seen in both directions: a change at its last position reaches the score of the first.
        assert ((changed - base).abs() > 1e-3).all()
    with torch.no_grad():
        for name, weight in arbiter.named_parameters():
            if "lora_B" in name:
                weight.zero_()
    assert ((score(context, mine, other) - base).abs() > 1e-3).all()


def test_shared_lets_no_adapter_act_on_the_context_and_own_does(llama: Pair) -> None:
    """The two ways differ exactly there, so with a live LoRA they disagree and with a dead one they agree."""
    item = PackItem([5, 9, 12, 7], [Block(4, (8, 21), (8, 22), (), 1, ())], [[0, 1]])
    live = [packed_logits(fresh_arbiter(llama.draft, mode), [item])[0] for mode in MODES]
    assert ((live[0] - live[1]).abs() > 1e-3).all()
    dead = []
    for mode in MODES:
        arbiter = fresh_arbiter(llama.draft, mode)
        with torch.no_grad():
            for name, weight in arbiter.named_parameters():
                if "lora_B" in name:
                    weight.zero_()
        dead.append(packed_logits(arbiter, [item])[0])
    torch.testing.assert_close(*dead, atol=1e-5, rtol=1e-5)


def test_gradient_checkpointing_is_refused_with_a_shared_cache_and_exact_without(llama: Pair) -> None:
    items = [decisions_item(rollout) for rollout in arbitrated(llama, "own", random_prompts(6, 4, seed=3))]
    shared = fresh_arbiter(llama.draft, "shared")
    shared.get_base_model().gradient_checkpointing_enable()
    with torch.no_grad():
        packed_logits(shared, items)
    shared.train()
    with pytest.raises(ValueError, match="gradient_checkpointing to false"):
        packed_logits(shared, items)
    shared.get_base_model().gradient_checkpointing_disable()
    packed_logits(shared, items)

    own = fresh_arbiter(llama.draft, "own")
    plain = gradient_of(own, lambda: packed_logits(own, items)[0].sum())
    own.get_base_model().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    assert_same_gradient(plain, gradient_of(own, lambda: packed_logits(own, items)[0].sum()))


def test_separator_and_context_cache_are_checked(llama: Pair) -> None:
    assert separator((7, 9)) == 7
    with pytest.raises(ValueError, match="no EOS"):
        separator(())
    with pytest.raises(ValueError, match="'both'"):
        new_arbiter(llama.draft, "both")


def test_an_attention_that_ignores_masks_is_refused(llama: Pair) -> None:
    draft = tiny_model(tiny_config("llama"), seed=1)
    draft.config._attn_implementation = "flash_attention_2"
    with pytest.raises(ValueError, match="set attn to 'sdpa' or 'eager'"):
        CachedModel(draft, 1, 8)
    assert dataclasses.replace(llama, draft=draft).draft is draft
