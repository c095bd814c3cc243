"""The sandbox: right programs pass on every level, no animal of the zoo does, and none leaves anything behind."""

import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from code_zoo import ANIMALS, ESCAPES, RIGHT, SLEEPERS, SWARMS

from cospec.scoring.code import CodeJob, FunctionTests, Isolation, Limits, Program, Run, isolation_here, run_job
from cospec.scoring.code.jail.cage import MECHANISMS

SECRET = "SECRET-in-the-tests"
TESTS = FunctionTests(f"# {SECRET}\nassert f(1) == 2\nassert f(41) == 42\n")
# The CPU limit ends what loops; the wall limit is far off, for machines that are busy with something else.
LIMITS = Limits(cpu_s=1, wall_s=60, memory_mb=512)
IMPATIENT = Limits(cpu_s=1, wall_s=2, memory_mb=512)
FAILURES = ("failed", "cpu_limit", "wall_limit", "output_limit", "scratch_limit", "process_limit")
LEVELS = {"all": MECHANISMS, "without namespaces": ("seccomp", "landlock", "user"), "limits alone": ()}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run happens, and what lies outside of it."""

    scratch_parent: Path
    outside: Path
    port: int

    def source(self, animal: str) -> str:
        for name, value in (("OUTSIDE", self.outside), ("PORT", self.port), ("STARTER", os.getpid())):
            animal = animal.replace(name, str(value))
        return animal

    def left_processes(self) -> list[psutil.Process]:
        """Processes that carry the scratch directory in their environment, as all of a run do."""
        found = []
        for process in psutil.process_iter():
            try:
                if str(self.scratch_parent) in process.environ().get("TMPDIR", ""):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    scratch_parent, outside = tmp_path / "scratch", tmp_path / "outside"
    for folder in (scratch_parent, outside):
        folder.mkdir()
        folder.chmod(0o777)
    (outside / "readable").write_text("x")
    (outside / "readable").chmod(0o666)
    os.utime(outside / "readable", (1000, 1000))
    monkeypatch.setattr(tempfile, "tempdir", str(scratch_parent))
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        port = server.getsockname()[1]
        datagrams.bind(("127.0.0.1", port))
        server.setblocking(False)
        datagrams.setblocking(False)
        yield Place(scratch_parent, outside, port)
        for listen in (server.accept, lambda: datagrams.recv(1)):
            with pytest.raises(BlockingIOError):
                listen()
    assert [path.name for path in outside.iterdir()] == ["readable"]
    status = (outside / "readable").stat()
    assert (status.st_size, status.st_mode & 0o777, status.st_mtime, status.st_nlink) == (1, 0o666, 1000, 1)


def children() -> set[psutil.Process]:
    """Processes below this one; other scorers' workers may be among them."""
    return set(psutil.Process().children(recursive=True))


def let_out(place: Place, animal: str, isolation: Isolation, limits: Limits = LIMITS) -> Run:
    """Run an animal; afterwards there is no process, no file and no child of this process that it left."""
    before = children()
    run = run_job(CodeJob(Program((place.source(animal),)), TESTS, limits), isolation)
    assert place.left_processes() == []
    assert list(place.scratch_parent.iterdir()) == []
    assert children() <= before
    return run


def limits_for(animal: str) -> Limits:
    """Those that wait for ever, by design or for a thread that could not start, need not be waited for."""
    return IMPATIENT if animal in SLEEPERS else LIMITS


@pytest.fixture(scope="module")
def full() -> Isolation:
    isolation = isolation_here()
    if isolation.level != "full":
        pytest.skip(f"this machine permits no full isolation: {isolation}")
    return isolation


@pytest.mark.parametrize("level", LEVELS)
def test_a_right_program_passes_on_every_level(place: Place, level: str) -> None:
    run = let_out(place, RIGHT, isolation_here(LEVELS[level]))
    assert (run.outcome, run.reason) == ("passed", "")


def test_threads_count_as_processes(place: Place) -> None:
    source = """
import threading, time
threading.stack_size(65536)
for _ in range({}):
    threading.Thread(target=time.sleep, args=(2,), daemon=True).start()
def f(x):
    time.sleep(0.5)
    return x + 1
"""
    assert let_out(place, source.format(30), isolation_here()).outcome == "passed"
    assert let_out(place, source.format(500), isolation_here()).outcome in ("process_limit", "failed")


def test_a_program_may_raise_its_stack(place: Place) -> None:
    for size in ("resource.getrlimit(resource.RLIMIT_STACK)[1]", "1 << 26"):
        source = f"import resource\nresource.setrlimit(resource.RLIMIT_STACK, ({size}, resource.RLIM_INFINITY))\n"
        hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
        source = source.replace("resource.RLIM_INFINITY", str(hard))
        run = let_out(place, source + RIGHT, isolation_here())
        assert (run.outcome, run.reason) == ("passed", "")


def test_threads_in_line_for_each_other_do_not_put_off_the_wall_limit(place: Place) -> None:
    source = """
import hashlib, threading, time
threading.stack_size(65536)
together = threading.Event()
def work():
    together.wait()
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 20000)
    time.sleep(1000)
for _ in range(50):
    threading.Thread(target=work, daemon=True).start()
together.set()
def f(x):
    time.sleep(1000)
"""
    run = let_out(place, source, isolation_here(), Limits(cpu_s=10, wall_s=3))
    assert run.outcome == "wall_limit"
    # All waits together were several times that; the longest of one thread is no longer than the work of all.
    assert run.wall_s < 3 + run.cpu_s + 1


def test_a_supervisor_that_the_program_can_reach_is_no_excuse(place: Place) -> None:
    # What is left ends by itself, but need not have by then.
    run = run_job(CodeJob(Program((ESCAPES["kills its parent"],)), TESTS, LIMITS), isolation_here(()))
    assert run.outcome == "failed"


def test_a_long_path_to_the_scratch_directory_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    folder.chmod(0o777)
    script = (
        "from cospec.scoring.code import *\n"
        "here = isolation_here()\n"
        "job = CodeJob(Program(('def f(x): return x + 1',)), FunctionTests('assert f(1) == 2'))\n"
        "print(here.level, run_job(job, here).outcome)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == [isolation_here().level, "passed"]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("animal", ANIMALS)
def test_no_animal_passes(place: Place, animal: str) -> None:
    assert let_out(place, ANIMALS[animal], isolation_here(), limits_for(animal)).outcome in FAILURES


@pytest.mark.parametrize("animal", SWARMS)
@pytest.mark.parametrize("level", LEVELS)
def test_no_swarm_passes_or_outlives_its_run(place: Place, animal: str, level: str) -> None:
    run = let_out(place, SWARMS[animal], isolation_here(LEVELS[level]), IMPATIENT)
    # A swarm keeps the machine busy by itself.
    assert run.outcome in (*FAILURES, "starved")


@pytest.mark.parametrize("animal", ESCAPES)
def test_nothing_escapes_full_isolation(place: Place, animal: str, full: Isolation) -> None:
    assert let_out(place, ESCAPES[animal], full).outcome in FAILURES
    assert not Path("/tmp/left-by-the-code-zoo").exists()
    assert not Path("/dev/shm/left-by-the-code-zoo").exists()


@pytest.mark.slow
@pytest.mark.parametrize("animal", ANIMALS)
@pytest.mark.parametrize("level", ["without namespaces", "limits alone"])
def test_no_animal_passes_on_a_lower_level(place: Place, animal: str, level: str) -> None:
    assert let_out(place, ANIMALS[animal], isolation_here(LEVELS[level]), limits_for(animal)).outcome in FAILURES
