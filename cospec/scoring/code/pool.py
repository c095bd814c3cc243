"""Many programs at a time: parallel workers that lose no job, and the second chance after a busy moment."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cospec.scoring.code.consent import require_consent
from cospec.scoring.code.isolation import Isolation, isolation_here
from cospec.scoring.code.limits import Limits
from cospec.scoring.code.output import difference
from cospec.scoring.code.program import FunctionTests, Program, StdinTest
from cospec.scoring.code.run import Run
from cospec.scoring.code.sandbox import run_script, run_scripts, run_tested
from cospec.scoring.threads import stoppable_threads

_DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class CodeJob:
    """A program, the tests that decide about it (a tuple for a script), and its limits."""

    program: Program
    tests: FunctionTests | tuple[StdinTest, ...]
    limits: Limits = _DEFAULT_LIMITS


def run_many(
    jobs: Iterable[CodeJob],
    num_workers: int,
    *,
    isolation: Isolation | None = None,
    allow_code_execution: bool = False,
    on_run: Callable[[int, Run], None] | None = None,
) -> list[Run]:
    """Run all jobs, ``num_workers`` at a time; exactly one run for each, in their order.

    ``isolation`` is the machine's where it is left out. ``on_run`` is called with a job's index and its run as soon as
    it ends, from the worker's thread. ValueError, before anything runs, without consent or without workers. An
    interrupt ends the programs that run.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers is {num_workers}: at least one is needed, about as many as there are cores")
    require_consent(allow_code_execution)
    cage = isolation or isolation_here()

    def one(index: int, job: CodeJob) -> Run:
        run = run_job(job, cage)
        if on_run:
            on_run(index, run)
        return run

    # A thread each: the work is done in processes, and waiting for them needs no more.
    with stoppable_threads(num_workers) as pool:
        return list(pool.map(one, itertools.count(), jobs))


def run_job(job: CodeJob, isolation: Isolation) -> Run:
    """Run one job; where the machine was too busy to give the program its time, once more.

    "passed" when all tests pass; else the first run that did not. Never raises for what a program does, nor where the
    machine has no more processes or files to give: that is a "broken" run.
    """
    try:
        if isinstance(job.tests, FunctionTests):
            return _run_tested(job.program, job.tests, job.limits, isolation)
        return _run_stdin_tests(job.program, job.tests, job.limits, isolation)
    except OSError as error:
        return Run("broken", f"the sandbox could not be set up: {error}", isolation)


def _run_tested(program: Program, tests: FunctionTests, limits: Limits, isolation: Isolation) -> Run:
    run = run_tested(program, tests, limits, isolation)
    return run_tested(program, tests, limits, isolation) if run.outcome == "starved" else run


def _run_stdin_tests(program: Program, tests: Sequence[StdinTest], limits: Limits, isolation: Isolation) -> Run:
    if not tests:
        return Run("unfit_tests", "there are no tests", isolation)
    longest = max(len(test.stdout.encode("utf-8", errors="replace")) for test in tests)
    limits = dataclasses.replace(limits, output_bytes=max(limits.output_bytes, 2 * longest))
    cpu_s = wall_s = 0.0
    with contextlib.closing(run_scripts(program, [test.stdin for test in tests], limits, isolation)) as runs:
        for number, (test, first) in enumerate(zip(tests, runs, strict=False), start=1):
            run = run_script(program, test.stdin, limits, isolation) if first.outcome == "starved" else first
            cpu_s, wall_s = cpu_s + run.cpu_s, wall_s + run.wall_s
            run = dataclasses.replace(_compared(run, test), cpu_s=cpu_s, wall_s=wall_s)
            if run.outcome != "passed":
                return dataclasses.replace(run, reason=f"test {number} of {len(tests)}: {run.reason}")
    return run


def _compared(run: Run, test: StdinTest) -> Run:
    if run.outcome != "passed":
        return run
    if run.is_cut:
        return dataclasses.replace(run, outcome="output_limit", reason="it printed more than twice what is expected")
    found = difference(run.stdout, test.stdout)
    return run if found is None else dataclasses.replace(run, outcome="failed", reason=found)
