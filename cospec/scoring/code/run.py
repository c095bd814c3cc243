"""What came of a run: the supervisor's facts turned into one outcome with a reason."""

import json
import secrets
import signal
from dataclasses import dataclass
from typing import Any, Literal

from cospec.scoring.code.isolation import Isolation

Outcome = Literal[
    "passed",
    "failed",
    "cpu_limit",
    "wall_limit",
    "output_limit",
    "scratch_limit",
    "process_limit",
    "starved",
    "unfit_tests",
    "broken",
]

# The kernel's clock for the limit counts in ticks, which fall unevenly on a busy machine.
_SHARE_OF_CPU_LIMIT = 0.5
_LIMITS: dict[str, tuple[Outcome, str]] = {
    "wall": ("wall_limit", "time limit: it was not through after {wall_s:.0f} s, for the most part of which it waited"),
    "starved": ("starved", "the machine was too busy to give it its CPU time within {wall_s:.0f} s"),
    "output": ("output_limit", "it printed without end"),
    "scratch": ("scratch_limit", "it filled its scratch directory"),
    "processes": ("process_limit", "it started too many processes or threads"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one run. ``outcome`` "passed" is the only success; ``reason`` explains every other one.

    "starved" (the machine was too busy to give the program its CPU time), "unfit_tests" and "broken" are not the
    program's fault. ``stdout`` and ``stderr`` are the program's, as far as the limit goes; ``is_cut`` says that
    there was more.
    """

    outcome: Outcome
    reason: str
    isolation: Isolation
    stdout: str = ""
    stderr: str = ""
    is_cut: bool = False
    cpu_s: float = 0.0
    wall_s: float = 0.0


def judged(answer: dict[str, Any], cpu_limit_s: float, isolation: Isolation, nonce: str | None) -> Run:
    """The run that the supervisor's ``answer`` describes; ``nonce`` is None for a script, which no tests question."""
    program, tester = answer["program"], answer["tester"]
    outcome, reason = (
        _limit_watched(answer)
        or _unlocked(program, tester)
        or _cpu_limit(program, tester, cpu_limit_s)
        or (_script_end(program) if nonce is None else _tests_end(program, tester, nonce, isolation))
    )
    return Run(
        outcome,
        reason,
        isolation,
        stdout=program["stdout"],
        stderr=program["stderr"],
        is_cut=program["cut"],
        cpu_s=program["cpu_s"] + (tester["cpu_s"] if tester else 0.0),
        wall_s=answer["wall_s"],
    )


def _unlocked(program: dict[str, Any], tester: dict[str, Any] | None) -> tuple[Outcome, str] | None:
    for side in (program, tester):
        if side and not side["locked"]:
            return "broken", f"the cage could not be closed: {_last_line(side['stderr'])}"
    return None


def _limit_watched(answer: dict[str, Any]) -> tuple[Outcome, str] | None:
    """The limit at which the supervisor ended the run, perhaps before the tests' cage was closed."""
    if answer["limit"] is None:
        return None
    outcome, reason = _LIMITS[answer["limit"]]
    return outcome, reason.format(wall_s=answer["wall_s"])


def _cpu_limit(
    program: dict[str, Any], tester: dict[str, Any] | None, cpu_limit_s: float
) -> tuple[Outcome, str] | None:
    """The limit that the kernel keeps by itself."""
    for side, what in ((program, "it"), (tester, "the tests on its results")):
        if side and _is_out_of_cpu(side, cpu_limit_s):
            return "cpu_limit", f"time limit: {what} used up {cpu_limit_s:g} s of CPU time"
    return None


def _is_out_of_cpu(side: dict[str, Any], cpu_limit_s: float) -> bool:
    killed = side["exit_code"] in (-signal.SIGKILL, -signal.SIGXCPU)
    return killed and side["cpu_s"] >= _SHARE_OF_CPU_LIMIT * cpu_limit_s


def _script_end(program: dict[str, Any]) -> tuple[Outcome, str]:
    if program["exit_code"] == 0:
        return "passed", ""
    return "failed", f"{_end(program)}: {_last_line(program['stderr'])}"


def _tests_end(
    program: dict[str, Any], tester: dict[str, Any], nonce: str, isolation: Isolation
) -> tuple[Outcome, str]:
    report = _report(tester["report"], nonce)
    if report is None:
        # Nothing in the program's power ends the tests where it has no reach beyond its cage.
        outcome: Outcome = "broken" if isolation.no_outside_processes else "failed"
        return outcome, f"the tests left no report; their process: {_end(tester)}: {_last_line(tester['stderr'])}"
    if report["result"] == "passed":
        return "passed", ""
    if report["result"] == "unfit":
        return "unfit_tests", f"the tests cannot be used: {report['reason']}"
    ended_early = program["exit_code"] not in (0, 1, None, -signal.SIGKILL)
    return "failed", report["reason"] + (f" ({_end(program)})" if ended_early else "")


def _report(text: str, nonce: str) -> dict[str, str] | None:
    try:
        report = json.loads(text)
    except ValueError:
        return None
    is_ours = isinstance(report, dict) and secrets.compare_digest(str(report.get("nonce")), nonce)
    return report if is_ours else None


def _end(side: dict[str, Any]) -> str:
    code = side["exit_code"]
    if code is None or code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "no message"
