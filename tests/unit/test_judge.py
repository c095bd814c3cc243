"""Judge heads: what the rule decides, on which hidden states, what is saved, and what training learns."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from conftest import VOCAB_SIZE, family_pair, late_ids, random_prompts
from engine_checks import assert_counters, decode, outputs, trace
from heads import saved_drafter

from cospec.engine.drafters import drafter_named
from cospec.engine.heads.files import PINS_NAME
from cospec.engine.heads.judge import JudgeHead, load_judge, save_judge
from cospec.engine.record import Rollout, Sampling
from cospec.engine.rules import rule_named
from cospec.jsonl import read_jsonl, write_jsonl_atomic
from cospec.labels.record import MismatchLabel, RolloutLabels, digest
from cospec.pair import Pair, PairSpec, load_pair
from cospec.training.config import JudgeConfig, JudgeRunSection, PairSection
from cospec.training.judge import auc, fit, measures, train
from cospec.training.judged import judged_states
from cospec.training.sft import examples

SETTINGS = {"num_draft_tokens": 4, "max_new_tokens": 24, "batch_size": 4}


def judge_head(pair: Pair, layer: int = 2) -> JudgeHead:
    """A random head that keeps about every other mismatch."""
    head = JudgeHead(pair.target.config.hidden_size, layer)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        torch.nn.init.normal_(head.linear.weight, std=0.5)
        head.linear.bias.zero_()
    return head.requires_grad_(False)


@pytest.fixture(params=["llama-sdpa", "qwen3-eager"])
def family(request: pytest.FixtureRequest) -> Pair:
    return family_pair(*request.param.rsplit("-", 1))


@pytest.fixture
def head_dir(family: Pair, tmp_path: Path) -> str:
    save_judge(judge_head(family), tmp_path / "judge", family)
    return str(tmp_path / "judge")


def blocks(rollouts: Sequence[Rollout]) -> list[object]:
    return [[(b.draft_ids, b.target_ids, b.emitted_ids) for b in rollout.blocks] for rollout in rollouts]


# ---- the rule -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, top_p=0.9)], ids=["greedy", "sampled"])
def test_at_threshold_one_it_is_strict_token_for_token(
    family: Pair, head_dir: str, prompts: list[list[int]], sampling: Sampling
) -> None:
    strict = decode(family, "strict", prompts, sampling=sampling, **SETTINGS)
    assert blocks(decode(family, f"judge:{head_dir},threshold=1", prompts, sampling=sampling, **SETTINGS)) == blocks(
        strict
    )


def test_below_threshold_zero_it_keeps_everything_up_to_the_end(
    family: Pair, head_dir: str, prompts: list[list[int]]
) -> None:
    common = SETTINGS | {"bonus": "target"}
    whole = decode(family, "always", prompts, **common)
    ends = late_ids(outputs(whole))
    for eos in ((), ends):
        kept = decode(family, f"judge:{head_dir},threshold=-1", prompts, eos_token_ids=eos, **common)
        assert blocks(kept) == blocks(decode(family, "always", prompts, eos_token_ids=eos, **common))
    assert {rollout.finish_reason for rollout in kept} == {"eos", "length"}


@pytest.mark.parametrize("drafter", ["model", "ngram", "mtp"])
def test_a_batch_equals_singles_with_every_kind_of_drafter(
    family: Pair, prompts: list[list[int]], drafter: str, tmp_path: Path
) -> None:
    """An MTP layer reads other hidden states than this judge does."""
    head_dir = str(tmp_path / "judge")
    save_judge(judge_head(family, layer=1), tmp_path / "judge", family)
    made = saved_drafter("mtp", family, tmp_path / "mtp") if drafter == "mtp" else drafter_named(drafter)
    rule, common = rule_named(f"judge:{head_dir}"), {**SETTINGS, "drafter": made, "sampling": Sampling(0.7)}
    together = decode(family, rule, prompts, **common)
    alone = decode(family, rule, prompts, **(common | {"batch_size": 1}))
    assert [trace(rollout) for rollout in together] == [trace(rollout) for rollout in alone]
    decisions = [decision.kept for rollout in together for block in rollout.blocks for decision in block.decisions]
    assert {*decisions} == {True, False}
    for rollout in together:
        assert_counters(rollout)
        assert rollout.settings.rule == f"judge:{head_dir},threshold=0.5"


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_the_score_is_of_the_state_that_has_read_the_token(
    family: Pair, prompts: list[list[int]], tmp_path: Path, layer: int
) -> None:
    """By one plain forward of transformers over text and drafts, for every decision."""
    head = judge_head(family, layer)
    save_judge(head, tmp_path / "judge", family)
    num = 0
    for rollout in decode(family, f"judge:{tmp_path / 'judge'}", prompts, **SETTINGS):
        text = rollout.prompt_ids + rollout.output_ids
        for block in rollout.blocks:
            ids = torch.tensor([text[: block.start] + block.draft_ids])
            with torch.no_grad():
                states = family.target(input_ids=ids, output_hidden_states=True).hidden_states[layer]
            scores = torch.sigmoid(head(states[0]))
            for decision in block.decisions:
                found = float(scores[block.start + decision.position])
                assert decision.keep_prob == pytest.approx(found, abs=2e-5)
                assert decision.kept == (decision.keep_prob > 0.5)
                num += 1
    assert num > 20


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bonus": "arbitrated"}, "with bonus 'arbitrated' it never reads a block's last one"),
        ({"bonus": "rule"}, "no law of its own"),
        ({"compile_mode": "inductor"}, "reads the target's hidden states, which compiled passes do not give"),
    ],
)
def test_settings_it_cannot_work_with_are_refused(settings: dict[str, str], message: str, tmp_path: Path) -> None:
    pair = family_pair("llama", "sdpa")
    save_judge(judge_head(pair), tmp_path, pair)
    with pytest.raises(ValueError, match=message):
        decode(pair, f"judge:{tmp_path}", [[5, 6]], **settings)


# ---- files ----------------------------------------------------------------------------------------------------------


def test_a_saved_head_is_the_loaded_one(family: Pair, head_dir: str) -> None:
    loaded, made = load_judge(head_dir, family), judge_head(family)
    assert loaded.layer == made.layer
    assert all(torch.equal(loaded.state_dict()[name], weight) for name, weight in made.state_dict().items())
    assert "judge:DIR" in (Path(head_dir) / "README.md").read_text()


def test_a_head_of_another_target_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    pair, other = family_pair("llama", "sdpa"), family_pair("qwen3", "sdpa")
    save_judge(judge_head(pair), tmp_path, pair)
    with pytest.raises(ValueError, match="was made for another target: a target of another architecture"):
        load_judge(str(tmp_path), other)
    broken = judge_head(pair)
    broken.linear.bias.fill_(float("nan"))
    save_judge(broken, tmp_path, pair)
    with pytest.raises(ValueError, match="weights that are no numbers"):
        load_judge(str(tmp_path), pair)
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="are damaged"):
        load_judge(str(tmp_path), pair)
    (tmp_path / PINS_NAME).unlink()
    with pytest.raises(ValueError, match="copied in part"):
        rule_named(f"judge:{tmp_path}")
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Eagle"]}))
    with pytest.raises(ValueError, match="holds no judge head"):
        rule_named(f"judge:{tmp_path}")


# ---- training -------------------------------------------------------------------------------------------------------


def labelled(rollouts: Sequence[Rollout], label: Callable[[int, Rollout], float]) -> list[RolloutLabels]:
    """Labels of every mismatch, by its draft token."""
    found = []
    for rollout in rollouts:
        labels = [
            MismatchLabel(number, position, True, True, label(draft, rollout))
            for number, block in enumerate(rollout.blocks)
            for position, (draft, target) in enumerate(zip(block.draft_ids, block.target_ids, strict=True))
            if draft != target
        ]
        found.append(RolloutLabels(rollout.id, digest(rollout), "", "either", "block", "exact", tuple(labels)))
    return found


def test_training_reads_the_states_that_decoding_judges(family: Pair, prompts: list[list[int]]) -> None:
    rollouts = decode(family, "never", prompts, **SETTINGS)
    found = examples(rollouts, labelled(rollouts, lambda draft, _: draft % 2))
    for layer in (1, 2):
        states = judged_states(family, layer, found, batch_size=4, prefill_chunk=5)
        for example, mine in zip(found, states, strict=True):
            expected = []
            for block, positions in zip(example.item.blocks, example.item.read, strict=True):
                ids = [*example.item.context_ids[: block.start], *block.draft_ids]
                with torch.no_grad():
                    plain = family.target(input_ids=torch.tensor([ids]), output_hidden_states=True)
                expected += [plain.hidden_states[layer][0, block.start + position] for position in positions]
            torch.testing.assert_close(mine, torch.stack(expected), rtol=1e-4, atol=1e-4)


def test_the_fit_finds_a_planted_direction_whatever_the_scale() -> None:
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(4000, 12, generator=generator) * torch.logspace(-3, 3, 12) + 7
    planted = torch.randn(12, generator=generator) / torch.logspace(-3, 3, 12)
    logits = (states - 7) @ planted * 3
    labels = (torch.rand(4000, generator=generator) < torch.sigmoid(logits)).float()
    head, steps = fit(states[:3000], labels[:3000], l2=1e-4, max_steps=200)
    assert 0 < steps < 200
    numbers = measures(head, states[3000:], labels[3000:])
    best = auc(logits[3000:], labels[3000:] > 0.5)
    assert best is not None
    assert numbers["auc"] > best - 0.01  # type: ignore[operator]
    assert numbers["base_accuracy"] + 0.1 < numbers["accuracy"]  # type: ignore[operator]
    again, _ = fit(states[:3000], labels[:3000], l2=1e-4, max_steps=200)
    assert torch.equal(again.linear.weight, head.linear.weight)


def test_the_auc_counts_pairs() -> None:
    generator = torch.Generator().manual_seed(1)
    scores, positive = torch.randint(6, (60,), generator=generator), torch.rand(60, generator=generator) < 0.4
    above = scores[positive][:, None] - scores[~positive][None]
    assert auc(scores.float(), positive) == pytest.approx(float(((above > 0) + 0.5 * (above == 0)).mean()))
    assert auc(scores.float(), torch.ones(60, dtype=torch.bool)) is None


@pytest.fixture
def config(save_pair: Callable[..., PairSpec], tmp_path: Path) -> JudgeConfig:
    """Rollouts of a saved pair whose drafts of odd ids are labelled as worth keeping."""
    spec = save_pair()
    text = "".join(f"{role}: {{path: {model.path}, device: cpu}}\n" for role, model in spec.models.items())
    (tmp_path / "pair.yaml").write_text(text)
    rollouts = decode(load_pair(spec), "never", random_prompts(*[6] * 24, vocab_size=VOCAB_SIZE), **SETTINGS)
    write_jsonl_atomic(tmp_path / "rollouts.jsonl", [rollout.to_json() for rollout in rollouts])
    labels = labelled(rollouts, lambda draft, _: float(draft % 2))
    write_jsonl_atomic(tmp_path / "labels.jsonl", [row.to_json() for row in labels])
    return JudgeConfig(
        rollouts=str(tmp_path / "rollouts.jsonl"),
        labels=str(tmp_path / "labels.jsonl"),
        pair=PairSection(str(tmp_path / "pair.yaml")),
        run=JudgeRunSection(str(tmp_path / "run"), use_cpu=True),
        layer=0,
        holdout=0.25,
    )


def test_a_trained_head_decides_by_what_it_was_taught(config: JudgeConfig, tmp_path: Path) -> None:
    """The embeddings of 48 ids in 32 numbers tell odd ids well enough apart."""
    directory = train(config)
    (numbers,) = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert numbers["held_out_auc"] > 0.85
    assert numbers["held_out_accuracy"] > numbers["held_out_base_accuracy"]
    assert numbers["labels"] + numbers["held_out_labels"] > 200
    assert {"provenance.json", "training.yaml", "README.md", PINS_NAME} <= {file.name for file in directory.iterdir()}
    pair = load_pair(PairSpec(**{role: _spec(tmp_path, role) for role in ("draft", "target")}))
    decided = [
        (decision.draft_id % 2 == 1, decision.kept)
        for rollout in decode(pair, f"judge:{directory}", random_prompts(*[6] * 8, seed=3), **SETTINGS)
        for block in rollout.blocks
        for decision in block.decisions
    ]
    assert sum(odd == kept for odd, kept in decided) > 0.75 * len(decided)
    before = (directory / "model.safetensors").read_bytes()
    assert train(config) == directory, "a finished run is left as it is"
    assert (directory / "model.safetensors").read_bytes() == before


def _spec(folder: Path, role: str) -> object:
    from cospec.pair import ModelSpec

    return ModelSpec(str(folder / role), device="cpu")


def test_labels_that_all_say_the_same_are_refused(config: JudgeConfig) -> None:
    rows = list(read_jsonl(Path(config.labels)))
    for row in rows:
        for label in row["labels"]:
            label["label"] = 1.0
    write_jsonl_atomic(Path(config.labels), rows)
    with pytest.raises(ValueError, match="all labels to learn from say the same"):
        train(config)
