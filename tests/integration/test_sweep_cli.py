"""`cospec sweep` as a process: killed and gone on with, it ends in the table of a sweep in one go."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from model_dirs import assert_refused, run_here, write_arbiter, write_pair, write_rows
from test_eval_resume import finish, start, stop_after, without_timing

NUM_ROWS = 6
SCORER = "def score(text, row):\n    return sum(map(ord, text)) % 3 != int(row['gold'])\n"
GRID = """
num_draft_tokens: [2, 4]
samplings:
  - {temperature: 0.8}
  - {temperature: 0.0, only: [fly]}
methods:
  - {rule: strict}
  - {rule: cactus, values: {delta: [0.25, 1.0]}}
  - {rule: fly, values: {window: [1]}}
  - {arbiter: arbiter, name: mine, values: {threshold: [0.5]}}
"""
#: Per task: target and five methods at two K, then target and one method at two K.
NUM_CELLS = 1 + 2 * 5 + 1 + 2


def prepare(folder: Path) -> list[str]:
    """A random pair with an arbiter, problems, scorer and grid; the command but for the run directory."""
    pair = write_pair(folder / "pair")
    write_arbiter(folder / "arbiter", pair)
    (folder / "thirds_scorer.py").write_text(SCORER)
    (folder / "grid.yaml").write_text(GRID)
    write_rows(
        folder / "rows.jsonl", [{"id": i, "prompt": f"w{9 + i} w{30 - i}", "gold": i % 3} for i in range(NUM_ROWS)]
    )
    asked = ["sweep", "--pair", str(pair), "--prompts", "rows.jsonl", "--scorer", "thirds_scorer:score"]
    return [*asked, "--grid", "grid.yaml", "--max-new-tokens", "24", "--batch-size", "4", "--out"]


def table(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "cells.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGKILL, id="kill"), pytest.param(signal.SIGTERM, id="term", marks=pytest.mark.slow)]
)
def test_a_killed_sweep_goes_on_to_the_same_table(tmp_path: Path, how: signal.Signals) -> None:
    asked, broken = prepare(tmp_path), tmp_path / "broken"
    finish(tmp_path, [*asked, "whole", "--parquet"])
    process = start(tmp_path, [*asked, "broken"])
    samples = broken / "temperature=0.8" / "k2" / "samples.jsonl"
    message = stop_after(process, samples, 8, how)
    assert process.returncode == (130 if how is signal.SIGTERM else -how), message
    assert ("interrupted; kept: all finished texts in broken" in message) == (how is signal.SIGTERM)
    assert len(table(broken)) < NUM_CELLS
    # What a kill in the middle of a write leaves.
    with samples.open("a") as file:
        file.write('{"task": "rows", "meth')
    finish(tmp_path, [*asked, "broken"])
    one, other = table(tmp_path / "whole"), table(broken)
    assert without_timing(one) == without_timing(other)
    assert len(one) == NUM_CELLS
    assert [row["method"] for row in one[:6]] == [
        "target",
        "strict",
        "cactus:delta=0.25",
        "cactus:delta=1",
        one[4]["method"],
        "mine:threshold=0.5",
    ]
    assert all(row["timing"]["modelled_speedup"] > 0 for row in one)
    # Greedy cells are of one rule; the target of each sampling is decoded once.
    assert [row["rule"] for row in one if row["temperature"] == 0] == ["target", "fly", "fly"]
    assert (tmp_path / "whole" / "cells.parquet").exists()


def test_a_dry_run_shows_cells_and_work_without_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    shown = run_here(*asked, "none", "--dry-run", "--json")
    assert shown.exit_code == 0, shown.output
    plan = json.loads(shown.stdout)
    assert len(plan["cells"]) == NUM_CELLS
    assert plan["num_texts"] == plan["num_left"] == NUM_CELLS * NUM_ROWS
    assert plan["max_tokens_left"] == NUM_CELLS * NUM_ROWS * 24
    assert plan["seconds_left"] is None
    assert not (tmp_path / "none").exists()


def test_options_hold_where_the_grid_file_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "grid.yaml").write_text("methods: [{rule: strict}]\n")
    options = ["--num-draft-tokens", "3,10", "--temperature", "0,0.6", "--top-p", "0.95"]
    shown = run_here(*asked, "none", "--dry-run", "--json", *options)
    assert shown.exit_code == 0, shown.output
    cells = [(cell["sampling"], cell["num_draft_tokens"], cell["method"]) for cell in json.loads(shown.stdout)["cells"]]
    samplings = ("temperature=0", "temperature=0.6,top_p=0.95")
    assert cells == [(name, k, m) for name in samplings for k, m in ((None, "target"), (3, "strict"), (10, "strict"))]
    assert_refused(run_here(*asked, "none", "--top-p", "0.9"), "--top-p is for temperatures above 0")
    (tmp_path / "grid.yaml").write_text("num_draft_tokens: [2]\n")
    shown = run_here(*asked, "none", "--dry-run", "--json", "--rule", "cactus", "--values", "cactus:delta=1,2")
    cells = [(cell["num_draft_tokens"], cell["method"]) for cell in json.loads(shown.stdout)["cells"]]
    assert cells == [(None, "target"), (2, "cactus:delta=1"), (2, "cactus:delta=2")]
    assert_refused(run_here(*asked, "none", "--dry-run"), "no methods: name rules with --rule")


def test_what_is_said_twice_or_for_nothing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    twice = run_here(*asked, "out", "--num-draft-tokens", "5")
    assert_refused(twice, "--num-draft-tokens is given and grid.yaml has `num_draft_tokens`")
    assert_refused(
        run_here(*asked, "out", "--temperature", "0"), "--temperature is given and grid.yaml has `samplings`"
    )
    assert_refused(run_here(*asked, "out", "--rule", "strict"), "--rule is given and grid.yaml has `methods`")
    without = [part for part in asked[:-1] if part not in ("--grid", "grid.yaml")]
    assert_refused(run_here(*without, "--out", "out"), "no methods: name rules with --rule")
    assert_refused(run_here(*without, "--rule", "strict"), "add --out RUN_DIR")
    assert_refused(
        run_here(*without, "--rule", "strict", "--out", "out", "--top-p", "0.9"), "--top-p is for temperatures"
    )
    assert_refused(
        run_here(*without, "--rule", "strict", "--out", "out", "--num-draft-tokens", "3,x"), "write whole numbers"
    )
    tasks = ["--task", "word_problems", "--task", "word_problems"]
    assert_refused(
        run_here(*without[:3], *tasks, "--rule", "strict", "--out", "out"), "task word_problems is named twice"
    )
    assert not (tmp_path / "out").exists()
