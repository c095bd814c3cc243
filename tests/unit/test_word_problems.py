"""Properties of the word problems: determinism, disjoint splits, right solutions, total scoring."""

import re
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cospec.tasks.word_problems import (
    BANDS,
    DEFAULT_MIX,
    MAX_VALUE,
    SPLITS,
    Mix,
    Problem,
    cell_of,
    final_answer,
    generate,
    is_known,
    score,
    split_of,
)

EQUATION = re.compile(r"(?:([0-9]+)([-+*/])([0-9]+)|([0-9]+)% of ([0-9]+))=([0-9]+)")
OPERATIONS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}


def steps_of(problem: Problem) -> list[tuple[str, int, int, int]]:
    """(operation, value, operand, result) of every equation in the solution."""
    steps = []
    for value, sign, operand, percent, whole, result in EQUATION.findall(problem.solution):
        if sign:
            steps.append((OPERATIONS[sign], int(value), int(operand), int(result)))
        else:
            steps.append(("pct", int(whole), int(percent), int(result)))
    return steps


def is_right(operation: str, value: int, operand: int, result: int) -> bool:
    """Arithmetic by cross-multiplication, independent of the generator's."""
    return {
        "add": result - operand == value,
        "sub": result + operand == value,
        "mul": result == sum([value] * operand),
        "div": result * operand == value,
        "pct": result * 100 == value * operand,
    }[operation]


def test_same_arguments_give_the_same_problems_and_other_seeds_give_others() -> None:
    assert generate(50, 3) == generate(50, 3)
    assert generate(80, 3)[:50] == generate(50, 3)
    assert generate(50, 3) != generate(50, 4)


def test_generation_does_not_depend_on_the_hash_seed_of_the_interpreter() -> None:
    code = "from cospec.tasks.word_problems import generate; print(generate(3, 8))"
    printed = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert printed == [f"{generate(3, 8)}\n"] * 2


def test_no_prompt_or_id_occurs_twice_in_one_call() -> None:
    problems = generate(3000, 0)
    assert len({p.prompt for p in problems}) == len({p.id for p in problems}) == 3000


def test_splits_share_no_prompt_even_under_the_same_seed() -> None:
    prompts = {split: {p.prompt for p in generate(2000, 7, split=split)} for split in SPLITS}
    assert len(set.union(*prompts.values())) == sum(map(len, prompts.values()))


@pytest.mark.parametrize("split", SPLITS)
def test_every_prompt_says_which_split_it_belongs_to(split: str) -> None:
    assert {split_of(p.prompt) for p in generate(500, 1, split=split)} == {split}


def test_splits_share_no_numbers_so_renaming_a_problem_does_not_move_it() -> None:
    numbers = {
        split: {tuple(re.findall("[0-9]+", p.prompt)) for p in generate(2000, 2, split=split)} for split in SPLITS
    }
    assert len(set.union(*numbers.values())) == sum(map(len, numbers.values()))


def test_buckets_of_the_splits_cover_everything_once() -> None:
    assert sorted(bucket for buckets in SPLITS.values() for bucket in buckets) == list(range(100))


def test_solutions_are_right_chained_and_end_in_gold() -> None:
    for problem in generate(1000, 5):
        steps = steps_of(problem)
        assert all(is_right(*step) for step in steps), problem
        assert [step[1] for step in steps[1:]] == [step[3] for step in steps[:-1]], problem
        assert final_answer(problem.solution) == problem.gold == str(steps[-1][3])
        assert score(problem.solution, problem.gold)
        assert all(2 <= step[3] <= MAX_VALUE for step in steps)


def test_a_solution_uses_the_numbers_of_its_prompt_and_kinds_name_its_steps() -> None:
    for problem in generate(500, 6):
        steps = steps_of(problem)
        assert [str(steps[0][1]), *(str(step[2]) for step in steps)] == re.findall("[0-9]+", problem.prompt)
        assert problem.kinds == tuple(cell_of(step[0], step[2]) for step in steps)
        assert 2 <= len(steps) <= 4


def test_every_cell_and_length_occurs() -> None:
    problems = generate(2000, 4)
    assert {kind for p in problems for kind in p.kinds} == set(BANDS)
    assert set(Counter(len(p.kinds) for p in problems)) == {2, 3, 4}


def test_style_changes_the_phrasing_but_not_the_problem() -> None:
    points = [
        f"{op}.{p}" for op in ("add", "sub", "mul", "div", "pct") for p in ("open", "verb", "link", "unit", "close")
    ]
    first, second = (
        generate(200, 9, Mix(DEFAULT_MIX.weights, style=dict.fromkeys(points, share))) for share in (1.0, 0.0)
    )
    assert [p.prompt for p in first] == [p.prompt for p in second]
    assert all(a.solution != b.solution and a.gold == b.gold for a, b in zip(first, second, strict=True))
    assert all(p.solution.startswith("First we ") for p in first)


def test_a_mix_shows_only_known_facts() -> None:
    mix = Mix(DEFAULT_MIX.weights, known={"mul.high": 0.3})
    facts = {
        (value, operand)
        for p in generate(2000, 1, mix)
        for op, value, operand, _ in steps_of(p)
        if op == "mul" and operand >= 6
    }
    assert facts
    assert all(is_known("mul", *fact, 0.3) for fact in facts)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so 3+4=7.\nAnswer: 7", "7"),
        ("Answer: 7\nOn reflection\nanswer = 8 apples.", "8"),
        ("Answer: 7\nAnswer: unknown", None),
        ("Answer:\n  1,200.50", "1200.5"),
        ("Answer: -007", "-7"),
        ("Answer: -0", "0"),
        ("Answer: 7.", "7"),
        ("the answer is 7", None),
        ("Answer: seven 7", None),
        ("Answer: \u0667", None),
        ("7", None),
        ("", None),
    ],
)
def test_final_answer_reads_only_the_last_marker(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


def test_a_longer_number_is_not_mistaken_for_its_beginning() -> None:
    assert not score("Answer: 70", "7")
    assert not score("Answer: 7.5", "7")
    assert score("Answer: 7.0", "7")


@given(st.text() | st.text(alphabet="Answer:=-,.0123456789 \n"), st.integers(0, 10**6))
def test_any_text_is_scored(text: str, gold: int) -> None:
    score(text, str(gold))
    score("Answer:" + text, str(gold))


@given(st.integers(), st.text(alphabet="abc ,.:\n"))
def test_the_number_after_the_marker_is_the_answer(number: int, before: str) -> None:
    assert final_answer(f"{before}\nAnswer: {number} apples") == str(number)


def test_very_long_numbers_are_scored() -> None:
    assert not score("Answer: " + "9" * 100_000, "9")


def test_errors_name_the_choices() -> None:
    with pytest.raises(ValueError, match="warmup"):
        generate(1, 0, split="test")
    with pytest.raises(ValueError, match=r"mul\.high"):
        Mix({"add.low": 1.0, "mul.huge": 1.0})
    with pytest.raises(ValueError, match=r"add\.low"):
        Mix({"mul.high": 1.0})
    with pytest.raises(ValueError, match="gold"):
        score("Answer: 1", "one")


def test_the_module_needs_no_torch() -> None:
    code = "import sys, cospec.tasks.word_problems; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}).returncode == 0
