"""`--drafter eagle3:DIR` and `--drafter mtp` in the commands, and heads trained by `accelerate launch`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from heads import saved_drafter
from model_dirs import ROOT, assert_refused, read_rows, run_here, run_process, write_pair, write_rows

from cospec.jsonl import read_jsonl
from cospec.pair import ModelSpec, PairSpec, load_pair

ROWS = [{"id": 1, "prompt": "w9 w10 w11"}, {"id": 2, "prompt_ids": [1, 20, 21]}, {"id": 3, "prompt_ids": [7]}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair, prompts, and a random head of either kind for its target."""
    folder = tmp_path_factory.mktemp("heads")
    write_pair(folder / "pair")
    write_rows(folder / "rows.jsonl", ROWS)
    pair = load_pair(PairSpec(None, ModelSpec(str(folder / "pair" / "target"), device="cpu")))
    for kind in ("eagle3", "mtp"):
        saved_drafter(kind, pair, folder / kind)
    return folder


@pytest.mark.parametrize("kind", ["eagle3", "mtp"])
def test_generate_drafts_with_a_head_and_no_draft_model(folder: Path, kind: str) -> None:
    common = ["--prompts", folder / "rows.jsonl", "--max-new-tokens", "16", "--target", folder / "pair" / "target"]
    plain = read_rows(run_here("generate", *common, "--rule", "target").stdout)
    found = read_rows(run_here("generate", *common, "--drafter", f"{kind}:{folder / kind}").stdout)
    assert [row["output_ids"] for row in found] == [row["output_ids"] for row in plain]
    assert all(row["num_drafted"] > 0 for row in found)


def test_rollout_records_the_head(folder: Path, tmp_path: Path) -> None:
    spec, out = f"mtp:{folder / 'mtp'}", tmp_path / "out.jsonl"
    common = ["--prompts", folder / "rows.jsonl", "--max-new-tokens", "12", "--out", out, "--temperature", "0.8"]
    pair = ["--pair", folder / "pair" / "PAIR.yaml", "--rule", "strict", "--drafter", spec, "--json"]
    done = run_process("rollout", *common, *pair, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_drafted"] > 0
    assert {row["settings"]["drafter"] for row in read_jsonl(out)} == {spec}


def test_a_retrained_head_is_not_mixed_into_what_was_begun(folder: Path, tmp_path: Path) -> None:
    head, run = tmp_path / "mtp", tmp_path / "run"
    shutil.copytree(folder / "mtp", head)
    common = ["--pair", folder / "pair" / "PAIR.yaml", "--drafter", f"mtp:{head}", "--max-new-tokens", "4"]
    rows = write_rows(tmp_path / "rows.jsonl", [row | {"gold": "w9"} for row in ROWS])
    rollout = ["rollout", *common, "--prompts", rows, "--rule", "strict", "--out", tmp_path / "out.jsonl"]
    scored = ["--prompts", rows, "--scorer", "cospec.scoring.open_qa:score_open_qa", "--out", run]
    evaluated = ["eval", *common, *scored, "--methods", "strict"]
    assert run_here(*rollout).exit_code == 0
    assert run_here(*evaluated).exit_code == 0
    config = head / "config.json"
    config.write_text(config.read_text() + "\n")
    assert_refused(run_here(*rollout), "was made with another drafter")
    assert_refused(run_here(*evaluated), "drafter_digest was")
    # A directory of a version that recorded no digest goes on.
    settings = json.loads((run / "settings.json").read_text())
    del settings["drafter_digest"]
    (run / "settings.json").write_text(json.dumps(settings))
    assert run_here(*evaluated).exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drafter", "mtp"], "ships no MTP layer"),
        (["--drafter", "eagle3"], "lacks the directory or Hub id of an EAGLE-3 head"),
        (["--drafter", "eagle3:MTP"], "holds a speculator of type 'mtp'"),
        (["--drafter", "mtp:EAGLE3"], "not that of an MTP layer"),
        (["--drafter", "mtp:NOWHERE"], "there is no directory"),
        (["--drafter", "mtp:MTP", "--compile", "inductor"], "reads the target's hidden states"),
    ],
)
def test_what_cannot_work_is_refused_by_name(folder: Path, options: list[str], message: str) -> None:
    for word, place in (("EAGLE3", "eagle3"), ("MTP", "mtp"), ("NOWHERE", "nowhere")):
        options = [option.replace(f":{word}", f":{folder / place}") for option in options]
    assert_refused(run_here("generate", "--target", folder / "pair" / "target", *options, "w9 w10"), message)


def test_a_head_of_another_target_is_refused(folder: Path, tmp_path: Path) -> None:
    write_pair(tmp_path / "other", seed=5)
    words = ["generate", "--target", tmp_path / "other" / "target", "--drafter", f"mtp:{folder / 'mtp'}", "w9 w10"]
    assert_refused(run_here(*words), "was made for another target: a target with other weights")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_accelerate_launch_trains_a_head(folder: Path, tmp_path: Path, processes: int) -> None:
    rows = [{"id": i, "prompt_ids": [5 + i, 30 - i]} for i in range(12)]
    write_rows(tmp_path / "prompts.jsonl", rows)
    launched = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", str(processes), "--cpu"]
    launched += [
        "--num_machines",
        "1",
        "--mixed_precision",
        "no",
        "--dynamo_backend",
        "no",
        "--main_process_port",
        "29622",
    ]
    settings = [f"prompts={tmp_path / 'prompts.jsonl'}", f"run.dir={tmp_path / 'run'}", "head.kind=mtp", "holdout=0.0"]
    settings += [f"pair.path={folder / 'pair' / 'PAIR.yaml'}", "run.use_cpu=true", "texts.max_new_tokens=6", "batch=4"]
    environment = {**os.environ, "CI": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*launched, "train/drafter_head.py", *settings, "optimiser.micro_batch=2", "epochs=2"],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    losses = [row["loss"] for row in read_jsonl(tmp_path / "run" / "metrics.jsonl") if "loss" in row]
    assert len(losses) == 6
    assert len(list(read_jsonl(tmp_path / "run" / "texts.jsonl"))) == 12
    words = ["--drafter", f"mtp:{tmp_path / 'run' / 'head'}", "--max-new-tokens", "8"]
    assert run_here("generate", "--target", folder / "pair" / "target", *words, "w9 w10").exit_code == 0
