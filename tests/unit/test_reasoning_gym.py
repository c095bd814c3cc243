"""Generated problems: every data set of the library is usable, and no answer is evaluated as code."""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cospec.jsonl import dumps, write_jsonl_atomic
from cospec.prompt_rows import PromptRow, load_prompt_rows
from cospec.scoring import Verdict, safe_score, scorer_for
from cospec.scoring.reasoning_gym import EVALUATED_FORMULAS, EVALUATED_LITERALS, may_be_evaluated, score_reasoning_gym
from cospec.scoring.reasoning_gym_guards import GUARDED
from cospec.task_set import load_task
from cospec.tasks.reasoning_gym import UNUSABLE, library, pack, unpack

pytest.importorskip("reasoning_gym")
from reasoning_gym.factory import DATASETS

NAMES = sorted(set(DATASETS) - set(UNUSABLE))
#: The library's answer is another one of several right ones, or it keeps none.
WITHOUT_ANSWER = {"boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour"}
#: Scorers that evaluate the data's own text and not the answer.
EVALUATE_OTHER_TEXT = {"bitwise_arithmetic", "number_sorting"}


JUNK = ("certainly none", "None", "[]", "{}", "-171717", "a,b", "(", "[[1]]", '{"a": 1}', "é")


@functools.cache
def rows_of(name: str, num: int, **options: Any) -> list[PromptRow]:
    return load_task(f"reasoning_gym:{name}", num=num, **options).rows


def score(text: str, row: Mapping[str, Any]) -> Verdict:
    pytest.importorskip("cospec.scoring.process")
    return safe_score(scorer_for("reasoning_gym"), text, row)


@pytest.mark.parametrize("name", NAMES)
def test_the_librarys_answer_is_right_after_a_round_trip_through_a_file(name: str, tmp_path: Path) -> None:
    rows = rows_of(name, 1)
    write_jsonl_atomic(tmp_path / "rows.jsonl", (row.to_json() for row in rows))
    for row, original in zip(load_prompt_rows(tmp_path / "rows.jsonl", require_gold=True), rows, strict=True):
        assert row == original
        if name in WITHOUT_ANSWER:
            assert row.gold is None
        else:
            assert_right(row)
        for text in JUNK:
            verdict = score(f"<answer>{text}</answer>", row.scorer_row())
            assert verdict.kind == "wrong", (text, verdict)


def assert_right(row: PromptRow) -> None:
    text = f"<answer>{row.gold}</answer> no: <answer>\n{row.gold} </answer> that is it"
    assert score(text, row.scorer_row()).is_right, (row.gold, score(text, row.scorer_row()))
    assert score(row.gold or "", row.scorer_row()).kind == "no_answer"


#: What a model may write that knows nothing of the problem.
GENERIC = (
    "0", "1", "-1", "2", "5", "10", "24", "100", "0.5", "0.0", "1/2", "yes", "no", "True", "False", "A", "B", "(A)",
    "x", "None", "null", "[]", "{}", "()", "[[]]", "[0]", "[true]", "''", '""', "0,0", "0 0 0", "-", "?", "no solution",
    "impossible", "unknown", "N/A", "anything else", "nan", "[NaN, NaN, NaN]", "1*1*4*6", "-1 days", "a b c",
)  # fmt: skip


def says_the_same(text: str, gold: str) -> bool:
    """Equal but for case, or as numbers; three digits are all that `power_function` asks for, a unit may be missing."""
    try:
        number, expected = (float(value.replace(",", "").removesuffix(" days")) for value in (text, gold))
    except ValueError:
        return text.casefold() == gold.casefold()
    return abs(number - expected) <= 5e-3 * abs(expected)


def assert_no_generic_text_is_right(name: str, num: int) -> None:
    for row in rows_of(name, num):
        for text in GENERIC:
            verdict = score(f"<answer>{text}</answer>", row.scorer_row())
            assert verdict.kind in ("right", "wrong"), (text, row.gold, verdict)
            assert not verdict.is_right or says_the_same(text, row.gold or ""), (text, row.gold)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_that_knows_nothing_is_right_only_where_it_is_the_answer(name: str) -> None:
    assert_no_generic_text_is_right(name, 1)


