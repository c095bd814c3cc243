"""What the tests see of a program: values, objects and exceptions, and never its own idea of what is equal."""

import pytest

from cospec.scoring.code import CodeJob, FunctionTests, Limits, Program, isolation_here, run_job

RIGHT = "def f(x):\n    return x + 1\n"


def outcome(source: str, tests: str) -> tuple[str, str]:
    run = run_job(CodeJob(Program((source,)), FunctionTests(tests)), isolation_here())
    return run.outcome, run.reason


VALUES = [
    "None", "True", "1", "-1", "2**200", "-(2**64)", "1.5", "float('inf')", "1j", "''", "'é\\ud800'", "b'\\xff'",
    "bytearray(b'x')", "[]", "[1, [2.0, 'x']]", "(1, (2,))", "{1, 2}", "frozenset({1})", "{'a': {1: None}, (1, 2): []}",
    "range(1, 9, 2)", "slice(1, 2)", "...", "int", "collections.deque([1, 2], 5)", "collections.Counter('aab')",
    "collections.OrderedDict(a=1, b=2)", "array.array('i', [1, 2])", "decimal.Decimal('1.10')",
    "fractions.Fraction(1, 3)", "datetime.date(2020, 2, 29)", "datetime.datetime(2020, 2, 29, 1, 2, 3, 4)",
    "datetime.time(1, 2)", "datetime.timedelta(1, 2, 3)",
]  # fmt: skip
IMPORTS = "import array, collections, datetime, decimal, fractions\n"


@pytest.mark.parametrize("mark", ["==", "type"])
def test_plain_values_travel_both_ways_with_their_type(mark: str) -> None:
    source = IMPORTS + f"def f(x):\n    return x\ndef g(i):\n    return [{', '.join(VALUES)}][i]\n"
    lines = [f"assert f({value}) == g({i}) == ({value})" for i, value in enumerate(VALUES)]
    if mark == "type":
        lines = [f"assert type(f({value})) is type(g({i})) is type({value})" for i, value in enumerate(VALUES)]
    assert outcome(source, IMPORTS + "\n".join(lines)) == ("passed", "")


def test_subclasses_travel_as_what_they_compare_as_unless_they_compare_in_their_own_way() -> None:
    source = """
import collections, enum
Point = collections.namedtuple("Point", "x y")
class Size(enum.IntEnum):
    SMALL = 3
class Name(str): pass
class Liar(int):
    def __eq__(self, other): return True
    def __hash__(self): return 0
def f(kind):
    return {"point": Point(1, 2), "size": Size.SMALL, "name": Name("n"), "default": collections.defaultdict(int, a=1),
            "liar": Liar(5), "list": [Liar(5)]}[kind]
"""
    right = "assert f('point') == (1, 2) and f('size') == 3 and f('name') == 'n' and f('default') == {'a': 1}"
    assert outcome(source, right) == ("passed", "")
    assert outcome(source, "assert f('liar') == 5")[0] == "failed"
    assert outcome(source, "assert f('list') == [5]")[0] == "failed"
    assert outcome(source, "assert f('liar') != 6")[0] == "passed"


def test_objects_of_the_program_can_be_used_but_not_compared() -> None:
    source = """
class Node:
    def __init__(self, value, left=None):
        self.value, self.left = value, left
    def __len__(self): return 3
    def __iter__(self): return iter([1, 2])
    def __getitem__(self, key): return key * 2
    def __str__(self): return "node"
    def __contains__(self, item): return True
    def __eq__(self, other): return True
    def __call__(self, a, *, b): return a + b
def depth(node):
    return 0 if node is None else 1 + depth(node.left)
def numbers(n):
    for i in range(n):
        yield i
def adder(n):
    return lambda x: x + n
"""
    tests = """
root = Node(1)
root.left = Node(2, left=Node(3))
assert depth(root) == 3 and root.left.value == 2 and root.left is root.left
assert len(root) == 3 and list(root) == [1, 2] and root[4] == 8 and str(root) == "node" and root(1, b=2) == 3
assert list(numbers(3)) == [0, 1, 2] and next(numbers(1)) == 0 and sum(numbers(4)) == 6
assert adder(3)(4) == 7
assert root == root and root != Node(1) and root != 5 and 5 not in root and 1 in root
import copy
assert copy.copy(root) is not None
try:
    root.missing
except AttributeError as error:
    assert "missing" in str(error)
else:
    assert False
"""
    assert outcome(source, tests) == ("passed", "")


