"""The sandbox: right programs pass on every level, no animal of the zoo does, and none leaves anything behind."""

import os
import socket
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