@pytest.mark.parametrize("name", sorted(GUARDED))
def test_where_the_library_is_known_to_be_lenient_more_problems_are_looked_at(name: str) -> None:
    assert_no_generic_text_is_right(name, 12)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_text_that_knows_nothing_is_right_only_where_it_is_the_answer_of_many_problems(name: str) -> None:
    assert_no_generic_text_is_right(name, 20)


@pytest.mark.parametrize(
    ("name", "gold", "right", "wrong"),
    [
        ("coin_flip", "0.3125", ["5/16", "0.31250", "0.31251"], ["0", "0.3", "0,3125", "0.31", "3", "1e99999999"]),
        ("coin_flip", "3.0517578125e-05", ["1/32768", "3.05e-5"], ["0", "0.0001"]),
        ("number_sorting", "['-1.5', '2.0']", ['["-1.5", "2"]', "[-1.50, 2]"], ["[-1, 2]", "[-1.5, true]", "[-1.5]"]),
        ("number_sorting", "['-1.5', '20.0']", ["['-1.5', '20.0']"], ['["-1.5", "2_0"]', "['20.0', '-1.5']"]),
        ("polynomial_equations", "", ['""', "''"], ["0", "no solution", "x", "[]", "none, 5"]),
        ("polynomial_equations", "-1.5, 2.0", ["-1.5, 2.0", "2,-1.5"], ["-1.5", "-1.5, 2.0, junk", "-1.5, 2.0, 3"]),
        ("decimal_arithmetic", "1.95966590389", ["1.959665903891"], ["1.960", "1.9597", "1.959665", "2"]),
        ("decimal_arithmetic", "0", ["0.000"], ["0.0009", "0.001"]),
        ("spell_backward", "drazzis", ["Drazzis"], ["drazziss", "drazzis or else", "drazzi", "sdrazzis"]),
        ("letter_jumble", "that the Day", ["that the Day", "that\nthe day"], ["that the Day s", "that the"]),
        ("word_sorting", "Foo, bar", ["Foo, bar", "Foo,bar"], ["foo, bar", "Foo, bar, zoo", "bar, Foo", "Foo"]),
        ("fraction_simplification", "$1/2$", ["1/2", r"\frac{1}{2}", r"$\dfrac{1}{2}$"], [
            r"\frac{1}{2} or \frac{1}{3}", r"\frac{1}{2} maybe", r"\frac{1}{2}, 3", "1/3", "-1/2", r"-\frac{1}{2}"]),
        ("advanced_geometry", "(0.750, 0.000)", ["(0.75, 0)", "0.750, 0.000"], [
            "(0.75, 0), (1, 2)", "0.75, 0, 1", "(0.75, 0) or (1, 2)", "0.75"]),
        ("gsm_symbolic", "1200", ["$1200", "1200 apples", "1200.0"], ["-1200", "1200 or 1300", "1", "1200*1"]),
    ],
)  # fmt: skip
def test_lenient_scorers_of_the_library_are_guarded(name: str, gold: str, right: list[str], wrong: list[str]) -> None:
    metadata = {"source_dataset": name, "direction": "ascending", "sorted_words": gold.split(", ")}
    metadata |= {"simplified_numerator": 1, "simplified_denominator": 2, "numerator": 2, "denominator": 4}
    metadata |= {"task_type": "orthocenter", "ortho": ("3/4", "0")}
    row = {"dataset": name, "entry": {"question": "?", "answer": gold, "metadata": metadata}}
    for answer in right:
        assert score(f"<answer>{answer}</answer>", row).is_right, answer
    for answer in wrong:
        assert score(f"<answer>{answer}</answer>", row).kind == "wrong", answer


plain = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.fractions()
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=8) | st.integers() | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_any_entry_of_plain_data_survives_json(value: object) -> None:
    back = unpack(json.loads(dumps(pack(value))))
    assert back == value
    assert repr(back) == repr(value)