def test_exceptions_keep_the_nearest_type_of_the_interpreter() -> None:
    source = """
class Own(KeyError): pass
def f(kind):
    raise {"own": Own("k"), "value": ValueError("v"), "decode": UnicodeDecodeError("utf-8", b"", 0, 1, "r")}[kind]
"""
    tests = """
for kind, expected in (("own", KeyError), ("value", ValueError), ("decode", ValueError)):
    try:
        f(kind)
    except expected:
        continue
    assert False, kind
"""
    assert outcome(source, tests) == ("passed", "")


def test_exceptions_keep_their_text_and_arguments() -> None:
    source = """
class Own(ValueError):
    def __str__(self): return "own text"
class Odd(Exception):
    args = 3
class Mute(Exception):
    def __str__(self): raise KeyError
def f(kind):
    if kind == "file":
        open("missing")
    if kind == "number":
        int("x")
    raise {"bad": ValueError("bad"), "key": KeyError("k"), "none": ValueError(), "two": ValueError(1, [2]),
           "own": Own(5), "odd": Odd("o"), "object": ValueError(object), "long": ValueError("x" * 3000),
           "mute": Mute()}[kind]
"""
    tests = """
def caught(kind):
    try:
        f(kind)
    except Exception as error:
        return error
error = caught("bad")
assert str(error) == "bad" and error.args == ("bad",) and repr(error) == "ValueError('bad')"
error = caught("key")
assert str(error) == "'k'" and error.args == ("k",)
assert caught("none").args == () and caught("two").args == (1, [2])
assert str(caught("own")) == "own text" and isinstance(caught("own"), ValueError)
assert str(caught("odd")) == "o"
assert str(caught("object")) == "<class 'object'>"
assert str(caught("long")) == "x" * 3000
assert str(caught("mute")) == "no text"
assert str(caught("number")) == "invalid literal for int() with base 10: 'x'"
error = caught("file")
assert type(error) is FileNotFoundError and (error.errno, error.filename) == (2, "missing")
"""
    assert outcome(source, tests) == ("passed", "")


def test_a_failure_names_the_programs_own_exception_and_its_line() -> None:
    source = "class Own(ValueError): pass\n\ndef f():\n    raise Own('bad')\n"
    assert outcome(source, "f()") == (
        "failed",
        "ValueError: bad (Own, line 4 of the program) at test line 1: f()",
    )


def test_arguments_are_passed_by_value() -> None:
    source = "def f(xs):\n    xs.clear()\n    return []\n"
    assert outcome(source, "xs = [3, 1]\nassert f(xs) == sorted(xs)")[0] == "failed"


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ("try:\n    f(1)\nexcept Exception:\n    pass\nassert True", "failed"),
        ("try:\n    f(1)\nexcept BaseException:\n    pass\nassert True", "failed"),
        ("try:\n    f(1)\nexcept:\n    pass\ntry:\n    f(2)\nexcept:\n    pass", "failed"),
    ],
)
def test_no_test_passes_over_the_end_of_the_program(tests: str, expected: str) -> None:
    for end in ("import os; os._exit(0)", "raise SystemExit", "import sys; sys.exit(0)", "raise KeyboardInterrupt"):
        assert outcome(f"def f(x):\n    {end}\n", tests)[0] == expected


