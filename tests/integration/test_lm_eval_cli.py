"""The harness's own command line on tasks that need no network, with the bundled pair, as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lm_eval", reason="the adapter needs the extra lm-eval")

from cospec.engine.decode import Engine
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.jsonl import read_jsonl
from cospec.pair import load_pair
from cospec.pair_file import TINY_DIRECTORY, read_pair_file
from cospec.prompts import prompt_ids
from cospec.tasks.word_problems import generate

ROOT = Path(__file__).parents[2]
SPLIT = "dataset_path: json\ndataset_kwargs: {data_files: {test: %s}}\ntest_split: test\n"
GENERATION = """
task: words
output_type: generate_until
doc_to_text: "{{prompt}}"
doc_to_target: "{{gold}}"
generation_kwargs: {until: ["."], max_gen_toks: 40}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""
CHOICE = """
task: choice
output_type: multiple_choice
doc_to_text: "{{prompt}}"
doc_to_choice: "{{[gold, '999']}}"
doc_to_target: 0
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


def run_harness(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    # Its cache of data sets is the machine's otherwise.
    env |= {"HF_HOME": str(cwd / "hf"), "HF_DATASETS_CACHE": str(cwd / "hf" / "datasets")}
    command = [sys.executable, "-m", "cospec.evaluation.lm_eval", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env)


def results_in(folder: Path) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The harness's results, and its samples by task."""
    [file] = folder.rglob("results_*.json")
    samples = {path.name.split("_")[1]: list(read_jsonl(path)) for path in folder.rglob("samples_*.jsonl")}
    return json.loads(file.read_text()), samples


def test_local_tasks_run_end_to_end(tmp_path: Path) -> None:
    problems = generate(10, seed=5, split="eval")
    rows = [{"prompt": problem.prompt, "gold": problem.gold} for problem in problems]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, text in (("words", GENERATION), ("choice", CHOICE)):
        (tmp_path / f"{name}.yaml").write_text(text + SPLIT % (tmp_path / "rows.jsonl"))
    done = run_harness(
        *("--model", "cospec", "--model_args", "pair=tiny,rule=strict,num_draft_tokens=4", "--batch_size", "4"),
        *("--include_path", ".", "--tasks", "words,choice", "--apply_chat_template"),
        *("--output_path", "out", "--log_samples"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results, samples = results_in(tmp_path / "out")

    pair = load_pair(read_pair_file("tiny"))
    engine = Engine(pair, rule_named("strict"), num_draft_tokens=4, max_new_tokens=40, stop=["."])
    rollouts = engine.rollouts([Request(i, prompt_ids(pair, row["prompt"])) for i, row in enumerate(rows)])
    by_document = {sample["doc_id"]: sample["resps"][0][0] for sample in samples["words"]}
    assert [by_document[index] for index in range(len(rows))] == [rollout.text for rollout in rollouts]
    assert {rollout.finish_reason for rollout in rollouts} >= {"stop"}
    info = results["config"]["cospec"]
    assert info["num_tokens"] == sum(len(rollout.output_ids) for rollout in rollouts)
    assert info["num_rounds"] == sum(rollout.num_rounds for rollout in rollouts)
    assert f"{info['num_tokens']} tokens in {info['num_rounds']} rounds" in done.stderr + done.stdout
    assert 0 < results["results"]["choice"]["acc,none"] <= 1
    assert len(samples["choice"]) == 10


def test_a_users_mistake_is_one_line(tmp_path: Path) -> None:
    done = run_harness("--model", "cospec", "--model_args", "pair=nope.yaml", "--tasks", "gsm8k", cwd=tmp_path)
    assert done.returncode == 2
    assert "cospec: error: pair file 'nope.yaml' does not exist" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not find_spec("wonderwords"), reason="RULER's tasks need the package wonderwords")
def test_a_task_of_the_harness_that_makes_its_own_data(tmp_path: Path) -> None:
    metadata = json.dumps({"tokenizer": str(TINY_DIRECTORY / "target"), "max_seq_lengths": [440]})
    done = run_harness(
        *("run", "--model", "cospec", "--model_args", "pair=tiny,rule=always", "--tasks", "ruler_fwe"),
        *("--metadata", metadata, "--limit", "4", "--batch_size", "4", "--output_path", "out"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    results, _ = results_in(tmp_path / "out")
    assert results["config"]["cospec"]["num_texts"] == 4
    assert "440,none" in results["results"]["ruler_fwe"]
