"""Scorers: found by name, total (any outcome becomes a verdict), and never generous by accident."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cospec.scoring import Verdict, load_scorer, safe_score, scorer_for

ROW = {"id": 1, "prompt": "p", "gold": "12"}


def returning(value: object) -> Any:
    return lambda text, row: value


def raising(error: BaseException) -> Any:
    def scorer(text: str, row: Mapping[str, Any]) -> bool:
        raise error

    return scorer


@pytest.mark.parametrize("value", [True, 1, 1.0, np.bool_(True), np.float32(1), np.array([1])])
def test_ones_are_right(value: object) -> None:
    assert safe_score(returning(value), "", ROW).is_right


@pytest.mark.parametrize("value", [False, 0, 0.0, np.bool_(False), np.int64(0)])
def test_zeros_are_wrong_and_no_failure(value: object) -> None:
    verdict = safe_score(returning(value), "", ROW)
    assert (verdict.kind, verdict.is_failure) == ("wrong", False)


@pytest.mark.parametrize("value", [None, 0.5, float("nan"), 2, "right", [], np.array([0, 1])])
def test_other_values_are_failures_with_a_reason(value: object) -> None:
    verdict = safe_score(returning(value), "", ROW)
    assert verdict.is_failure
    assert "scorer" in verdict.reason


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), SystemExit(3), AssertionError("no"), StopIteration()])
def test_exceptions_are_failures_with_a_reason(error: BaseException) -> None:
    verdict = safe_score(raising(error), "", ROW)
    assert verdict.kind == "error"
    assert type(error).__name__ in verdict.reason


def test_interrupts_pass() -> None:
    with pytest.raises(KeyboardInterrupt):
        safe_score(raising(KeyboardInterrupt()), "", ROW)


def test_verdicts_pass_unchanged() -> None:
    verdict = Verdict("timeout", reason="5 s")
    assert safe_score(returning(verdict), "", ROW) is verdict
    assert verdict.is_failure
    assert not Verdict("no_answer").is_failure
    assert not Verdict("no_answer").is_right


@pytest.mark.parametrize("kind", ["Right", "correct", "", None, True])
def test_verdicts_of_an_unknown_kind_are_errors_that_name_the_kinds(kind: Any) -> None:
    verdict = safe_score(returning(Verdict(kind)), "", ROW)
    assert verdict.kind == "error"
    assert f"of kind {kind!r}: the kinds are right, wrong, no_answer, timeout, error" in verdict.reason


def test_what_is_no_text_in_a_verdict_becomes_text() -> None:
    verdict: Any = Verdict("wrong", extracted=np.int64(5), reason=ValueError("no"))  # type: ignore[arg-type]
    assert safe_score(returning(verdict), "", ROW) == Verdict("wrong", "5", "no")


@pytest.mark.parametrize(
    ("text", "kind"), [(" 12\n", "right"), ("120", "wrong"), ("1", "wrong"), ("", "no_answer"), ("12 or 13", "wrong")]
)
def test_exact_is_equality_of_the_whole_text(text: str, kind: str) -> None:
    assert safe_score(scorer_for("exact"), text, ROW).kind == kind


@pytest.mark.parametrize("gold", [None, "", "  "])
@pytest.mark.parametrize("name", ["exact", "word_problems"])
def test_without_a_gold_answer_nothing_is_right(name: str, gold: str | None) -> None:
    assert safe_score(scorer_for(name), "", {"id": 1, "gold": gold}).kind == "error"


@given(st.text())
def test_built_in_scorers_are_total(text: str) -> None:
    for name in ("exact", "word_problems"):
        assert scorer_for(name)(text, ROW).kind in ("right", "wrong", "no_answer")  # type: ignore[attr-defined]


def test_unknown_names_suggest_a_known_one() -> None:
    with pytest.raises(ValueError, match="unknown scorer 'word_problem': did you mean 'word_problems'"):
        scorer_for("word_problem")
    with pytest.raises(ValueError, match=r"package\.module:function"):
        scorer_for("zzz")


def test_a_scorer_in_the_current_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_reward_here.py").write_text("def f(text, row):\n    return text == row['gold']\nx = 3\n")
    (tmp_path / "my_broken_reward.py").write_text("import no_such_library_at_all\n")
    (tmp_path / "my_unfinished_reward.py").write_text("def f(:\n")
    (tmp_path / "my_async_reward.py").write_text("async def f(text, row):\n    return 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    assert safe_score(scorer_for("my_reward_here:f"), "12", ROW).is_right
    for name, message in {
        "my_reward_here:g": "has no 'g'; its callables are: f",
        "my_reward_here:x": "is a int",
        "my_broken_reward:f": "no_such_library_at_all.*install it",
        "my_unfinished_reward:f": "mend the module",
        "my_async_reward:f": "async",
        "no_such_module_here:f": "no module 'no_such_module_here'",
        "no_such_package.deeper:f": "no module 'no_such_package'",
        "my_reward_here": "not of the form",
        ":f": "not of the form",
        "my_reward_here:": "not of the form",
    }.items():
        with pytest.raises(ValueError, match=message):
            load_scorer(name)
