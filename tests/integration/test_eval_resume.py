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

from model_dirs import ROOT, read_rows, write_arbiter, write_pair, write_rows

NUM_ROWS, REPEATS, METHODS = 18, 2, 3
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


def test_a_killed_evaluation_goes_on_to_the_same_results(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "pair")
    write_arbiter(tmp_path / "arbiter", pair)
    (tmp_path / "parity_scorer.py").write_text(SCORER)
    rows = [{"id": i, "prompt": f"w{9 + i} w{30 - i}", "gold": i % 2} for i in range(NUM_ROWS)]
    write_rows(tmp_path / "rows.jsonl", rows)
    asked = ["eval", "--pair", str(pair), "--prompts", "rows.jsonl", "--scorer", "parity_scorer:score"]
    asked += ["--arbiter", "sft=arbiter", "--methods", "strict", "--max-new-tokens", "48", "--batch-size", "4"]
    asked += ["--temperature", "0.7", "--repeats", str(REPEATS), "--max-failed-share", "0.2"]
    asked += ["--oracle-branch", "2", "--spot-check", "3", "--keep-rollouts", "--out"]
    whole = start(tmp_path, [*asked, "whole"])
    message = whole.communicate()[1]
    assert whole.returncode == 0, message

    dice, broken = random.Random(7), tmp_path / "broken"
    so_far = 0
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
        so_far += dice.randrange(5, NUM_SAMPLES // 4)
        process = start(tmp_path, [*asked, "broken"])
        message = stop_after(process, broken / "samples.jsonl", so_far, how)
        if how is signal.SIGTERM:
            assert process.returncode == 130, message
            assert "cospec: interrupted; kept: all finished samples in broken" in message
            read_rows((broken / "samples.jsonl").read_text())
        else:
            assert process.returncode == -signal.SIGKILL, message
        assert not (broken / "results.json").exists()
    # What a kill in the middle of a write leaves: half a line, and a record without its sample.
    records = next((broken / "rollouts").glob("*sft.jsonl"), None)
    if records is not None:
        lines = records.read_text().splitlines(keepends=True)
        records.write_text("".join([*lines, lines[-1][:40]]))
    with (broken / "samples.jsonl").open("a") as file:
        file.write('{"task": "rows", "meth')
    last = start(tmp_path, [*asked, "broken"])
    message = last.communicate()[1]
    assert last.returncode == 0, message
    assert "samples are there already, goes on" in message

    for name in ("results.json", "settings.json"):
        one, other = (json.loads((tmp_path / run / name).read_text()) for run in ("whole", "broken"))
        assert without_timing(one) == without_timing(other)
    one, other = (read_rows((tmp_path / run / "samples.jsonl").read_text()) for run in ("whole", "broken"))
    assert without_timing(one) == without_timing(other)
    assert len(one) == NUM_SAMPLES
    assert all(sample["timing"]["active_s"] > 0 for sample in other)
    for run in ("whole", "broken"):
        for file in (tmp_path / run / "rollouts").iterdir():
            assert sorted(row["id"] for row in read_rows(file.read_text())) == list(range(NUM_ROWS))
    # The order in which samples were written is the results' business as little as how often the run began.
    found = json.loads((broken / "results.json").read_text())
    assert found["tasks"]["rows"]["spot_check"]["strict"]["num"] == 3
    assert found["tasks"]["rows"]["oracle_branch"]["sft"]["num_problems"] == 2
