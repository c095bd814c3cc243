"""Programs that read and print, judged by what they print."""

from typing import Any

import pytest

from cospec.scoring import Verdict
from cospec.scoring.code import CodeJob, Program, StdinTest, isolation_here, run_job, score_code
from cospec.scoring.code.output import difference


def score(text: str, row: dict[str, Any], **options: Any) -> Verdict:
    return score_code(text, row, allow_code_execution=True, **options)


def stdin_row(*pairs: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {"id": 1, "stdin_tests": [{"input": given, "output": wanted} for given, wanted in pairs], **more}


MAIN = """
def main():
    print(sum(map(int, open(0).read().split())))
if __name__ == "__main__":
    main()
"""
THREAD = """
import threading
def work():
    print(sum(map(int, input().split())))
threading.Thread(target=work).start()
"""
AT_EXIT = """
import atexit, os
total = sum(map(int, input().split()))
atexit.register(lambda: os.write(1, str(total).encode()))
"""
OWN_STREAM = """
import io, os, sys
class Fast(io.IOBase):
    def __init__(self, descriptor):
        self.descriptor, self.held = descriptor, io.BytesIO()
    def write(self, text):
        return self.held.write(text.encode())
    def flush(self):
        os.write(self.descriptor, self.held.getvalue())
        self.held = io.BytesIO()
sys.stdout = Fast(sys.stdout.fileno())
print(sum(map(int, input().split())))
"""
ADDER = "a, b = map(int, input().split())\nprint(a + b)\n"


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (ADDER, "right", ""),
        (f"```python\n{ADDER}```", "right", ""),
        (ADDER.replace("\n", "\r\n"), "right", ""),
        ("import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))", "right", ""),
        (MAIN, "right", ""),
        (THREAD, "right", ""),
        (AT_EXIT, "right", ""),
        (OWN_STREAM, "right", ""),
        (ADDER + "exit()\n", "right", ""),
        (ADDER + "import sys\nsys.exit(0)\n", "right", ""),
        (ADDER + "import sys\nsys.stdout.close()\n", "right", ""),
        ("out = open(1, 'w')\na, b = map(int, input().split())\nout.write(str(a + b))\n", "right", ""),
        (ADDER + "import sys\nsys.stderr.close()\nsys.exit(0)\n", "right", ""),
        (ADDER + "import sys\nsys.stdout = sys.stderr = object()\n", "right", ""),
        (ADDER + "import sys\nsys.stdout = sys.stderr = None\nraise ValueError\n", "wrong", "exit status 1"),
        (ADDER + "import sys\nsys.stderr = None\nsys.exit('no')\n", "wrong", "exit status 1"),
        (ADDER + "import sys\nsys.exit(3)\n", "wrong", "test 1 of 2: exit status 3"),
        (ADDER + "raise ValueError('late')\n", "wrong", "test 1 of 2: exit status 1: ValueError: late"),
        ("print(3)\n", "wrong", "test 2 of 2: line 1 is '3', expected '30'"),
        ("a, b = map(int, input().split())\nprint(float(a + b))\n", "right", ""),
        ("a, b = map(int, input().split())\nprint(a + b + 0.5)\n", "wrong", "line 1 is '3.5', expected '3'"),
        ("print(int(input()) + int(input()))\n", "wrong", "ValueError"),
        ("input()\n", "wrong", "0 lines, expected 1"),
        (ADDER + "input()\n", "wrong", "EOFError"),
        ("while True: pass\n", "wrong", "test 1 of 2: time limit: it used up 1 s"),
        ("while True: print('x' * 10000)\n", "wrong", "test 1 of 2"),
        ("import os\nos.kill(os.getpid(), 9)\n", "wrong", "test 1 of 2"),
        ("nothing to see", "no_answer", ""),
    ],
)  # fmt: skip
def test_scripts_are_judged_by_what_they_print(text: str, kind: str, reason: str) -> None:
    verdict = score(text, stdin_row(("1 2\n", "3\n"), ("10 20\r\n", "30"), timeout_s=1))
    assert (verdict.kind, reason in verdict.reason) == (kind, True), verdict.reason


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("1\n2\n", "1\n2", True),
        ("1 \n2\t\n\n\n", "1\n2", True),
        ("1\r\n2\r\n", "1\n2\n", True),
        ("", "\n\n", True),
        ("\n 1", "1", True),
        ("1\n\n2", "1\n2", False),
        ("1.0", "1", True),
        ("0.50 3", "0.5   3.0", True),
        ("1e-05", "0.00001", True),
        ("-0", "0", True),
        ("0.1", "0.10000000000000001", False),
        ("1 x", "1.0 x", False),
        ("a  b", "a b", False),
        ("1 2", "1", False),
        ("nan", "1", False),
        ("sNaN", "1", False),
        ("1e9999999999999999999999", "1", False),
        ("YES", "Yes", False),
        ("1\n2\n3", "1\n2", False),
        ("1", "1\n2", False),
    ],
)
def test_output_is_compared_line_by_line_as_text_or_numbers(printed: str, expected: str, same: bool) -> None:
    assert (difference(printed, expected) is None) == same


def test_large_inputs_and_outputs_come_through_whole() -> None:
    numbers = "\n".join(map(str, range(400_000)))
    row = stdin_row((numbers, numbers))
    assert score("import sys\nsys.stdout.write(sys.stdin.read())", row).is_right
    assert "more than twice" in score("import sys\nsys.stdout.write(sys.stdin.read() * 3)", row).reason


def test_a_script_never_holds_what_it_should_print() -> None:
    source = """
import gc
held = [t for t in gc.get_objects() if isinstance(t, (list, tuple, dict))]
texts = [t for h in held for t in (h.values() if isinstance(h, dict) else h) if isinstance(t, str)]
print("found" if any(("expected" + "-output") in t for t in texts if t != "expected" + "-output") else "nothing")
"""
    tests = (StdinTest("", "expected-output-1"), StdinTest("", "expected-output-2"))
    assert "line 1 is 'nothing'" in run_job(CodeJob(Program((source,)), tests), isolation_here()).reason
