"""`cospec score` stopped in the middle of its work, by whatever signal, leaves nothing running and no file behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from live_processes import is_alive, wait_until
from model_dirs import ROOT, read_rows, run_process, write_rows

HANGING = "def f(x):\n    import time\n    time.sleep(1000)\n"
SCORER = """
import ctypes, os, time
from cospec.scoring import Verdict
from cospec.scoring.maths import score_maths
print("imported")
def score(text, row):
    print("in Python", flush=True)
    os.system("echo by a program")
    if text == "crash":
        os._exit(3)
    if text == "hang":
        return 9 ** (9**9)
    if text == "kind":
        return Verdict("Right")
    return score_maths(text, {"gold": "x+1"})
"""


@contextmanager
def scoring(folder: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    """`cospec score` in a process of its own, with its scratch directories in ``folder``/scratch."""
    scratch = folder / "scratch"
    scratch.mkdir()
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(scratch)}
    command = [sys.executable, "-m", "cospec", "score", *map(str, arguments)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=env
    ) as process:
        yield process


def stop_after_first_row(process: subprocess.Popen[str], number: signal.Signals, num_below: int) -> tuple[str, str]:
    """Send the signal once a row is printed and so many processes run; what came on the two streams in all."""
    assert process.stdout
    assert process.stderr
    first = process.stdout.readline()
    below = wait_until(
        lambda: len(found := psutil.Process(process.pid).children(recursive=True)) >= num_below and found
    )
    process.send_signal(number)
    out, error = process.stdout.read(), process.stderr.read()
    assert process.wait() == (-9 if number == signal.SIGKILL else 130)
    assert wait_until(lambda: not any(is_alive(one) for one in below))
    return first + out, error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_programs_do_not_go_on_when_their_scoring_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    texts = ["def f(x):\n    return x\n", *[HANGING] * 5]
    row = {"tests": "assert f(1) == 1", "timeout_s": 1000}
    file = write_rows(tmp_path / "rows.jsonl", [{"id": n, "text": text, **row} for n, text in enumerate(texts)])
    options = ("--scorer", "code", "--workers", "2", "--confirm-run-unsafe-code")
    with scoring(tmp_path, "--rows", file, *options) as process:
        # A supervisor, a program and its tests, twice.
        out, error = stop_after_first_row(process, number, 6)
    assert [row["verdict"] for row in read_rows(out)] == ["right"]
    if number != signal.SIGKILL:
        assert error.endswith("cospec: interrupted; kept: the verdicts printed, of the first 1 of 6 rows\n")
    assert wait_until(lambda: not list((tmp_path / "scratch").iterdir()))


@pytest.mark.parametrize(("number", "workers"), [(signal.SIGINT, 1), (signal.SIGTERM, 2), (signal.SIGKILL, 2)])
def test_a_scorer_that_hangs_in_c_code_ends_with_the_command(
    tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    (tmp_path / "judge.py").write_text(SCORER)
    file = write_rows(tmp_path / "rows.jsonl", [{"id": n, "text": text} for n, text in enumerate(["1", *["hang"] * 4])])
    with scoring(tmp_path, "--rows", file, "--scorer", "judge:score", "--workers", str(workers)) as process:
        out, error = stop_after_first_row(process, number, workers)
    assert [row["verdict"] for row in read_rows(out)] == ["wrong"]
    assert number == signal.SIGKILL or "interrupted" in error


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_a_scorer_prints_is_no_verdict_and_its_crash_is_one_rows_error(tmp_path: Path, workers: str) -> None:
    (tmp_path / "judge.py").write_text(SCORER)
    texts = ["1", "crash", "$1 + x$", "kind", ""]
    file = write_rows(tmp_path / "rows.jsonl", [{"id": n, "text": text} for n, text in enumerate(texts)])
    options = ("--scorer", "judge:score", "--workers", workers, "--max-failed-share", "0.1")
    done = run_process("score", "--rows", file, *options, cwd=tmp_path)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["id"] for row in found] == list(range(5))
    assert [row["verdict"] for row in found] == ["wrong", "error", "right", "error", "no_answer"]
    assert found[1]["reason"] == "the scoring process ended (exit status 3)"
    for text in ("imported", "in Python", "by a program"):
        assert text in done.stderr
    assert done.returncode == 0
    assert done.stderr.endswith("cospec: 5 rows: 1 right, 1 wrong, 1 no_answer, 0 timeout, 2 error\n")
