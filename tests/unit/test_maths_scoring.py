"""The maths scorer: one answer, never a hedge, never right without a readable gold, and total."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cospec.scoring import scorer_for
from cospec.scoring.final_answer import final_answer
from cospec.scoring.latex.literal import read_literal
from cospec.scoring.latex.shape import Unreadable, read_shape
from cospec.scoring.maths import MathsScorer, check_gold, maths_versions, score_maths

ROOT = Path(__file__).parents[2]
GOLDS = [
    "5",
    "-5",
    r"\frac{1}{2}",
    "0.15",
    r"3\sqrt{13}",
    r"\pi",
    "6 - 5i",
    "p - q",
    r"\cot x",
    r"90^\circ",
    r"\$36",
    "52_8",
]
HEDGES = [
    "{0} or {1}", "{1} or {0}", r"{1} \text{{ or }} {0}", "{1}, {0}", "{0}; {1}", r"\{{{1}, {0}\}}", "({1}, {0})",
    r"x = {1} \text{{ or }} x = {0}", "{1} = {0}", r"{0} \text{{ or maybe }} {1}", "[{0}, {1}]", r"{1} \lor {0}",
    r"{0} \text{{ (or }} {1})", r"{1} \quad {0}", r"{0} \ne {1}", r"x > {0}", r"\pm ({0})", r"{0} \cup {1}",
]  # fmt: skip
SENTENCES = [
    r"So we get $\boxed{{{0}}}$.",
    r"\[ x = \boxed{{{0}}} \]",
    r"The final answer is ${0}$.",
    r"The final answer is {0}",
    r"**Answer:** ${0}$",
    r"Answer: {0}",
    r"#### {0}",
    r"Hence the value is \({0}\).",
]


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("gold", GOLDS)
def test_a_gold_answer_is_right_in_every_sentence_and_a_hedge_in_none(gold: str, sentence: str) -> None:
    assert score_maths(sentence.format(gold), {"gold": gold}).kind == "right"
    wrong = [
        hedge for hedge in HEDGES if score_maths(sentence.format(hedge.format(gold, "77")), {"gold": gold}).is_right
    ]
    assert not wrong


#: No digit of these can be told from zero; as an answer, they must not pass for every number.
ZEROS = [
    r"10^{1000}(\sqrt{2+\sqrt{3}}-\frac{\sqrt{6}+\sqrt{2}}{2})",
    r"9^{9^4}(\sqrt{2+\sqrt{3}}-\frac{\sqrt{6}+\sqrt{2}}{2})",
    r"\sin(1)^2+\cos(1)^2-1",
    r"\cos(2)-2\cos(1)^2+1",
    r"10^{1000}(\sin^2 x+\cos^2 x-1)",
    r"1 + 10^{1000}(\sqrt{2+\sqrt{3}}-\frac{\sqrt{6}+\sqrt{2}}{2})i",
]
#: Answers that name the golds of many questions at once.
CATCH_ALLS = [
    r"\text{even}=\text{odd}", r"\text{Evelyn} = \text{Navin} = \text{even}", "(A) B", "(A) = (B) = (C)",
    r"\text{Evelyn}=(\text{even}=(\text{odd}=\text{Navin}))", r"\text{Evelyn} \ne 3", r"\text{Evelyn} < \text{Navin}",
]  # fmt: skip


WORDS = [r"\text{even}", r"\text{odd}", r"\text{Evelyn}", r"\text{Navin}", r"\text{(A)}", r"\text{(B)}"]
NUM_OWN_GOLDS, NUM_SAMPLED = len(GOLDS) + len(WORDS), 18


def many_golds() -> list[str]:
    """All golds of MATH-500 where its file is, else some."""
    golds = [*GOLDS, *WORDS]
    if "COSPEC_DATA" in os.environ:
        with gzip.open(Path(os.environ["COSPEC_DATA"]) / "math500/test.jsonl.gz", "rt", encoding="utf-8") as file:
            golds += [json.loads(line)["answer"] for line in file]
    return golds


def wrongly_right(answer: str, golds: Iterable[str]) -> list[str]:
    # The zeros are really zero: for a gold 0 they could be called right.
    return [gold for gold in golds if gold != "0" and score_maths(rf"\boxed{{{answer}}}", {"gold": gold}).is_right]


@pytest.mark.parametrize("answer", [*ZEROS, *CATCH_ALLS])
def test_one_answer_is_not_right_for_many_golds(answer: str) -> None:
    golds = many_golds()
    assert not wrongly_right(answer, [*golds[:NUM_OWN_GOLDS], *random.Random(answer).sample(golds, NUM_SAMPLED)])


@pytest.mark.slow
@pytest.mark.parametrize("answer", [*ZEROS, *CATCH_ALLS])
def test_one_answer_is_not_right_for_any_of_all_golds(answer: str) -> None:
    assert not wrongly_right(answer, many_golds())


@pytest.mark.parametrize("link", [" or ", ", ", " and ", "$ or $", r" \text{ or } ", " or perhaps it is "])
def test_boxes_side_by_side_are_one_answer(link: str) -> None:
    assert final_answer(rf"\boxed{{5}}{link}\boxed{{6}}") == ("5", "6")
    assert not score_maths(rf"\boxed{{5}}{link}\boxed{{6}}", {"gold": "6"}).is_right
    assert final_answer(r"First \boxed{5}. No, that is wrong. It is \boxed{6}") == ("6",)


@pytest.mark.parametrize(
    "gold", ["", "  ", None, r"\frac{1}{", "x +", r"5 \foo 6", "(1,2", "$$", "#", r"\text{5", "1 2"]
)
def test_nothing_is_right_for_a_gold_answer_that_cannot_be_read(gold: str | None) -> None:
    for text in ("", str(gold), rf"\boxed{{{gold}}}", "0", r"\boxed{1}"):
        verdict = score_maths(text, {"id": 3, "gold": gold})
        assert verdict.kind == "error"
        assert "gold answer" in verdict.reason
    with pytest.raises(ValueError, match=r"drop the row"):
        check_gold(gold)


def test_readable_golds_pass_the_check() -> None:
    for gold in (*GOLDS, r"\text{(C)}", r"x \in [-2,7]", r"m\angle A = 50^\circ", 5, 2.5):
        check_gold(gold)


def test_the_extracted_answer_and_the_reason_are_told() -> None:
    verdict = score_maths(r"thus $\boxed{\frac{2}{3}}$", {"gold": r"\frac{1}{2}"})
    assert (verdict.kind, verdict.extracted) == ("wrong", r"\frac{2}{3}")
    assert verdict.reason == r"expected '\\frac{1}{2}': not equal"


@pytest.fixture(scope="module")
def impatient() -> Iterator[MathsScorer]:
    scorer = MathsScorer(time_limit_s=1, memory_limit_mb=1000)
    yield scorer
    scorer.close()


@pytest.mark.parametrize("answer", [r"9^{9^{9^{9}}}", r"\binom{10^{10}}{10^9}", r"\sum_{k=1}^{10^{12}} \sin k"])
def test_an_answer_that_cannot_be_worked_out_costs_its_time_limit_and_no_more(
    impatient: MathsScorer, answer: str
) -> None:
    verdict = impatient(rf"\boxed{{{answer}}}", {"gold": "5"})
    assert verdict.kind == "wrong"
    assert impatient(r"\boxed{\sqrt{25}}", {"gold": "5"}).is_right
    assert len(psutil.Process().children()) <= 4


@pytest.mark.parametrize(
    "answer",
    ["(-1)!", r"\sin(10^{10^7})", r"\prod_{n=1}^{10^7} n", r"\sum_{n=1}^{10^9} \frac{1}{n!}"],
)
@pytest.mark.parametrize("gold", ["5", r"3\sqrt{13}", "x + 1"])
def test_an_answer_cannot_make_itself_a_failure_that_is_masked(impatient: MathsScorer, answer: str, gold: str) -> None:
    assert impatient(rf"\boxed{{{answer}}}", {"gold": gold}).kind == "wrong"


def test_a_gold_that_cannot_be_worked_out_is_a_failure(impatient: MathsScorer) -> None:
    assert impatient(r"\boxed{\sqrt{5}}", {"gold": r"\sin(10^{10^7})"}).kind == "timeout"


def test_exact_answers_need_no_process() -> None:
    scorer = MathsScorer()
    assert scorer(r"\boxed{\frac{3}{6}}", {"gold": "0.5"}).is_right
    assert scorer(r"\boxed{(1, 2)}", {"gold": "(1,3)"}).kind == "wrong"
    assert scorer._process.pid is None


def test_threads_share_the_scorer() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(5):
            if not score_maths(rf"\boxed{{\sqrt{{{number**2}}}}}", {"gold": str(number)}).is_right:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_versions_are_told_for_the_results() -> None:
    versions = maths_versions()
    assert versions["math-verify"].startswith("0.9")
    assert set(versions) == {"math-verify", "latex2sympy2_extended", "sympy", "antlr4-python3-runtime"}


def test_without_math_verify_the_extra_is_named_and_numbers_work() -> None:
    program = """
