"""Training of drafting heads: what is learned, what is written, and that it drafts."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import family_pair, random_prompts, tiny_config, tiny_model
from engine_checks import decode, outputs
from heads import eagle3_head, features_of, memoryless_target, mtp_head, plain_states
from reference import generated
from safetensors.torch import load_file

from cospec.engine.drafters import drafter_named
from cospec.engine.record import Rollout
from cospec.engine.rollout_file import read_rollouts
from cospec.jsonl import read_jsonl
from cospec.pair import PairSpec, load_pair
from cospec.training.config import (
    DrafterHeadConfig,
    HeadSection,
    OptimiserSection,
    PairSection,
    RunSection,
    TextsSection,
)
from cospec.training.drafter_head import HeadTrainer, collate, train
from cospec.training.new_head import draft_ids, new_head
from cospec.training.unroll import Unrolled

Settings = Callable[..., DrafterHeadConfig]


@pytest.fixture
def spec(save_pair: Callable[..., PairSpec]) -> PairSpec:
    return save_pair(target=memoryless_target())


@pytest.fixture
def settings(spec: PairSpec, tmp_path: Path) -> Settings:
    """Configs of short runs: a target whose next token depends on its last one alone."""
    pair = tmp_path / "pair.yaml"
    pair.write_text("".join(f"{role}: {{path: {model.path}, device: cpu}}\n" for role, model in spec.models.items()))
    prompts = tmp_path / "prompts.jsonl"
    rows = [{"id": i, "prompt_ids": ids} for i, ids in enumerate(random_prompts(*[4] * 48, seed=1))]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def make(head: HeadSection, **changes: object) -> DrafterHeadConfig:
        fields = {
            "prompts": str(prompts),
            "pair": PairSection(str(pair)),
            "head": head,
            "texts": TextsSection(max_new_tokens=12, batch_size=48),
            "optimiser": OptimiserSection(learning_rate=1e-2, micro_batch=8),
            "run": RunSection(dir=str(tmp_path / "run"), use_cpu=True, save_every=0),
            "epochs": 4.0,
            "batch": 8,
            "holdout": 0.2,
        }
        return DrafterHeadConfig(**(fields | changes))  # type: ignore[arg-type]

    return make


def read_texts(root: Path) -> list[Rollout]:
    return read_rollouts(root / "texts" / "rank0.jsonl")


@pytest.mark.parametrize(
    "head",
    [HeadSection(unroll=2, draft_vocab_size=40, fc_norm=True), HeadSection("mtp", unroll=2)],
    ids=["eagle3", "mtp"],
)
def test_a_trained_head_agrees_with_its_target_and_drafts_for_it(
    spec: PairSpec, settings: Settings, head: HeadSection
) -> None:
    config = settings(head, epochs=8.0)
    directory = train(config)
    rows = list(read_jsonl(directory.parent / "metrics.jsonl"))
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < 0.7 * losses[0]
    assert rows[-1]["held_out_agreement"][0] > 0.25, "one in 48 is chance"
    assert len(rows[-1]["held_out_tokens"]) == 2
    pair = load_pair(spec)
    drafter = drafter_named(f"{head.kind}:{directory}")
    prompts = random_prompts(5, 3, 8, seed=7)
    rollouts = decode(pair, "strict", prompts, drafter=drafter, max_new_tokens=16, num_draft_tokens=3)
    assert outputs(rollouts) == [generated(pair.target, prompt, 16) for prompt in prompts]
    assert sum(rollout.num_accepted for rollout in rollouts) > 0.1 * sum(rollout.num_drafted for rollout in rollouts)
    names = {"config.json", "model.safetensors", "cospec_head.json", "provenance.json", "training.yaml"}
    assert {file.name for file in directory.iterdir()} == names
    before = (directory / "model.safetensors").read_bytes()
    assert train(config) == directory
    assert (directory / "model.safetensors").read_bytes() == before, "a finished run is left alone"


def test_an_interrupted_run_goes_on_to_the_same_head(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it had been killed behind its fourth step of six."""
    found, done = [], []
    compute_loss = HeadTrainer.compute_loss

    def noted(self: HeadTrainer, *args: Any, **kwargs: Any) -> Any:
        done.append(self.state.global_step)
        return compute_loss(self, *args, **kwargs)

    monkeypatch.setattr(HeadTrainer, "compute_loss", noted)
    for name in ("whole", "again"):
        run = RunSection(dir=str(tmp_path / name), use_cpu=True, save_every=4)
        config = settings(HeadSection("mtp", unroll=1), run=run, epochs=2.0, batch=16, holdout=0.0)
        directory = train(config)
        if name == "again":
            shutil.rmtree(directory)
            shutil.rmtree(tmp_path / name / "checkpoints" / "checkpoint-6", ignore_errors=True)
            done.clear()
            assert train(config) == directory
        found.append(load_file(directory / "model.safetensors"))
    assert done == [4, 4, 5, 5], "two micro-batches of each step that is left"
    for tensor, again in zip(*(weights.values() for weights in found), strict=True):
        assert torch.equal(tensor, again)


def test_texts_of_another_target_or_setting_are_not_learned_from(spec: PairSpec, settings: Settings) -> None:
    """A run that ended before its first checkpoint leaves its texts; the same directory is named again."""
    config = settings(HeadSection("mtp", unroll=1), epochs=1.0)
    shutil.rmtree(train(config))
    assert spec.target is not None
    tiny_model(tiny_config("llama"), seed=9).save_pretrained(spec.target.path)
    with pytest.raises(ValueError, match=r"texts of another target: a target with other weights .* run\.dir"):
        train(config)
    memoryless_target().save_pretrained(spec.target.path)
    with pytest.raises(ValueError, match=r"another setting \(max_new_tokens was 12, now 9\): .* run\.dir"):
        train(dataclasses.replace(config, texts=TextsSection(max_new_tokens=9)))
    train(config)


