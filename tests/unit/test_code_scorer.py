"""The scorer `code`: verdicts with reasons, consent, isolation, and rows that cannot be judged."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from cospec.scoring import Verdict, safe_score, scorer_for
from cospec.scoring.code import (
    CodeJob,
    FunctionTests,
    Isolation,
    Limits,
    Program,
    code_job,
    give_consent,
    isolation_here,
    require_consent,
    run_job,
    run_many,
    score_code,
    verdict_of,
)

RIGHT = "def f(x):\n    return x + 1\n"
ROW = {"id": "a/1", "tests": "assert f(1) == 2\nassert f(-1) == 0\n"}


def score(text: str, row: dict[str, Any], **options: Any) -> Verdict:
    return score_code(text, row, allow_code_execution=True, **options)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (RIGHT, "right", ""),
        (f"Sure:\n```python\n{RIGHT}```", "right", ""),
        ("def f(x):\n    return x", "wrong", r"AssertionError at test line 1: assert f\(1\) == 2"),
        ("def f(x):\n    return x / (x + 1)", "wrong", "AssertionError at test line 1"),
        ("def f(x):\n    return 2 // (x + 1) * 2", "wrong", "ZeroDivisionError.*line 2 of the program.*at test line 2"),
        ("def g(x):\n    return x + 1", "wrong", "name 'f' is not defined"),
        ("def f(x)\n    return x + 1", "wrong", "SyntaxError.*line 1 of the program"),
        ("def f(x):\n    return x + \x00", "wrong", "null byte"),
        ("def f(x):\n    return '\ud800'", "wrong", "surrogates"),
        ("import no_such_library\n" + RIGHT, "wrong", "ModuleNotFoundError"),
        (RIGHT + "raise ValueError('at the end')", "wrong", "ValueError: at the end"),
        ("I do not know.", "no_answer", "no program"),
        ("", "no_answer", "no program"),
    ],
)
def test_verdicts_say_why(text: str, kind: str, reason: str) -> None:
    verdict = score(text, ROW)
    assert verdict.kind == kind
    assert re.search(reason, verdict.reason), verdict.reason
    assert (verdict.extracted is None) == (kind == "no_answer")


def test_a_program_out_of_time_is_wrong_and_no_failure_of_the_scorer() -> None:
    verdict = score("def f(x):\n    while True: pass", ROW | {"timeout_s": 1})
    assert (verdict.kind, verdict.is_failure) == ("wrong", False)
    assert "used up 1 s of CPU time" in verdict.reason


def test_a_program_that_only_waits_is_wrong() -> None:
    verdict = score("import time\ndef f(x):\n    time.sleep(1000)", ROW, limits=Limits(cpu_s=10, wall_s=1))
    assert verdict.kind == "wrong"
    assert "waited" in verdict.reason


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs to crowd one processor")
def test_a_program_that_did_not_get_its_time_is_a_timeout_and_a_failure_of_the_scorer() -> None:
    processors = os.sched_getaffinity(0)
    isolation_here()
    # Everything on one processor: the program, at a lower priority than a crowd that is never through.
    os.sched_setaffinity(0, {min(processors)})
    crowd = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(20)]
    try:
        verdict = score(
            "import os\nos.nice(19)\ndef f(x):\n    while True: pass", ROW, limits=Limits(cpu_s=60, wall_s=1)
        )
    finally:
        os.sched_setaffinity(0, processors)
        for one in crowd:
            one.kill()
            one.wait()
    assert (verdict.kind, verdict.is_failure) == ("timeout", True)
    assert "too busy" in verdict.reason


def test_nothing_runs_without_consent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSPEC_ALLOW_CODE_EXECUTION", raising=False)
    for attempt in (
        lambda: score_code(RIGHT, ROW),
        lambda: score_code(RIGHT, {"id": 1}),
        lambda: run_many([], 1),
        require_consent,
        lambda: scorer_for("code"),
        lambda: scorer_for("humaneval"),
    ):
        with pytest.raises(ValueError, match=r"--confirm-run-unsafe-code.*COSPEC_ALLOW_CODE_EXECUTION=1"):
            attempt()


@pytest.mark.parametrize("value", ["", "0", "yes", "true"])
def test_only_a_one_in_the_environment_is_consent(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("COSPEC_ALLOW_CODE_EXECUTION", value)
    with pytest.raises(ValueError, match="confirm-run-unsafe-code"):
        require_consent()


def test_consent_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSPEC_ALLOW_CODE_EXECUTION", "0")
    give_consent()
    require_consent()
    assert safe_score(scorer_for("code"), RIGHT, ROW).is_right


def test_a_minimum_of_isolation_is_kept_or_refused_with_what_is_missing() -> None:
    bare = isolation_here(())
    assert bare.level == "limits"
    bare.require("limits")
    with pytest.raises(ValueError, match=r"'full'.*offers 'limits'.*no network \(needs seccomp or namespaces\)"):
        bare.require("full")
    with pytest.raises(ValueError, match="does not exist: choose from limits, contained, full"):
        bare.require("strong")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'jail' does not exist: choose from seccomp"):
        isolation_here(("jail",))


def test_isolation_is_told_in_one_line_and_as_json() -> None:
    here = isolation_here()
    assert str(here).startswith(f"isolation {here.level} (")
    assert "\n" not in str(here)
    told = json.loads(json.dumps(here.to_json()))
    assert told.pop("level") == here.level
    assert Isolation(**{**told, "mechanisms": tuple(told["mechanisms"])}) == here


def test_every_run_says_under_which_isolation_it_ran() -> None:
    for mechanisms in ((), ("seccomp",)):
        isolation = isolation_here(mechanisms)
        assert run_job(CodeJob(Program((RIGHT,)), FunctionTests("assert f(1) == 2")), isolation).isolation is isolation


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tests": ""}, "needs either tests or stdin_tests"),
        ({"tests": None}, "needs either tests or stdin_tests"),
        ({"stdin_tests": [{"input": "", "output": ""}]}, "not both"),
        ({"tests": 3}, "tests is a int"),
        ({"tests": "assert f(1) =="}, "no Python"),
        ({"tests": "pass"}, "never use the program"),
        ({"tests": "assert f\n"}, ""),
        ({"tests": "def check(candidate):\n    assert candidate(1) == 2\n"}, "names no entry point"),
        ({"tests": "assert f(object()) == 2"}, "pass the program a object, which cannot travel"),
        ({"tests": "assert f(eval) == 2"}, "pass the program a builtin_function_or_method, which cannot travel"),
        ({"tests": "", "stdin_tests": [{"input": 1, "output": ""}]}, "list of"),
        ({"tests": "", "stdin_tests": ["x"]}, "list of"),
        ({"timeout_s": 0}, "positive number"),
        ({"timeout_s": "5"}, "positive number"),
        ({"timeout_s": True}, "positive number"),
        ({"entry_point": 5}, "entry_point is a int"),
        ({"code_prompt": ["x"]}, "code_prompt is a list"),
    ],
)
def test_a_row_that_cannot_be_judged_is_an_error_and_no_zero(changes: dict[str, Any], reason: str) -> None:
    verdict = score(RIGHT, ROW | changes)
    if not reason:
        # Naming a function is using the program.
        assert verdict.kind == "right"
        return
    assert (verdict.kind, verdict.is_failure) == ("error", True)
    assert reason in verdict.reason


def test_check_functions_are_called_once() -> None:
    tests = "calls = []\ndef check(candidate):\n    calls.append(1)\n    assert candidate(1) == 2 and len(calls) == 1\n"
    assert score(RIGHT, {"tests": tests, "entry_point": "f"}).is_right
    assert score(RIGHT, {"tests": tests + "check(f)\n", "entry_point": "f"}).is_right
    wrong = score("def f(x):\n    return 0\n", {"tests": tests, "entry_point": "f"})
    assert (wrong.kind, "test line 4" in wrong.reason) == ("wrong", True)


def test_helpers_come_from_the_prompt_and_not_from_the_program() -> None:
    prompt = "def close(a, b):\n    return abs(a - b) < 1\n\n\ndef f(x):\n"
    row = {
        "code_prompt": prompt,
        "entry_point": "f",
        "tests": "def check(candidate):\n    assert close(candidate(1), 2)\n",
    }
    assert score("    return x + 1.5", row).is_right
    assert score("    return close(x, x) + x", row).is_right
    assert score("def f(x):\n    return x + 1 + close(1, 9)", row).is_right
    assert score("def close(a, b):\n    return True\ndef f(x):\n    return 100", row).kind == "wrong"


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("def f(x):\n", "    return x + 1\n"),
        ("def f(x):\n", "```python\ndef f(x):\n    return x + 1\n```"),
        ('def f(x):\n    """One more."""\n', "    return x + 1\n"),
        ("def f(x):\n    pass\n", "```python\ndef f(x):\n    return x + 1\n```"),
        ("def one():\n    return 1\n\ndef f(x):\n", "    return x + one()\n"),
    ],
)
def test_an_open_function_of_the_prompt_is_the_programs_even_without_an_entry_point(prompt: str, text: str) -> None:
    assert score(text, {"code_prompt": prompt, "tests": "assert f(1) == 2"}).is_right
    assert score(text.replace("x +", "x -"), {"code_prompt": prompt, "tests": "assert f(1) == 2"}).kind == "wrong"


def test_an_open_class_of_the_prompt_is_the_programs_even_without_an_entry_point() -> None:
    row = {"code_prompt": "class A:\n    def f(self, x):\n", "tests": "assert A().f(1) == 2"}
    assert score("        return x + 1\n", row).is_right
    assert score("        return x\n", row).kind == "wrong"


def test_a_row_that_leaves_open_whose_function_is_tested_is_an_error_whatever_the_program() -> None:
    row = {"code_prompt": "def f(x):\n    return x + 1\n", "tests": "assert f(1) == 2\nassert g(1) == 1"}
    for text in ("def f(x): return 0\ndef g(x): return 1\n", "def g(x): return 1\n", "def f(x): return x + 1\n"):
        verdict = score(f"```python\n{text}```", row)
        assert (verdict.kind, "they use f of the prompt" in verdict.reason) == ("error", True)
    assert score("```python\ndef g(x): return 1\n```", row | {"entry_point": "g"}).is_right


def test_a_program_without_the_function_that_check_wants_is_wrong_and_no_failure_of_the_scorer() -> None:
    row = {"tests": "def check(candidate):\n    assert candidate(1) == 2\n", "entry_point": "f"}
    verdict = score("```python\ndef g(x):\n    return 2\n```", row)
    assert (verdict.kind, verdict.reason) == ("wrong", "NameError: the program does not define f")


def test_the_job_of_a_text_can_be_run_later() -> None:
    job, code = code_job(f"```\n{RIGHT}```", ROW)
    assert job
    assert code == RIGHT
    run = run_job(job, isolation_here())
    assert verdict_of(run, code) == Verdict("right", extracted=RIGHT)
    assert code_job("no code", ROW) == (None, "")


@pytest.mark.parametrize(
    "changes", [{"cpu_s": 0}, {"cpu_s": float("inf")}, {"wall_s": -1}, {"memory_mb": 1}, {"open_files": 3}]
)
def test_limits_under_which_nothing_runs_are_errors(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        Limits(**changes)


def test_the_scorer_leaves_this_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    before = (dict(os.environ), os.getcwd(), len(os.listdir("/dev/fd")))
    score(RIGHT, ROW)
    score("import os\nos._exit(1)", ROW)
    assert (dict(os.environ), os.getcwd(), len(os.listdir("/dev/fd"))) == before
