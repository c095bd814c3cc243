"""`cospec eval` killed at random moments and started again, against the same evaluation in one go."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from model_dirs import ROOT, read_rows, write_arbiter, write_pair, write_rows

NUM_ROWS, REPEATS, METHODS = 12, 2, 3
NUM_SAMPLES = NUM_ROWS * REPEATS * METHODS
SCORER = """
def score(text, row):
    if row["id"] == 5:
        raise RuntimeError("scorer is ill")
    return sum(map(ord, text)) % 2 == int(row["gold"])
"""


def without_timing(value: Any) -> Any:
    """The value without all that lies under "timing"."""
    if isinstance(value, dict):
        return {key: without_timing(item) for key, item in value.items() if key != "timing"}
    return [without_timing(item) for item in value] if isinstance(value, list) else value


def start(folder: Path, arguments: list[str]) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cospec", *arguments]
    return subprocess.Popen(
        command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def stop_after(process: subprocess.Popen[str], samples: Path, num: int, how: signal.Signals) -> str:
    """Send the signal once that many samples are there; what the process said. It may have ended before."""
    while process.poll() is None and (not samples.exists() or samples.read_bytes().count(b"\n") < num):
        time.sleep(0.002)
    process.send_signal(how)
    return process.communicate()[1]


def prepare(folder: Path) -> list[str]:
    """A random pair with an arbiter, problems and a scorer; the command but for the run directory."""
    pair = write_pair(folder / "pair")
    write_arbiter(folder / "arbiter", pair)
    (folder / "parity_scorer.py").write_text(SCORER)
    rows = [{"id": i, "prompt": f"w{9 + i} w{30 - i}", "gold": i % 2} for i in range(NUM_ROWS)]
    write_rows(folder / "rows.jsonl", rows)
    asked = ["eval", "--pair", str(pair), "--prompts", "rows.jsonl", "--scorer", "parity_scorer:score"]
    asked += ["--arbiter", "sft=arbiter", "--methods", "strict", "--max-new-tokens", "32", "--batch-size", "4"]
    asked += ["--temperature", "0.7", "--repeats", str(REPEATS), "--max-failed-share", "0.2"]
    return [*asked, "--oracle-branch", "2", "--spot-check", "3", "--keep-rollouts", "--out"]


def tear(run: Path) -> None:
    """What a kill in the middle of a write leaves: half a line, and a record without its sample."""
    for records in (run / "rollouts").glob("*.jsonl"):
        lines = records.read_text().splitlines(keepends=True)
        records.write_text("".join([*lines, lines[-1][:40]]))
    with (run / "samples.jsonl").open("a") as file:
        file.write('{"task": "rows", "meth')


def finish(folder: Path, arguments: list[str]) -> str:
    """Run to the end; what was said."""
    process = start(folder, arguments)
    message = process.communicate()[1]
    assert process.returncode == 0, message
    return message


def assert_same(folder: Path) -> None:
    """Both runs left the same, but for the clock."""
    for name in ("results.json", "settings.json"):
        one, other = (json.loads((folder / run / name).read_text()) for run in ("whole", "broken"))
        assert without_timing(one) == without_timing(other)
    one, other = (read_rows((folder / run / "samples.jsonl").read_text()) for run in ("whole", "broken"))
    assert without_timing(one) == without_timing(other)
    assert len(one) == NUM_SAMPLES
    assert all(sample["timing"]["active_s"] > 0 for sample in other)
    for run in ("whole", "broken"):
        for file in (folder / run / "rollouts").iterdir():
            assert sorted(row["id"] for row in read_rows(file.read_text())) == list(range(NUM_ROWS))
    found = json.loads((folder / "broken" / "results.json").read_text())
    assert found["tasks"]["rows"]["spot_check"]["strict"]["num"] == 3
    assert found["tasks"]["rows"]["oracle_branch"]["sft"]["num_problems"] == 2


def test_a_killed_evaluation_goes_on_to_the_same_results(tmp_path: Path) -> None:
    asked, broken, dice = prepare(tmp_path), tmp_path / "broken", random.Random(7)
    finish(tmp_path, [*asked, "whole"])
    so_far = 0
    for how in (signal.SIGKILL, signal.SIGTERM):
        so_far += dice.randrange(5, NUM_SAMPLES // 3)
        process = start(tmp_path, [*asked, "broken"])
        message = stop_after(process, broken / "samples.jsonl", so_far, how)
        if how is signal.SIGTERM:
            assert process.returncode == 130, message
            assert "cospec: interrupted; kept: all finished samples in broken" in message
            read_rows((broken / "samples.jsonl").read_text())
        else:
            assert process.returncode == -signal.SIGKILL, message
        assert not (broken / "results.json").exists()
    tear(broken)
    assert "samples are there already" in finish(tmp_path, [*asked, "broken"])
    assert_same(tmp_path)


@pytest.mark.slow
def test_kills_at_any_moment_change_nothing(tmp_path: Path) -> None:
    asked, broken, dice = prepare(tmp_path), tmp_path / "broken", random.Random(8)
    began = time.perf_counter()
    finish(tmp_path, [*asked, "whole"])
    longest, num_kills = time.perf_counter() - began, 0
    while not (broken / "results.json").exists():
        process = start(tmp_path, [*asked, "broken"])
        # While modules are imported, models loaded, texts written, branches finished or results summed up; the first
        # kills come early enough on a machine whose speed varies.
        earliest, latest = (0.1, 0.45) if num_kills < 3 else (0.3, 1.0)
        try:
            process.communicate(timeout=dice.uniform(earliest, latest) * longest)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            num_kills += 1
    finish(tmp_path, [*asked, "broken"])
    assert num_kills > 1
    assert_same(tmp_path)