def test_the_loss_is_the_cross_entropy_to_the_targets_distribution() -> None:
    """One learned token, two steps, by hand."""
    pair = family_pair("llama", "sdpa")
    head, text = eagle3_head(pair), random_prompts(6, seed=2)[0]
    ids = torch.tensor([text])
    labels = torch.full_like(ids, -100)
    labels[0, 4] = text[4]
    steps = Unrolled(head, 2)(ids, labels)
    with torch.no_grad():
        wanted = pair.target(ids).logits[0, 3].softmax(-1)[head.target_ids]
        hidden = features_of(head, text)[:, :-1]
        states = plain_states(head, text[1:], hidden)
        newest = plain_states(head, text[1:4], torch.cat([hidden[:, :2], states[:, 1:2]], dim=1))[:, -1]
    for step, state in zip(steps, (states[:, 2], newest), strict=True):
        expected = -(wanted * head.draft_logits(state)[0].log_softmax(-1)).sum()
        torch.testing.assert_close(step.loss, expected)
        assert step.num == 1


def test_the_draft_vocabulary_is_what_the_texts_hold_most_often() -> None:
    pair = family_pair("llama", "sdpa")
    texts = decode(pair, "target", random_prompts(4, 5), max_new_tokens=12)
    counts = {token: sum(text.output_ids.count(token) for text in texts) for token in range(pair.vocab_size)}
    chosen = draft_ids(pair, 6, texts)
    assert chosen == sorted(chosen)
    assert min(counts[token] for token in chosen) >= max(counts[token] for token in {*counts} - {*chosen})
    head = new_head(pair, HeadSection(draft_vocab_size=6), texts)
    assert head.target_ids is not None
    assert head.target_ids.tolist() == chosen
    assert draft_ids(pair, 0, texts) == list(range(pair.vocab_size))
    with pytest.raises(ValueError, match="the pair has 48 ids"):
        draft_ids(pair, 49, texts)


@pytest.mark.parametrize("kind", ["eagle3", "mtp"])
@pytest.mark.parametrize("length", [3, 4, 5])
def test_texts_shorter_than_the_unrolling_are_learned_from(kind: str, length: int) -> None:
    pair = family_pair("llama", "sdpa")
    head = eagle3_head(pair) if kind == "eagle3" else mtp_head(pair)
    text = random_prompts(8, seed=2)[0]
    ids = torch.tensor([text])
    steps = Unrolled(head, 5)(ids[:, :length], ids[:, :length])
    assert [int(step.num) for step in steps] == [length - 2 - k for k in range(length - 2)]
    # Padding behind a text changes nothing.
    labels = torch.where(torch.arange(8) < length, ids, -100)
    for step, padded in zip(steps, Unrolled(head, 5)(ids, labels), strict=False):
        torch.testing.assert_close(step.loss, padded.loss)


def test_a_run_on_texts_shorter_than_the_unrolling_ends(settings: Settings) -> None:
    texts = TextsSection(max_new_tokens=1, batch_size=48)
    directory = train(settings(HeadSection("mtp", unroll=5), texts=texts, epochs=1.0))
    last = list(read_jsonl(directory.parent / "metrics.jsonl"))[-1]
    # A prompt has four tokens and a text five: the last of them is what step 3 predicts.
    assert last["held_out_tokens"] == [9, 9, 9]
    assert len(last["held_out_loss"]) == len(last["held_out_agreement"]) == 3


def test_texts_kept_apart_do_not_choose_the_draft_vocabulary(spec: PairSpec, settings: Settings) -> None:
    directory = train(settings(HeadSection(unroll=1, draft_vocab_size=16), holdout=0.5, epochs=1.0))
    texts = {rollout.id: rollout for rollout in read_texts(directory.parent)}
    ordered = [texts[number] for number in range(48)]
    pair = load_pair(spec)
    chosen = load_file(directory / "model.safetensors")["t2d"].nonzero().squeeze(1).tolist()
    assert chosen == draft_ids(pair, 16, ordered[24:])
    assert chosen != draft_ids(pair, 16, ordered)


def test_texts_are_padded_and_learned_where_the_target_wrote() -> None:
    texts: list[Rollout] = decode(family_pair("llama", "sdpa"), "target", random_prompts(2, 5), max_new_tokens=4)
    batch = collate(texts)
    assert batch["input_ids"].shape == batch["labels"].shape == (2, 9)
    assert (batch["labels"][0] >= 0).tolist() == [False, False, True, True, True, True, False, False, False]
    assert batch["input_ids"][1].tolist() == [*texts[1].prompt_ids, *texts[1].output_ids]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "medusa"}, "choose 'eagle3' or 'mtp'"),
        ({"unroll": 0}, "unroll is 0"),
        ({"decay": 1.5}, "decay 1.5"),
        ({"kind": "mtp", "draft_vocab_size": 9}, "leave them out"),
        ({"kind": "mtp", "fc_norm": True}, "leave them out"),
        ({"draft_vocab_size": -1}, "or more"),
        ({"layers": [0, -1]}, "counted from 0"),
    ],
)
def test_bad_heads_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HeadSection(**values)  # type: ignore[arg-type]


def test_gradient_checkpointing_is_refused() -> None:
    with pytest.raises(ValueError, match="gradient_checkpointing is of the stages that train an arbiter"):
        DrafterHeadConfig("prompts.jsonl", optimiser=OptimiserSection(gradient_checkpointing=True))
