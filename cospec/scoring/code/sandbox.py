"""One isolated run: a program and its tests, or a program as a script, in a process tree that is gone afterwards."""

import secrets
from collections.abc import Generator, Iterable

from cospec.scoring.code.isolation import Isolation
from cospec.scoring.code.limits import Limits
from cospec.scoring.code.program import FunctionTests, Program
from cospec.scoring.code.run import Run, judged
from cospec.scoring.code.supervisor import SupervisorError, SupervisorLostError, supervised


def run_tested(program: Program, tests: FunctionTests, limits: Limits, isolation: Isolation) -> Run:
    """Run the program as a module and the tests against it, from a process that the program cannot reach.

    "passed" only if a report with this run's nonce, written after the last test, says so.
    """
    nonce = secrets.token_hex(16)
    order = {"source": tests.source, "given": tests.given, "entry_point": tests.entry_point, "nonce": nonce}
    try:
        with supervised(program, limits, isolation, is_tested=True) as supervisor:
            return judged(supervisor.ask(order), limits.cpu_s, isolation, nonce)
    except SupervisorError as error:
        return _unanswered(error, isolation)


def run_script(program: Program, stdin: str, limits: Limits, isolation: Isolation) -> Run:
    """Run the program once as a script; "passed" when it ends with exit status 0."""
    return next(run_scripts(program, [stdin], limits, isolation))


def run_scripts(program: Program, stdins: Iterable[str], limits: Limits, isolation: Isolation) -> Generator[Run]:
    """Run the program as a script with each standard input in turn, each with the full limits; ends when broken."""
    try:
        with supervised(program, limits, isolation, is_tested=False) as supervisor:
            for stdin in stdins:
                yield judged(supervisor.ask({"stdin": stdin}), limits.cpu_s, isolation, None)
    except SupervisorError as error:
        yield _unanswered(error, isolation)


def _unanswered(error: SupervisorError, isolation: Isolation) -> Run:
    """The run is broken; or failed, where the program was not kept from its supervisor and may have ended it."""
    may_be_its_doing = isinstance(error, SupervisorLostError) and not isolation.no_outside_processes
    return Run("failed" if may_be_its_doing else "broken", str(error), isolation)