import sys
sys.modules["math_verify"] = None
from cospec.scoring import scorer_for
print(scorer_for("number")("#### 5", {"gold": "5"}).kind)
try:
    scorer_for("maths")
except ValueError as error:
    print(error)
assert not {"torch", "sympy"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["right", "scorer 'maths' needs math-verify: pip install 'cospec[eval]'"]


COMMANDS = [
    r"\boxed{",
    r"\frac",
    r"\sqrt",
    r"\text{",
    r"\left(",
    r"\right]",
    r"\begin{pmatrix}",
    r"\end{pmatrix}",
    r"\\",
]
WORDS = [r"\pm", r"\cup", r"\in", r"\(", r"\]", " or ", "####", "answer is", "½"]
LATEX = st.lists(st.sampled_from([*COMMANDS, *"{}[]()$^_=<>,;+-*/|!%°x5i.&", *WORDS]))


@given(st.one_of(st.text(), LATEX.map("".join), st.text(alphabet="\ud800\x00\\{}$\u2028", max_size=20)))
@settings(max_examples=150, deadline=None)
def test_any_text_has_a_verdict(text: str) -> None:
    assert scorer_for("maths")(text, {"gold": "5"}).kind in ("right", "wrong", "no_answer")  # type: ignore[attr-defined]
    assert scorer_for("maths")("5", {"gold": text}).kind in ("right", "wrong", "error")  # type: ignore[attr-defined]


@given(st.one_of(st.text(), LATEX.map("".join)))
@settings(max_examples=150, deadline=None)
def test_any_text_has_a_shape_or_is_unreadable_and_reading_is_repeatable(text: str) -> None:
    try:
        shape = read_shape(text)
    except Unreadable:
        return
    assert read_shape(text) == shape


@given(st.fractions(max_denominator=10**6), st.fractions(max_denominator=10**6))
def test_fractions_are_compared_exactly(one: object, other: object) -> None:
    same = score_maths(rf"\boxed{{{one}}}", {"gold": str(other)}).is_right
    assert same == (one == other)
    assert read_literal(str(one)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "x" * 2_000_000,
        "{" * 300_000,
        r"\boxed{" * 100_000,
        "$" * 1_000_000,
        "1," * 500_000,
        "(" * 200_000 + "6" + ")" * 9,
    ],
)
def test_megabytes_of_text_are_read_in_no_time(text: str) -> None:
    assert score_maths(text, {"gold": "5"}).kind in ("right", "wrong", "no_answer")
    assert score_maths(text + r" so \boxed{5}", {"gold": "5"}).kind in ("right", "wrong", "no_answer")