def test_the_program_sees_a_fresh_interpreter() -> None:
    source = """
import dataclasses, os, sys
@dataclasses.dataclass
class Point:
    x: "int"
def f(kind):
    return {
        "argv": sys.argv, "cospec": [name for name in sys.modules if name.startswith("cospec")],
        "environment": sorted(os.environ), "files": os.listdir(), "home": os.environ["HOME"] == os.getcwd(),
        "name": __name__, "point": Point(1).x, "stdin": sys.stdin.read(), "order": list({"a", "b", "c", "d"}),
    }[kind]
if __name__ == "__main__":
    raise ValueError("the main block ran")
"""
    tests = """
assert f("argv") == ["solution.py"] and f("cospec") == [] and f("files") == [] and f("home") is True
assert f("name") == "solution" and f("point") == 1 and f("stdin") == ""
assert not {"USER", "LOGNAME", "PYTHONPATH", "HF_TOKEN", "COSPEC_DATA"} & set(f("environment"))
"""
    assert outcome(source, tests) == ("passed", "")
    orders = {outcome(source, "assert f('order') == 0, f('order')")[1] for _ in range(3)}
    assert len(orders) == 1


def test_numpy_can_be_imported_and_its_scalars_are_numbers() -> None:
    pytest.importorskip("numpy")
    source = "import numpy as np\ndef f(xs):\n    return np.mean(xs)\ndef g(xs):\n    return np.array(xs)\n"
    assert outcome(source, "assert f([1, 2]) == 1.5 and type(f([1, 2])) is float") == ("passed", "")
    assert outcome(source, "assert list(g([1, 2])) == [1, 2]") == ("passed", "")
    assert outcome(source, "assert g([1, 2]) == [1, 2]")[0] == "failed"


def test_random_programs_and_tests_get_the_same_verdict_every_time() -> None:
    source = "import random\ndef f():\n    return random.random()\n"
    seen = {outcome(source, "import random\nassert False, (f(), random.random())")[1] for _ in range(3)}
    assert len(seen) == 1


def test_stdout_and_stderr_are_kept_up_to_the_limit() -> None:
    source = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n" + RIGHT + "print('x' * 5000)\n"
    job = CodeJob(Program((source,)), FunctionTests("assert f(1) == 2"), Limits(output_bytes=100))
    run = run_job(job, isolation_here())
    # The program is ended as soon as the tests are through, with what it printed by then.
    assert run.outcome == "passed"
    assert "out\n".startswith(run.stdout[:4])
    assert len(run.stdout) <= 100


def test_tests_may_use_the_libraries_too() -> None:
    pytest.importorskip("numpy")
    tests = "import numpy as np\nassert np.allclose(f([1, 2]), [2, 3])\nassert not np.allclose(f([1]), [1])"
    assert outcome("def f(xs):\n    return [x + 1 for x in xs]\n", tests) == ("passed", "")


def test_programs_can_call_functions_of_the_tests() -> None:
    source = """
def apply(function, xs):
    return [function(x) for x in xs]
def catch(function):
    try:
        return function(0)
    except ZeroDivisionError as error:
        return str(error)
def same(function):
    return function
def nested(function):
    return function(same)
def forge(function):
    function = lambda *a: True
    return function(1)
class Box:
    def __init__(self, value): self.value = value
def boxed(function):
    return function(Box(3))
"""
    tests = """
calls = []
def note(x, **options):
    calls.append(x)
    return x * 2
assert apply(note, [1, 2]) == [2, 4] and calls == [1, 2]
assert apply(len, ["abc"]) == [3] and apply(lambda x: apply(note, [x]), [5]) == [[10]]
assert "division" in catch(lambda x: 1 / x)
assert same(note) is note and nested(lambda f: f(4)) == 4
assert boxed(lambda box: box.value) == 3
assert forge(lambda x: False) is True
"""
    assert outcome(source, tests) == ("passed", "")


def test_an_end_of_iteration_ends_no_loop_of_the_tests() -> None:
    source = "def f(x):\n    raise StopIteration\n"
    assert outcome(source, "assert all(map(lambda x: f(x) == x + 1, [1, 2]))")[0] == "failed"
    assert outcome(source, "assert list(map(f, [1, 2])) == []")[0] == "failed"
    assert outcome("def f(x):\n    yield x\n", "assert list(f(1)) == [1] and next(f(2)) == 2") == ("passed", "")