def test_the_list_of_evaluating_scorers_is_that_of_the_installed_library() -> None:
    evaluates = set()
    for name in NAMES:
        source = inspect.getsource(DATASETS[name][0].score_answer)
        if re.search(r"\b(?:eval|exec|parse_expr|sympify)\(", source):
            evaluates.add(name)
    assert evaluates - EVALUATE_OTHER_TEXT == EVALUATED_LITERALS | EVALUATED_FORMULAS


ATTACKS = (
    "__import__('pathlib').Path('{file}').touch()",
    "[__import__('pathlib').Path('{file}').touch()]",
    'exec(\'open("{file}", "w")\')',
    "open('{file}', 'w')",
    "(lambda: open('{file}', 'w'))()",
    "sqrt(open('{file}', 'w'))",
    "1 if open('{file}', 'w') else 2",
    "[open('{file}', 'w') for x in [1]]",
    "f\"{{open('{file}', 'w')}}\"",
    "sin.__class__.__base__.__subclasses__()",
)


@pytest.mark.parametrize("name", sorted(EVALUATED_LITERALS | EVALUATED_FORMULAS))
def test_no_answer_runs_as_code(name: str, tmp_path: Path) -> None:
    row = rows_of(name, 1)[0].scorer_row()
    for attack in ATTACKS:
        answer = attack.format(file=tmp_path / "written")
        assert not may_be_evaluated(name, answer)
        assert score(f"<answer>{answer}</answer>", row).kind == "wrong"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "answer", ["9**9**9", "9**999", "x**(9**9)", "9" * 2000, "(" * 500 + "1" + ")" * 500, "2**-101"]
)
def test_formulas_that_would_take_for_ever_are_not_evaluated(answer: str) -> None:
    assert not may_be_evaluated("countdown", answer)
    assert not may_be_evaluated("spiral_matrix", answer) or answer.isdigit()


@pytest.mark.parametrize(
    "answer", ["3*x**2/2 - sin(2*x) + C", "(77 - 5)*3", "-x**100", "exp(x)*log(x + 1)", "sqrt(2)*pi"]
)
def test_formulas_are_evaluated(answer: str) -> None:
    assert may_be_evaluated("simple_integration", answer)


def test_a_right_formula_written_differently_is_right() -> None:
    for row in rows_of("simple_integration", 5):
        assert score(f"<answer>0 + {row.gold}</answer>", row.scorer_row()).is_right


@settings(max_examples=50, deadline=None)
@given(st.sampled_from(sorted(EVALUATED_LITERALS | EVALUATED_FORMULAS | {"chain_sum", "zebra_puzzles"})), st.text())
def test_any_answer_gets_a_verdict(name: str, answer: str) -> None:
    row = rows_of(name, 1)[0].scorer_row()
    assert score(f"<answer>{answer}</answer>", row).kind in ("right", "wrong", "no_answer")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>5</answer>", "5"),
        ("<answer>5</answer><answer>7</answer> so <answer>", "7"),
        ("<answer>5</answer> <answer>7", "5"),
        ("</answer>7<answer>", None),
        ("<answer></answer>", None),
        ("<answer> \n </answer>", None),
        ("5", None),
        ("", None),
        ("<answer>" * 50_000, None),
    ],
)
def test_the_last_pair_of_tags_holds_the_answer(text: str, answer: str | None) -> None:
    from cospec.scoring.reasoning_gym import final_answer

    assert final_answer(text) == answer


def test_integrals_that_the_library_has_not_solved_are_dropped() -> None:
    task = load_task("reasoning_gym:intermediate_integration", num=20, seed=3)
    assert task.info.dropped
    assert all("cannot be judged" in dropped.reason and "Integral(" in dropped.reason for dropped in task.info.dropped)
    assert not [row.gold for row in task.rows if "Integral(" in (row.gold or "")]


def test_partial_credit_is_wrong() -> None:
    row = rows_of("chain_sum", 1)[0]
    verdict = score(f"<answer>about {row.gold} or so</answer>", row.scorer_row())
    assert verdict.kind == "wrong"
    assert re.match(r"credit 0\.\d+ of 1", verdict.reason)


