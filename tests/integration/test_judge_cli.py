"""`--rule judge:DIR` in the commands, and a head trained by its script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from model_dirs import ROOT, assert_refused, read_rows, run_here, write_pair, write_rows

from cospec.cli.lock import sole_appender
from cospec.cli.methods import Pinned, pinned_drafter, pinned_rule
from cospec.decode_file import DecodeConfig, write_decode_file
from cospec.engine.heads.judge import JudgeHead, save_judge
from cospec.jsonl import read_jsonl, write_jsonl_atomic
from cospec.pair import ModelSpec, PairSpec, load_pair

ROWS = [{"id": i, "prompt_ids": [1, 20 + i, 9 + 2 * i], "gold": "w9", "task": "exact"} for i in range(6)]
COMMON = ["--max-new-tokens", "16", "--num-draft-tokens", "4"]


def write_judge(directory: Path, target: Path) -> Path:
    """A random head."""
    pair = load_pair(PairSpec(None, ModelSpec(str(target), device="cpu")))
    head = JudgeHead(pair.target.config.hidden_size, layer=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        torch.nn.init.normal_(head.linear.weight, std=0.5)
    save_judge(head, directory, pair)
    return directory


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair, prompts, and a random head for its target."""
    folder = tmp_path_factory.mktemp("judge")
    write_pair(folder / "pair")
    write_rows(folder / "rows.jsonl", ROWS)
    write_judge(folder / "judge", folder / "pair" / "target")
    return folder


def test_generate_keeps_what_the_judge_keeps(folder: Path) -> None:
    common = ["--prompts", folder / "rows.jsonl", *COMMON, "--pair", folder / "pair" / "PAIR.yaml"]
    strict = read_rows(run_here("generate", *common).stdout)
    rule = f"judge:{folder / 'judge'}"
    assert [
        row["output_ids"] for row in read_rows(run_here("generate", *common, "--rule", f"{rule},threshold=1").stdout)
    ] == [row["output_ids"] for row in strict]
    kept = read_rows(run_here("generate", *common, "--rule", rule).stdout)
    assert 0 < sum(row["num_kept"] for row in kept) < sum(row["num_mismatches"] for row in kept)
    alone = ["--prompts", folder / "rows.jsonl", *COMMON, "--target", folder / "pair" / "target", "--drafter", "ngram"]
    assert len(read_rows(run_here("generate", *alone, "--rule", rule).stdout)) == len(ROWS)


def test_eval_compares_thresholds_and_notices_another_head(folder: Path, tmp_path: Path) -> None:
    head = write_judge(tmp_path / "judge", folder / "pair" / "target")
    methods = f"strict,judge:{head},judge:{head},threshold=0.8"
    words = ["eval", "--pair", folder / "pair" / "PAIR.yaml", "--prompts", folder / "rows.jsonl", "--methods", methods]
    words += [*COMMON, "--out", tmp_path / "run", "--json"]
    done = run_here(*words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert list(found["methods"]) == ["target", "strict", f"judge:{head}", f"judge:{head},threshold=0.8"]
    described = found["settings"]["methods"][f"judge:{head}"]
    assert described["rule"] == f"judge:{head},threshold=0.5"
    assert described["bonus"] == "target"
    assert len(described["judge_digest"]) == 16
    (head / "config.json").write_text((head / "config.json").read_text() + "\n")
    assert_refused(run_here(*words), "judge")


def test_rollout_does_not_go_on_with_another_head(folder: Path, tmp_path: Path) -> None:
    head = write_judge(tmp_path / "judge", folder / "pair" / "target")
    words = ["rollout", "--pair", folder / "pair" / "PAIR.yaml", "--prompts", folder / "rows.jsonl", *COMMON]
    words += ["--rule", f"judge:{head}", "--out", tmp_path / "out.jsonl", "--json"]
    assert run_here(*words).exit_code == 0
    assert {row["settings"]["rule"] for row in read_jsonl(tmp_path / "out.jsonl")} == {f"judge:{head},threshold=0.5"}
    (head / "config.json").write_text((head / "config.json").read_text() + "\n")
    assert_refused(run_here(*words), "was made with another judge")


def test_a_decode_config_knows_its_judge_and_drafter_from_anywhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = write_judge(tmp_path / "judge", folder / "pair" / "target")
    monkeypatch.chdir(tmp_path)
    rule = pinned_rule("judge:judge,threshold=0.8")
    assert rule.spec == f"judge:{head},threshold=0.8"
    assert pinned_drafter("ngram:max_match=4") == Pinned("ngram:max_match=4", None)
    drafter = pinned_drafter("eagle3:judge")
    assert (drafter.spec, drafter.digest) == (f"eagle3:{head}", rule.digest)
    write_decode_file(tmp_path / "decode.yaml", DecodeConfig(rule=rule.spec, judge_digest=rule.digest))
    monkeypatch.chdir(folder)
    words = ["--pair", folder / "pair" / "PAIR.yaml", "--decode", tmp_path / "decode.yaml", "--max-new-tokens", "4"]
    done = run_here("generate", *words, "w9 w10")
    assert done.exit_code == 0, done.output
    (head / "config.json").write_text((head / "config.json").read_text() + "\n")
    assert_refused(run_here("generate", *words, "w9 w10"), f"judge judge:{head},threshold=0.8 is not the one")
    write_decode_file(tmp_path / "decode.yaml", DecodeConfig(drafter=drafter.spec, drafter_digest=drafter.digest))
    assert_refused(run_here("generate", *words, "w9 w10"), f"drafter eagle3:{head} is not the one")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--rule", "judge"], "needs a trained judge: write judge:DIR"),
        (["--rule", "judge:NOWHERE"], "there is no directory"),
        (["--rule", "judge:PAIR"], "holds no judge head"),
        (["--rule", "judge:JUDGE,threshold=2"], "threshold=2 is out of range"),
        (["--rule", "judge:JUDGE", "--threshold", "0.7"], "JUDGE,threshold=0.7"),
        (["--rule", "judge:JUDGE", "--bonus", "arbitrated"], "never reads a block's last one"),
        (["--rule", "judge:JUDGE", "--bonus", "rule"], "no law of its own"),
    ],
)
def test_what_cannot_work_is_refused_before_weights_are_read(
    folder: Path, tmp_path: Path, options: list[str], message: str
) -> None:
    """There are none to read."""
    places = {"NOWHERE": folder / "nowhere", "PAIR": folder / "pair" / "target", "JUDGE": folder / "judge"}
    for word, place in places.items():
        options = [option.replace(word, str(place)) for option in options]
        message = message.replace(word, str(place))
    missing = ["--draft", tmp_path / "no_draft", "--target", tmp_path / "no_target"]
    assert_refused(run_here("generate", *missing, *options, "w9 w10"), message)


