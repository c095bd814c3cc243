"""Many programs at a time, and what becomes of them when their starter dies."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from live_processes import is_alive, wait_until

from cospec.scoring.code import (
    CodeJob,
    FunctionTests,
    Limits,
    Program,
    isolation_here,
    run_job,
    run_many,
    score_code,
    verdict_of,
)

RIGHT = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize("num_workers", [0, -1])
def test_no_workers_is_an_error(num_workers: int) -> None:
    with pytest.raises(ValueError, match="num_workers"):
        run_many([], num_workers, allow_code_execution=True)


ROW = {"tests": "assert f(1) == 2\nassert f(-1) == 0\n"}


def test_threads_may_score_at_the_same_time() -> None:
    texts = [f"def f(x):\n    return x + {i % 3}\n" for i in range(12)]
    with ThreadPoolExecutor(4) as pool:
        verdicts = list(pool.map(lambda text: score_code(text, ROW, allow_code_execution=True), texts))
    assert [verdict.kind for verdict in verdicts] == ["right" if i % 3 == 1 else "wrong" for i in range(12)]


KINDS = {
    "good": (RIGHT, ("passed",)),
    "wrong": ("def f(x):\n    return x\n", ("failed",)),
    "hanging": ("def f(x):\n    while True: pass\n", ("cpu_limit",)),
    "crashing": ("import os\ndef f(x):\n    os._exit(139)\n", ("failed",)),
    "forking": ("import os\nwhile True:\n    os.fork()\n", ("failed", "process_limit")),
    "good again": (RIGHT + "print('x' * 100000)\n", ("passed",)),
}


def mixed(number: int) -> list[CodeJob]:
    programs = [KINDS[kind][0] for kind in KINDS]
    limits = Limits(cpu_s=1, wall_s=120)
    return [
        CodeJob(Program((programs[i % len(programs)],)), FunctionTests(f"assert f({i}) == {i + 1}"), limits)
        for i in range(number)
    ]


def check_mixed(number: int) -> None:
    seen: list[int] = []
    before = set(psutil.Process().children(recursive=True))
    runs = run_many(mixed(number), 2, allow_code_execution=True, on_run=lambda index, run: seen.append(index))
    expected = [KINDS[kind][1] for kind in KINDS]
    surprising = [
        (i, run.outcome, run.reason) for i, run in enumerate(runs) if run.outcome not in expected[i % len(KINDS)]
    ]
    assert surprising == []
    assert sorted(seen) == list(range(number)) == list(range(len(runs)))
    assert set(psutil.Process().children(recursive=True)) <= before


def test_mixed_programs_on_two_workers_lose_none() -> None:
    check_mixed(36)


@pytest.mark.slow
def test_a_thousand_mixed_programs_on_two_workers_lose_none() -> None:
    check_mixed(1000)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_program_dies_with_the_process_that_started_it_though_its_supervisor_is_stopped(
    tmp_path: Path, is_stopped: bool
) -> None:
    script = f"""
import tempfile
tempfile.tempdir = {str(tmp_path)!r}
from cospec.scoring.code import *
job = CodeJob(Program(("import time\\nprint(1, flush=True)\\ntime.sleep(1000)",)), FunctionTests("f()"))
isolation = isolation_here()
print("ready", flush=True)
run_job(job, isolation)
"""
    starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert starter.stdout
    assert starter.stdout.readline() == "ready\n"
    # The supervisor, the program and the tests.
    below = wait_until(lambda: len(found := psutil.Process(starter.pid).children(recursive=True)) >= 3 and found)
    if is_stopped:
        psutil.Process(starter.pid).children()[0].suspend()
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    assert wait_until(lambda: not any(is_alive(process) for process in below))
    assert wait_until(lambda: not list(tmp_path.iterdir()))


def test_an_interrupt_ends_running_programs_at_once_and_starts_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolation = isolation_here()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    job = CodeJob(Program(("import time\ntime.sleep(1000)",)), FunctionTests("f()"), Limits(wall_s=1000))
    before, seen = descendants(), []

    def interrupt() -> None:
        wait_until(lambda: len([process for process in descendants() if process not in before]) >= 6)
        os.kill(os.getpid(), signal.SIGINT)

    interrupter = threading.Thread(target=interrupt)
    # A shell starts its background jobs with interrupts ignored.
    before_test = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            run_many(
                [job] * 8,
                2,
                isolation=isolation,
                allow_code_execution=True,
                on_run=lambda index, run: seen.append(index),
            )
    finally:
        signal.signal(signal.SIGINT, before_test)
    interrupter.join()
    assert seen == []
    assert [process for process in descendants() if process not in before] == []
    assert list(tmp_path.iterdir()) == []


def test_a_killed_supervisor_is_a_failure_of_the_sandbox_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    isolation = isolation_here()
    job = CodeJob(Program(("import time\ntime.sleep(1000)",)), FunctionTests("f()"))
    before = descendants()
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(run_job, job, isolation)
        # The supervisor, the program and the tests.
        below = wait_until(lambda: len(found := [p for p in descendants() if p not in before]) >= 3 and found)
        supervisor = next(process for process in below if process.ppid() == os.getpid())
        supervisor.kill()
        run = pending.result()
    assert run.outcome == "broken"
    assert "supervisor ended: exit status -9" in run.reason
    assert verdict_of(run, "").is_failure
    assert wait_until(lambda: not any(is_alive(process) for process in below))
    assert list(tmp_path.iterdir()) == []


def test_a_sandbox_that_cannot_be_set_up_is_a_failure_for_each_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolation = isolation_here()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    jobs = [CodeJob(Program((RIGHT,)), FunctionTests("assert f(1) == 2"))] * 3
    runs = run_many(jobs, 2, isolation=isolation, allow_code_execution=True)
    assert [run.outcome for run in runs] == ["broken"] * 3
    assert all("could not be set up" in run.reason for run in runs)


def descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)
