"""Training as users start it: `accelerate launch`, one and two processes, on the bundled pair."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

from cospec.jsonl import read_jsonl, write_jsonl_atomic
from cospec.tasks.word_problems import generate

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "CI": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
PLAIN = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--cpu"]


def launch(stage: str, *overrides: str, processes: int = 1, port: int = 29611) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(processes), *PLAIN]
    words += ["--main_process_port", str(port), f"train/{stage}.py", *overrides]
    return subprocess.run(words, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=400, check=False)


def cospec(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cospec", *words]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=400, check=False)


def write_problems(path: Path, split: str, num: int) -> None:
    rows = [{"id": p.id, "prompt": p.prompt, "gold": p.gold} for p in generate(num, 3, split=split)]
    write_jsonl_atomic(path, rows)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with rollouts, labels and a warm-up run, made by the commands themselves."""
    folder = tmp_path_factory.mktemp("warm")
    write_problems(folder / "warmup.jsonl", "warmup", 24)
    write_problems(folder / "grpo.jsonl", "grpo", 12)
    rollouts, labels = folder / "rollouts.jsonl", folder / "labels.jsonl"
    shared = ["--pair", "tiny", "--device", "cpu", "--json", "--prompts", str(folder / "warmup.jsonl")]
    done = cospec("rollout", *shared, "--out", str(rollouts), "--max-new-tokens", "96", "--batch-size", "24")
    assert done.returncode == 0, done.stderr
    label = ["label", *shared, "--rollouts", str(rollouts), "--out", str(labels), "--scorer", "word_problems"]
    done = cospec(*label, "--batch-size", "64")
    assert done.returncode == 0, done.stderr
    shares = json.loads(done.stdout)["shares"]
    assert sum(shares.values()) == pytest.approx(1.0)
    files = [f"rollouts={rollouts}", f"labels={labels}", f"run.dir={folder / 'sft'}"]
    done = launch("sft", *files, "run.use_cpu=true", "epochs=4", "batch=8", "optimiser.learning_rate=3e-3")
    assert done.returncode == 0, done.stderr
    return folder


def test_the_warm_up_learns_and_leaves_a_run_directory(warm: Path) -> None:
    losses = [row["loss"] for row in read_jsonl(warm / "sft" / "metrics.jsonl") if "loss" in row]
    assert losses[-1] < losses[0]
    for name in ("config.yaml", "provenance.json", "arbiter/adapter_model.safetensors", "arbiter/cospec_config.json"):
        assert (warm / "sft" / name).is_file(), name
    provenance = json.loads((warm / "sft" / "provenance.json").read_text())
    assert set(provenance["inputs"]) == {str(warm / "rollouts.jsonl"), str(warm / "labels.jsonl")}


def test_two_processes_equal_one_and_save_once(warm: Path, tmp_path: Path) -> None:
    common = [f"prompts={warm / 'grpo.jsonl'}", f"arbiter.init={warm / 'sft' / 'arbiter'}", "run.use_cpu=true"]
    common += ["reward.scorer=word_problems", "steps=2", "prompts_per_step=3", "num_generations=4"]
    common += ["rollout.max_new_tokens=96", "optimiser.learning_rate=1e-3", "run.save_every=0"]
    runs = {}
    # Two processes with six rollouts each: the middle group is shared between them.
    for processes, micro_batch in ((1, 12), (2, 6)):
        run = tmp_path / f"of_{processes}"
        overrides = [*common, f"run.dir={run}", f"optimiser.micro_batch={micro_batch}"]
        done = launch("grpo", *overrides, processes=processes)
        assert done.returncode == 0, done.stderr
        runs[processes] = run
    one, two = ([row for row in read_jsonl(runs[n] / "metrics.jsonl") if "loss" in row] for n in (1, 2))
    assert len(one) == len(two) == 2
    for name in ("loss", "grad_norm", "reward", "accuracy", "rho", "keep_rate", "entropy"):
        assert two[0][name] == pytest.approx(one[0][name], abs=1e-4), name
    first, second = (load_file(runs[n] / "arbiter" / "adapter_model.safetensors") for n in (1, 2))
    start = load_file(warm / "sft" / "arbiter" / "adapter_model.safetensors")
    assert all((first[name] - second[name]).abs().max() < 1e-3 for name in start)
    assert any((first[name] - start[name]).abs().max() > 1e-5 for name in start)
    assert [path.name for path in runs[2].rglob("adapter_model.safetensors")] == ["adapter_model.safetensors"]
    lines = [len(list(read_jsonl(runs[2] / "rollouts" / f"rank{rank}.jsonl"))) for rank in (0, 1)]
    assert lines == [12, 12]


def test_dry_run_prints_the_config_and_bad_keys_end_with_code_2(warm: Path) -> None:
    done = launch("grpo", "--dry-run", "--config", "configs/tiny_grpo.yaml", "steps=7")
    assert done.returncode == 0
    assert "steps: 7" in done.stdout
    command = [sys.executable, "train/grpo.py", "--config", "configs/tiny_grpo.yaml", "stepps=7"]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert "stepps" in done.stderr
    assert "'steps'" in done.stderr


def test_an_arbiter_of_another_pair_is_refused(warm: Path, tmp_path: Path) -> None:
    swapped = tmp_path / "pair.yaml"
    assets = ROOT / "cospec" / "assets" / "tiny"
    swapped.write_text(f"draft: {{path: {assets / 'target'}}}\ntarget: {{path: {assets / 'draft'}}}\n")
    done = cospec("generate", "Hi there", "--pair", str(swapped), "--arbiter", str(warm / "sft" / "arbiter"))
    assert done.returncode == 2
    assert "was made for another pair" in done.stderr
    assert done.stdout == ""
