"""GRPO over decisions on tiny random models: what it does with odd rollouts, and that its gradient is right."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from cospec.config import load_config
from cospec.jsonl import read_jsonl, write_jsonl_atomic
from cospec.pair import PairSpec
from cospec.training import decision_logps, grpo
from cospec.training.config import GrpoConfig
from cospec.training.grpo import train
from tests.conftest import perturbed, tiny_config, tiny_model

SCORERS = """
def by_length(text, row):
    return len(text) % 2 == 0

def first_by_length(text, row):
    return row["id"] != "p0" or len(text) % 2 == 0

def always_right(text, row):
    return True

def raising_sometimes(text, row):
    if row["id"] == "p1":
        raise RuntimeError("out of order")
    return len(text) % 2 == 0
"""


@pytest.fixture
def run_grpo(
    tmp_path: Path, save_pair: Callable[..., PairSpec], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[list[dict[str, Any]], Path]]:
    """Train with overrides on a tiny random pair; its metrics rows and its run directory."""
    monkeypatch.setenv("CI", "1")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "odd_scorers.py").write_text(textwrap.dedent(SCORERS))
    rows = [{"id": f"p{i}", "prompt": f"w{10 + i} w{20 + i} w11", "gold": "1"} for i in range(4)]
    write_jsonl_atomic(tmp_path / "prompts.jsonl", rows)

    def run(name: str, *overrides: str, same_model: bool = False) -> tuple[list[dict[str, Any]], Path]:
        target = tiny_model(tiny_config("llama"), seed=1)
        draft = tiny_model(tiny_config("llama"), seed=1)
        save_pair(draft if same_model else perturbed(draft, seed=2, scale=0.05), target)
        (tmp_path / "pair.yaml").write_text("draft: {path: draft, device: cpu}\ntarget: {path: target, device: cpu}\n")
        # Plain SGD, so that the weights show the gradient itself.
        values = {
            "prompts": tmp_path / "prompts.jsonl",
            "pair.path": tmp_path / "pair.yaml",
            "run.dir": tmp_path / name,
            "run.use_cpu": "true",
            "trainer.optim": "sgd",
            "steps": 1,
            "prompts_per_step": 2,
            "num_generations": 4,
            "optimiser.micro_batch": 8,
            "optimiser.learning_rate": 0.1,
            "rollout.max_new_tokens": 16,
        }
        values |= dict(text.split("=", 1) for text in overrides)
        config = load_config(GrpoConfig, None, [f"{key}={value}" for key, value in values.items()])
        train(config)
        return list(read_jsonl(tmp_path / name / "metrics.jsonl")), tmp_path / name

    return run


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "arbiter" / "adapter_model.safetensors")


@pytest.mark.parametrize("reading", ["decision", "rollout"])
def test_accumulation_does_not_change_the_gradient(
    run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]], reading: str
) -> None:
    common = ("reward.scorer=odd_scorers:by_length", f"reward.reading={reading}")
    found = {n: run_grpo(f"ga{n}", f"optimiser.micro_batch={8 // n}", *common) for n in (1, 2, 4)}
    norms = {n: metrics[0]["grad_norm"] for n, (metrics, _) in found.items()}
    assert norms[1] > 1e-4
    assert norms[2] == pytest.approx(norms[1], rel=1e-4)
    assert norms[4] == pytest.approx(norms[1], rel=1e-4)
    whole = weights(found[1][1])
    for n in (2, 4):
        for name, tensor in weights(found[n][1]).items():
            assert torch.allclose(tensor, whole[name], atol=1e-6), name


def test_leaving_out_rollouts_without_an_advantage_does_not_change_the_gradient(
    run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Group p0 is mixed; the three others are all right and alpha is 0, so they teach nothing.
    common = ("reward.scorer=odd_scorers:first_by_length", "reward.alpha=0", "prompts_per_step=4", "steps=2")
    sizes: list[int] = []
    score = decision_logps.scored

    def counted(model: Any, rollouts: Any, actions: torch.Tensor, sep: int) -> Any:
        sizes.append(len(rollouts))
        return score(model, rollouts, actions, sep)

    monkeypatch.setattr(decision_logps, "scored", counted)
    lean, lean_run = run_grpo("lean", *common)
    assert 2 <= sum(sizes) <= 2 * (4 + 1)  # of 2 x 16: those of p0, and one of a micro-batch without any
    monkeypatch.setattr(
        grpo, "scored_where_taught", lambda model, rollouts, actions, _, sep: score(model, rollouts, actions, sep)
    )
    full, full_run = run_grpo("full", *common)
    assert full[0]["grad_norm"] > 1e-4
    for name in ("loss", "grad_norm", "reward", "entropy"):
        assert [row[name] for row in lean[:2]] == pytest.approx([row[name] for row in full[:2]], rel=1e-4), name
    whole = weights(full_run)
    for name, tensor in weights(lean_run).items():
        assert torch.allclose(tensor, whole[name], atol=1e-6), name


def test_rollouts_without_a_mismatch_are_counted_and_teach_nothing(
    run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]],
) -> None:
    metrics, _ = run_grpo("same", "reward.scorer=odd_scorers:by_length", same_model=True)
    assert metrics[0]["share_without_decision"] == 1.0
    assert metrics[0]["zero_variance_groups"] == 1.0
    assert metrics[0]["loss"] == 0.0
    assert metrics[0]["grad_norm"] == 0.0


def test_a_group_without_variance_is_counted(run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]]) -> None:
    # All right and alpha 0: every decision has the same signal, so its distance to the mean is 0.
    metrics, _ = run_grpo("flat", "reward.scorer=odd_scorers:always_right", "reward.alpha=0")
    assert metrics[0]["zero_variance_groups"] == 1.0
    assert metrics[0]["accuracy"] == 1.0
    assert metrics[0]["grad_norm"] == pytest.approx(0.0, abs=1e-7)


def test_a_scorer_that_raises_is_masked_and_counted(run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]]) -> None:
    metrics, run = run_grpo(
        "raising", "reward.scorer=odd_scorers:raising_sometimes", "prompts_per_step=4", "max_failed_share=1"
    )
    assert metrics[0]["num_failed"] == 4.0
    rows = list(read_jsonl(run / "rollouts" / "rank0.jsonl"))
    failed = [row for row in rows if row["verdict"]["kind"] == "error"]
    assert len(failed) == 4
    assert all("out of order" in row["verdict"]["reason"] for row in failed)
    assert not any(any(row["advantages"]) for row in failed)


def test_a_scorer_that_fails_too_often_stops_the_run(
    run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]],
) -> None:
    with pytest.raises(ValueError, match=r"raising_sometimes.*failed.*on 4 of 16"):
        run_grpo("stopped", "reward.scorer=odd_scorers:raising_sometimes", "prompts_per_step=4")


def test_kl_to_the_warm_up_policy_is_zero_at_first_and_not_saved(
    run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]],
) -> None:
    metrics, run = run_grpo("kl", "reward.scorer=odd_scorers:by_length", "kl_beta=0.1", "steps=3")
    assert metrics[0]["kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics[2]["kl"] > 1e-7
    assert not (run / "arbiter" / "ref").exists()
    assert not any(".ref." in name for name in weights(run))


def test_checkpointing_does_not_change_the_gradient(
    run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]],
) -> None:
    common = ("reward.scorer=odd_scorers:by_length", "arbiter.context_cache=own", "num_iterations=2", "kl_beta=0.1")
    plain, _ = run_grpo("plain", *common, "steps=2", "run.save_every=2")
    frugal, _ = run_grpo("frugal", *common, "steps=2", "run.save_every=2", "optimiser.gradient_checkpointing=true")
    assert plain[1]["grad_norm"] > 1e-4
    for name in ("loss", "grad_norm", "kl", "entropy"):
        assert [row[name] for row in frugal[:2]] == pytest.approx([row[name] for row in plain[:2]], rel=1e-4), name


def test_a_run_begun_without_resume_goes_on_with_it(
    run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]],
) -> None:
    common = ("reward.scorer=odd_scorers:by_length", "steps=2", "run.save_every=1")
    _, run = run_grpo("afresh", *common, "run.resume=false")
    again, _ = run_grpo("afresh", *common, "run.resume=true")
    assert [row["step"] for row in again if "loss" in row] == [1, 2]
    assert run.is_dir()


def test_several_updates_on_one_batch_clip(run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]]) -> None:
    metrics, _ = run_grpo(
        "updates",
        "reward.scorer=odd_scorers:by_length",
        "num_iterations=2",
        "run.save_every=2",
        "steps=2",
        "epsilon=0.0001",
        "optimiser.learning_rate=5",
    )
    assert metrics[0]["clip_ratio/region_mean"] == 0.0
    assert metrics[1]["clip_ratio/region_mean"] > 0.0


def test_a_resumed_run_equals_an_unbroken_one(run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]]) -> None:
    common = ("reward.scorer=odd_scorers:by_length", "steps=4", "run.save_every=2", "trainer.optim=adamw_torch")
    unbroken, _ = run_grpo("unbroken", *common)
    _, run = run_grpo("broken", *common)
    # As if it had been killed behind the first checkpoint, while it wrote the next one.
    for gone in ("arbiter", "checkpoints/checkpoint-4"):
        for file in sorted((run / gone).rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        (run / gone).rmdir()
    (run / "checkpoints" / "checkpoint-3").mkdir()
    (run / "checkpoints" / "checkpoint-3" / "README.md").write_text("torn")
    resumed, _ = run_grpo("broken", *common)
    assert [row["step"] for row in read_jsonl(run / "rollouts" / "rank0.jsonl")] == [0] * 8 + [1] * 8 + [2] * 8 + [
        3
    ] * 8
    assert [row["step"] for row in resumed if "loss" in row] == [1, 2, 3, 4]
    for before, after in zip(unbroken[:4], resumed[:4], strict=True):
        assert after["loss"] == pytest.approx(before["loss"], abs=1e-6)
        assert after["grad_norm"] == pytest.approx(before["grad_norm"], rel=1e-4)


def test_a_finished_run_is_neither_trained_further_nor_overwritten(
    run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]],
) -> None:
    common = ("reward.scorer=odd_scorers:by_length", "steps=2", "run.save_every=1")
    before, run = run_grpo("done", *common)
    first = weights(run)
    after, _ = run_grpo("done", *common)
    assert after == before
    assert all(torch.equal(tensor, first[name]) for name, tensor in weights(run).items())
    with pytest.raises(ValueError, match="another config"):
        run_grpo("done", "reward.scorer=odd_scorers:by_length", "steps=3", "run.save_every=1")
    with pytest.raises(ValueError, match="already holds a run"):
        run_grpo("done", *common, "run.resume=false")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("num_generations=1", "num_generations is 1"),
        ("optimiser.micro_batch=3", "cannot share evenly"),
        ("prompts_per_step=5", "prompts_per_step is 5"),
        ("reward.tau=0.0", "reward.tau"),
        ("trainer.learning_rates=1", "did you mean 'learning_rate'"),
        ("optimiser.gradient_checkpointing=true", "arbiter.context_cache=own"),
        ("arbiter.init=nowhere", "no arbiter directory"),
        ("reward.scorer=odd_scorers:absent", "absent"),
        ("steps=0", "at least 1"),
        ("step=3", "did you mean"),
        ("trainer.top_p=0.5", "set rollout.top_p"),
        ("trainer.steps_per_generation=8", "prompts_per_step"),
        ("num_iterations=2", "run.save_every is 25"),
    ],
)
def test_bad_settings_are_refused_by_name(
    run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]], override: str, message: str
) -> None:
    name = override.split("=")[0]
    defaults = ["reward.scorer=odd_scorers:by_length"] if name != "reward.scorer" else []
    with pytest.raises(ValueError, match=message):
        run_grpo("bad", *defaults, override)


def test_a_row_without_gold_is_refused(
    run_grpo: Callable[..., tuple[list[dict[str, Any]], Path]], tmp_path: Path
) -> None:
    (tmp_path / "no_gold.jsonl").write_text(json.dumps({"id": 1, "prompt": "w9"}) + "\n")
    with pytest.raises(ValueError, match=r"no_gold.jsonl:1.*gold"):
        run_grpo("gold", f"prompts={tmp_path / 'no_gold.jsonl'}")