def test_a_head_of_another_target_is_refused(folder: Path, tmp_path: Path) -> None:
    write_pair(tmp_path / "other", seed=5)
    words = ["generate", "--pair", tmp_path / "other" / "PAIR.yaml", "--rule", f"judge:{folder / 'judge'}", "w9 w10"]
    assert_refused(run_here(*words), "was made for another target: a target with other weights")


def test_a_second_process_on_one_file_is_refused(folder: Path, tmp_path: Path) -> None:
    common = ["--pair", folder / "pair" / "PAIR.yaml", "--prompts", folder / "rows.jsonl"]
    rollouts, labels = tmp_path / "rollouts.jsonl", tmp_path / "labels.jsonl"
    decode = ["rollout", *common, *COMMON, "--out", rollouts]
    label = ["label", *common, "--rollouts", rollouts, "--out", labels, "--scorer", "exact"]
    for words, out in ((decode, rollouts), (label, labels)):
        with sole_appender(out):
            assert_refused(run_here(*words), f"process {os.getpid()} on", f"is writing to {out}", "name another --out")
        assert not out.exists()
        assert run_here(*words).exit_code == 0
        # What is there goes on, also beside another command's file.
        assert run_here(*words).exit_code == 0


@pytest.mark.slow
def test_the_script_trains_a_head_on_labels(folder: Path, tmp_path: Path) -> None:
    pair = ["--pair", folder / "pair" / "PAIR.yaml", "--prompts", folder / "rows.jsonl"]
    rollouts, labels = tmp_path / "rollouts.jsonl", tmp_path / "labels.jsonl"
    assert run_here("rollout", *pair, *COMMON, "--out", rollouts).exit_code == 0
    done = run_here("label", *pair, "--rollouts", rollouts, "--out", labels, "--scorer", "exact")
    assert done.exit_code == 0, done.output
    rows = list(read_jsonl(labels))
    for row in rows:
        for number, label in enumerate(row["labels"]):
            label["label"] = float(number % 2)
    write_jsonl_atomic(labels, rows)
    words = [f"rollouts={rollouts}", f"labels={labels}", f"pair.path={folder / 'pair' / 'PAIR.yaml'}", "run.dir=run"]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "train" / "judge.py"), *words, "run.use_cpu=true", "holdout=0.3"]
    trained = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert trained.returncode == 0, trained.stderr
    common = ["--prompts", folder / "rows.jsonl", *COMMON, "--pair", folder / "pair" / "PAIR.yaml"]
    assert run_here("generate", *common, "--rule", f"judge:{tmp_path / 'run' / 'head'}").exit_code == 0
