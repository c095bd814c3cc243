"""A scoring process: outcomes become verdicts, and nothing that runs in it outlives its limit or its parent."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from cospec.scoring.process import ScoringProcess
from cospec.scoring.verdict import Verdict

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def echo() -> Iterator[ScoringProcess]:
    with ScoringProcess("scoring_jobs:echo") as process:
        yield process


def gone(pid: int) -> bool:
    """No such process, or one that nobody can run any more."""
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("text", ["", "3", "\ud800 lone", "nul \0 byte", "\u2028 \u0085", "x" * 3_000_000])
def test_any_text_passes_unchanged(echo: ScoringProcess, text: str) -> None:
    verdict = echo.score(text, {"id": 1, "gold": text})
    assert (verdict.kind, verdict.extracted) == ("right", text)


def test_the_worker_stays_the_same_and_is_not_us(echo: ScoringProcess) -> None:
    pids = {echo.score("", {}).reason for _ in range(20)}
    assert pids == {str(echo.pid)}
    assert echo.pid != os.getpid()


def test_what_a_scorer_may_return_becomes_a_verdict() -> None:
    with ScoringProcess("scoring_jobs:one_or_none") as process:
        kinds = [process.score(text).kind for text in ("right", "wrong", "nothing", "no such key")]
        assert kinds == ["right", "wrong", "error", "error"]


def test_output_and_input_of_the_function_disturb_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with ScoringProcess("scoring_jobs:chatty") as process:
        assert [process.score("noise").kind for _ in range(3)] == ["right"] * 3
    assert capfd.readouterr() == ("", "")


def test_output_goes_to_stderr_where_it_is_wanted(capfd: pytest.CaptureFixture[str]) -> None:
    with ScoringProcess("scoring_jobs:chatty", shows_output=True) as process:
        assert process.score("hello").is_right
    out, error = capfd.readouterr()
    assert out == ""
    assert "hello" in error
    assert "noise" in error


def test_without_limits_a_worker_may_take_its_time_and_memory() -> None:
    with ScoringProcess("scoring_jobs:limits", time_limit_s=None, memory_limit_mb=None) as process:
        assert process.score().extracted == str(resource.getrlimit(resource.RLIMIT_AS)[0])
    with ScoringProcess("scoring_jobs:limits") as process:
        assert process.score().extracted == str(2048 << 20)


def test_torch_is_not_loaded() -> None:
    with ScoringProcess("scoring_jobs:torch_loaded") as process:
        assert process.score().extracted == "False"


@pytest.mark.parametrize("how", ["loop", "sleep", "big number", "stop"])
def test_a_hung_job_is_a_timeout_and_its_worker_is_dead(how: str) -> None:
    with ScoringProcess("scoring_jobs:misbehave", time_limit_s=0.25) as process:
        assert process.score("fine").kind == "right"
        pid = process.pid
        assert pid is not None
        verdict = process.score(how)
        assert (verdict.kind, verdict.reason) == ("timeout", "no verdict within 0.25 s")
        assert not psutil.pid_exists(pid), "killed and reaped"
        assert process.score("fine").kind == "right"


def test_a_worker_without_the_processor_is_not_timed_out() -> None:
    with ScoringProcess("scoring_jobs:busy", time_limit_s=0.75) as process:
        assert process.score(0).kind == "right"
        assert process.pid is not None
        worker, done = psutil.Process(process.pid), threading.Event()
        thread = threading.Thread(target=hold_back, args=(worker, done))
        thread.start()
        assert process.score(0.3).kind == "right"
        done.set()
        thread.join()


def hold_back(worker: psutil.Process, done: threading.Event) -> None:
    """Let the worker run a fifth of the time."""
    while not done.wait(0.02):
        worker.suspend()
        done.wait(0.08)
        worker.resume()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("segfault", "ended (signal SIGSEGV)"),
        ("exit", "ended (exit status 3)"),
        ("memory", "out of memory"),
        ("sys.exit", "SystemExit"),
        ("recursion", "RecursionError"),
    ],
)
def test_a_crash_is_an_error_with_a_reason_and_the_next_call_works(how: str, reason: str) -> None:
    with ScoringProcess("scoring_jobs:misbehave") as process:
        verdict = process.score(how)
        assert verdict.kind == "error"
        assert reason in verdict.reason
        assert process.score("fine").kind == "right"


def test_a_worker_killed_from_outside_is_replaced(echo: ScoringProcess) -> None:
    pid = echo.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert echo.score("", {}).kind == "error"
    assert echo.score("", {}).kind == "right"


def test_children_of_a_hung_job_die_with_it(tmp_path: Path) -> None:
    place = tmp_path / "pids"
    with ScoringProcess("scoring_jobs:misbehave", time_limit_s=1.5) as process:
        assert process.score("child", str(place)).kind == "timeout"
    pids = [int(pid) for pid in place.read_text().split()]
    assert len(pids) == 2
    assert_gone(pids)


def assert_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 600
    while not all(map(gone, pids)):
        assert time.monotonic() < deadline, "still alive"
        time.sleep(0.05)


def test_many_threads_share_one_process(echo: ScoringProcess) -> None:
    wrong: list[Verdict] = []

    def work(name: int) -> None:
        for number in range(50):
            verdict = echo.score(f"{name}/{number}", {})
            if verdict.extracted != f"{name}/{number}":
                wrong.append(verdict)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_no_file_descriptor_leaks() -> None:
    with ScoringProcess("scoring_jobs:misbehave") as process:
        process.score("fine")
        before = os.listdir("/proc/self/fd")
        for how in ("exit", "sys.exit", "exit", "fine"):
            process.score(how)
        assert len(os.listdir("/proc/self/fd")) == len(before)
    assert len(os.listdir("/proc/self/fd")) == len(before) - 2


def test_closing_and_dropping_end_the_worker() -> None:
    process = ScoringProcess("scoring_jobs:echo")
    assert process.pid is None, "the worker starts with the first call"
    process.score("", {})
    first = process.pid
    process.close()
    process.close()
    process.score("", {})
    second = process.pid
    assert None not in (first, second)
    del process
    assert not any(psutil.pid_exists(pid or 0) for pid in (first, second))


def test_a_forked_child_gets_a_worker_of_its_own(echo: ScoringProcess) -> None:
    ours = echo.score("", {}).reason
    reader, writer = os.pipe()
    with echo._lock:  # As if another thread were in the middle of a call.
        child = os.fork()
    if not child:
        os.write(writer, echo.score("", {}).reason.encode())
        echo.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 100).decode() != ours
    os.close(reader)
    os.close(writer)
    assert echo.score("", {}).reason == ours


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("no_such_module_at_all:f", "No module named"),
        ("scoring_jobs:no_such_function", "no_such_function"),
    ],
)
def test_a_function_that_cannot_be_imported_is_a_users_error(function: str, message: str) -> None:
    with ScoringProcess(function) as process, pytest.raises(ValueError, match=message):
        process.score("")


def test_limits_must_be_positive_and_large_enough_to_start() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        ScoringProcess("scoring_jobs:echo", time_limit_s=0)
    with (
        ScoringProcess("scoring_jobs:echo", memory_limit_mb=1) as process,
        pytest.raises(ValueError, match="too small"),
    ):
        process.score("", {})


PROGRAM = """
import os, signal, sys
sys.path.insert(0, "tests/unit")
from cospec.scoring.process import ScoringProcess
process = ScoringProcess("scoring_jobs:misbehave", time_limit_s=None)
process.score("fine")
print(process.pid, flush=True)
how, place = sys.argv[1:]
if how == "raise":
    raise RuntimeError
if how in ("loop", "sleep", "big number", "stop"):
    print(process.score(how, place), flush=True)
if how == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["return", "raise", "killed", "loop", "sleep", "big number", "stop"])
def test_nothing_is_left_when_the_program_ends_or_is_killed_during_a_job(how: str, tmp_path: Path) -> None:
    place = tmp_path / "pid"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how, str(place)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as program:
        assert program.stdout is not None
        pid = int(program.stdout.readline())
        if how in ("loop", "sleep", "big number", "stop"):
            while not (place.exists() and place.read_text() == str(pid)):
                time.sleep(0.01)
            program.kill()
    assert_gone([pid])