def test_neighbouring_seeds_and_splits_share_no_problems() -> None:
    # The library itself seeds problem i with seed + i, so that seeds 0 and 1 would share all but one.
    asked = [(seed, split) for seed in (0, 1) for split in ("train", "eval")]
    sets = [{row.extra["question"] for row in rows_of("chain_sum", 60, seed=s, split=p)} for s, p in asked]
    for index, questions in enumerate(sets):
        assert len(questions) > 50
        for other in sets[index + 1 :]:
            assert len(questions & other) <= 2
    assert rows_of("chain_sum", 5) == rows_of("chain_sum", 5)
    assert rows_of("chain_sum", 5) == rows_of("chain_sum", 9)[:5]


def test_a_scorer_that_fails_on_the_entry_itself_is_an_error() -> None:
    row = rows_of("prime_factorization", 1)[0].scorer_row()
    assert score("<answer>two</answer>", row).reason.startswith("the library cannot read the answer (ValueError")
    broken = {**row, "entry": {"question": "?", "metadata": {}}}
    assert score("<answer>two</answer>", broken).kind == "error"


def test_the_unusable_scorer_is_still_unusable() -> None:
    import reasoning_gym

    dataset = reasoning_gym.create_dataset("game_of_life_halting", size=1, seed=0)
    assert dataset.score_answer("no idea", dataset[0]) == 1


def test_what_is_missing_is_said() -> None:
    for name, message in {
        "reasoning_gym": "name one, such as reasoning_gym:chain_sum",
        "reasoning_gym:chainsum": "no data set 'chainsum': did you mean 'chain_sum'",
        "reasoning_gym:composite": "a mixture without contents",
        "reasoning_gym:game_of_life_halting": "gives full credit to any text",
    }.items():
        with pytest.raises(ValueError, match=message):
            load_task(name, num=1)
    assert score("<answer>1</answer>", {"id": 1, "gold": "1"}).kind == "error"
    info = load_task("reasoning_gym:chain_sum", num=1).info
    assert info.version.startswith("reasoning-gym 0.")


def test_an_answer_that_cannot_be_worked_out_is_wrong_where_the_librarys_own_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from cospec.scoring import reasoning_gym
    from cospec.scoring.process import ScoringProcess

    # The long product takes minutes.
    process = ScoringProcess("cospec.scoring.reasoning_gym_judge:judge", time_limit_s=3.0)
    monkeypatch.setattr(reasoning_gym, "_judge", lambda: process)
    entry = {"question": "?", "answer": "x", "metadata": {"integrand": "1", "variable": "x"}}
    row = {"dataset": "simple_integration", "entry": entry}
    assert score_reasoning_gym("<answer>x + 5</answer>", row).is_right
    slow = "*".join(f"sin(x + {n})*exp(x**{n})*tan(x**2 + {n})" for n in range(1, 12))
    verdict = score_reasoning_gym(f"<answer>{slow}</answer>", row)
    assert (verdict.kind, verdict.reason[:32]) == ("wrong", "the answer cannot be worked out:")
    assert (
        score_reasoning_gym(f"<answer>{slow}</answer>", {**row, "entry": {**entry, "answer": None}}).kind == "timeout"
    )
    process.close()


def test_puzzle24_wants_the_given_numbers() -> None:
    entry = {"question": "", "answer": "", "metadata": {"source_dataset": "puzzle24", "numbers": [2, 3, 4, 1]}}
    row = {"dataset": "puzzle24", "entry": entry}
    assert score_reasoning_gym("<answer>1*2*3*4</answer>", row).is_right
    for constant in ("1*1*4*6", "24", "2*3*4", "1*2*3*4*1"):
        assert score_reasoning_gym(f"<answer>{constant}</answer>", row).kind == "wrong"


@pytest.mark.parametrize("answer", ["nan", "[NaN, 1]", "inf", "-Infinity", "(E-E)+1"])
@pytest.mark.parametrize("name", ["complex_arithmetic", "number_sorting", "countdown"])
def test_constants_that_compare_with_anything_are_wrong(name: str, answer: str) -> None:
    entry = pack(library().create_dataset(name, size=1, seed=0)[0])
    assert score_reasoning_gym(f"<answer>{answer}</answer>", {"dataset": name, "entry": entry}).kind == "wrong"
