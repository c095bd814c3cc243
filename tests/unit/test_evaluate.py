"""Comparisons on hand-made outcomes, and a whole evaluation on a tiny random pair."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from conftest import family_pair

from cospec.engine.decode import Engine, Request
from cospec.engine.metrics import Acceptance, acceptance
from cospec.engine.rules import rule_named
from cospec.evaluation import EvalSettings, Evaluation, Method, MethodResult, Sample, evaluate, summary
from cospec.evaluation.comparison import (
    Outcomes,
    lost_share,
    non_nested,
    paired_p,
    recovered_share,
    solved_by_neither_alone,
    union_accuracy,
)
from cospec.evaluation.plots import plot_summary
from cospec.evaluation.table import lines, print_summary
from cospec.pair import Pair
from cospec.prompt_rows import PromptRow
from cospec.scoring import Verdict


def outcomes(text: str) -> Outcomes:
    """`+-.`: right, wrong, not scored; problems are numbered."""
    return {index: mark == "+" for index, mark in enumerate(text) if mark != "."}


#                  0123456789
DRAFT = outcomes("++++------")
TARGET = outcomes("++--+++---")
METHOD = outcomes("+++-++-+--")


def test_comparisons_by_hand() -> None:
    assert union_accuracy(DRAFT, TARGET) == 0.7
    assert non_nested(DRAFT, TARGET) == 2
    assert recovered_share(METHOD, DRAFT, TARGET) == 1 / 2
    assert lost_share(METHOD, TARGET) == 1 / 5
    assert solved_by_neither_alone(METHOD, DRAFT, TARGET) == (1, 3)
    # Gained 2 and 7, lost 6.
    assert paired_p(METHOD, TARGET) == 1.0


def test_controls_of_the_comparisons() -> None:
    assert recovered_share(TARGET, DRAFT, TARGET) == 0
    assert recovered_share(DRAFT, DRAFT, TARGET) == 1
    assert lost_share(TARGET, TARGET) == 0
    assert paired_p(TARGET, TARGET) == 1
    assert solved_by_neither_alone(DRAFT, DRAFT, TARGET)[0] == 0


def test_a_problem_that_one_side_was_not_scored_on_is_compared_nowhere() -> None:
    ill = outcomes("+++-++..--")
    assert lost_share(ill, TARGET) == 0
    assert solved_by_neither_alone(ill, DRAFT, TARGET) == (0, 2)
    assert union_accuracy(outcomes("."), TARGET) is None
    assert paired_p({}, TARGET) is None
    assert lost_share(METHOD, outcomes("----------")) is None


def sample(index: int, mark: str, **changes: Any) -> Sample:
    verdict = {"+": "right", "-": "wrong", ".": "error"}[mark]
    base = Sample(index, verdict, None, "", 12, "eos", 4, 20, 9, 6, 3, None, 2.0, "")
    return dataclasses.replace(base, **changes)


def result(name: str, rule: str, marks: str, **changes: Any) -> MethodResult:
    samples = tuple(sample(index, mark, **changes) for index, mark in enumerate(marks))
    return MethodResult(name, rule, None, rule == "arbiter", samples)


CRAFTED = Evaluation(
    (
        result("draft", "draft", "++++------", num_rounds=12, num_mismatches=0, num_kept=0),
        result("target", "target", "++--+++---", num_rounds=12, num_mismatches=0, num_kept=0, decode_s=6.0),
        result("strict", "strict", "++--+++---", num_kept=0, num_rounds=6),
        result("sft", "arbiter", "+++-++-+-.", reward=0.5, finish_reason="length"),
    )
)


def test_scores_are_ratios_of_sums() -> None:
    score = CRAFTED.results[3].score()
    assert (score.right, score.num, score.num_failed) == (6, 9, 1)
    assert score.accuracy == 6 / 9
    assert score.tokens_per_round == 3
    assert score.target_passes_per_token == 1 / 3
    assert score.tokens_per_s == 120 / 2.0
    assert score.keep_rate == 0.5
    assert score.mean_reward == 0.5
    assert score.truncated == 1
    assert CRAFTED.results[0].score().target_passes_per_token is None
    assert CRAFTED.results[0].score().keep_rate is None
    assert CRAFTED.results[2].score().keep_rate == 0


def test_summary_has_the_promised_form() -> None:
    found = summary(CRAFTED, 5)
    promised = ("n", "k", "methods", "union_accuracy", "non_nested", "recovered_share", "lost_share")
    assert {*promised, "solved_by_neither_alone", "mcnemar_p", "seconds"} <= found.keys()
    assert (found["n"], found["k"], found["seconds"]) == (10, 5, 12.0)
    assert (found["union_accuracy"], found["non_nested"], found["num_neither_alone"]) == (0.7, 2, 3)
    assert found["recovered_share"] == {"sft": 0.5}
    assert found["lost_share"] == {"sft": 0.2}
    assert found["solved_by_neither_alone"] == {"sft": 1 / 2}
    assert found["mcnemar_p"] == {"sft": 1.0}
    assert found["methods"]["sft"]["speed_ratio"] == 3
    assert found["methods"]["sft"]["tokens_per_round_ratio"] == 1.5
    assert found["methods"]["target"]["p_vs_target"] is None


def test_summary_without_draft_and_target_says_none() -> None:
    found = summary(Evaluation(CRAFTED.results[2:]), 5)
    assert [found[name] for name in ("union_accuracy", "non_nested", "num_neither_alone")] == [None] * 3
    for name in ("recovered_share", "lost_share", "solved_by_neither_alone", "mcnemar_p"):
        assert found[name] == {"sft": None}


def test_table_and_plot_take_any_summary(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for evaluation in (CRAFTED, Evaluation(CRAFTED.results[2:])):
        found = summary(evaluation, 5)
        print_summary(found)
        assert "6/9" in capsys.readouterr().out
        pytest.importorskip("matplotlib")
        plot_summary(found, tmp_path / "plot.png")
        assert (tmp_path / "plot.png").stat().st_size > 1000
    assert any("scorer failed on 1 " in line for line in lines(found))


# --- with models -----------------------------------------------------------------------------------------------------

SETTINGS = EvalSettings(max_new_tokens=20, batch_size=3)
ROWS = [PromptRow(id=index, prompt_ids=[1, 9 + index, 30 - index], gold=str(index % 2)) for index in range(7)]


def parity(text: str, row: Mapping[str, Any]) -> Verdict:
    return Verdict("right" if len(text) % 2 == int(row["gold"]) else "wrong")


def methods() -> list[Method]:
    rules: Sequence[str] = ("strict", "always")
    return [Method("draft", "draft"), Method("target", "target"), *(Method(rule, rule_named(rule)) for rule in rules)]


@pytest.fixture(scope="module")
def llama() -> Pair:
    return family_pair("llama", "sdpa")


def test_every_method_sees_every_row(llama: Pair) -> None:
    seen = []
    found = evaluate(llama, methods(), ROWS, parity, SETTINGS, on_sample=lambda name, s: seen.append((name, s.id)))
    assert sorted(seen) == sorted((method.name, row.id) for method in methods() for row in ROWS)
    by_name = {r.name: r for r in found.results}
    assert all([s.id for s in r.samples] == [row.id for row in ROWS] for r in found.results)
    texts = {name: [s.text for s in r.samples] for name, r in by_name.items()}
    assert texts["strict"] == texts["target"] != texts["always"] == texts["draft"]
    target = Engine(llama, rule_named("target"), max_new_tokens=20)
    assert texts["target"] == [r.text for r in target.rollouts([Request(row.id, row.prompt_ids) for row in ROWS])]
    assert by_name["always"].score().keep_rate == 1
    assert by_name["target"].score().tokens_per_round == 1
    assert all(s.decode_s > 0 for r in found.results for s in r.samples)
    assert by_name["strict"].bonus == "target"
    assert by_name["target"].bonus is None


def test_kept_samples_are_not_run_again(llama: Pair) -> None:
    whole = evaluate(llama, methods(), ROWS, parity, SETTINGS)
    kept = {"target": whole.results[1].samples, "strict": whole.results[2].samples[:4]}
    seen = []
    again = evaluate(
        llama, methods()[1:3], ROWS, parity, SETTINGS, kept=kept, on_sample=lambda name, s: seen.append((name, s.id))
    )
    assert sorted(seen) == [("strict", 4), ("strict", 5), ("strict", 6)]
    assert [s.text for s in again.results[1].samples] == [s.text for s in whole.results[2].samples]
    assert again.results[1].seconds > max(s.decode_s for s in kept["strict"])


def test_what_cannot_work_is_refused_before_anything_is_decoded(llama: Pair) -> None:
    seen: list[str] = []

    def run(methods: Sequence[Method], rows: Sequence[PromptRow], settings: EvalSettings = SETTINGS) -> None:
        evaluate(llama, methods, rows, parity, settings, on_sample=lambda name, s: seen.append(name))

    long = [*ROWS, PromptRow(id="long", prompt_ids=[9] * llama.draft_context)]
    with pytest.raises(ValueError, match=r"'long'.*method 'target'"):
        run(methods()[1:], long)
    with pytest.raises(ValueError, match="two methods are called 'target'"):
        run([*methods(), Method("target", rule_named("never"))], ROWS)
    with pytest.raises(ValueError, match="num_draft_tokens is 0"):
        run(methods(), ROWS, dataclasses.replace(SETTINGS, num_draft_tokens=0))
    assert seen == []


def test_acceptance_adds_up(llama: Pair) -> None:
    engine = Engine(llama, rule_named("strict"), max_new_tokens=20)
    rollouts = engine.rollouts([Request(row.id, row.prompt_ids) for row in ROWS])
    whole = acceptance(rollouts)
    assert whole == acceptance(rollouts[:3]) + acceptance(rollouts[3:])
    assert whole + Acceptance() == whole
    assert sum(whole.accepted_at) == whole.num_accepted == sum(rollout.num_accepted for rollout in rollouts)
    assert whole.acceptance_by_position == sorted(whole.acceptance_by_position, reverse=True)
    assert whole.mean_acceptance_length == 1 + whole.num_accepted / whole.num_rounds
    assert Acceptance().tokens_per_round is Acceptance().keep_rate is None
