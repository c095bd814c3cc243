"""Comparisons on hand-made outcomes, and a whole evaluation on a tiny random pair."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from conftest import family_pair

from cospec.engine.decode import Engine
from cospec.engine.metrics import Acceptance, acceptance
from cospec.engine.record import Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.evaluation import (
    EvalSettings,
    EvalTask,
    Evaluation,
    Method,
    MethodResult,
    Sample,
    SampleKey,
    SampleTiming,
    TaskResult,
    evaluate,
    summary,
)
from cospec.evaluation.comparison import Outcomes, lost, non_nested, recovered, solved_by_neither_alone, union
from cospec.evaluation.paired import paired_accuracy
from cospec.evaluation.plots import plot_summary
from cospec.evaluation.sample import ends_in_loop, sample_from_json
from cospec.evaluation.scoring import FailureLimit, TooManyFailures, rescored
from cospec.evaluation.statistics import wilson
from cospec.evaluation.table import _modelled, lines, print_against, print_summary
from cospec.jsonl import dumps
from cospec.pair import Pair
from cospec.prompt_rows import PromptRow
from cospec.scoring import Verdict


def outcomes(text: str, task: str = "t") -> Outcomes:
    """`+-.`: right, wrong, not scored; problems are numbered."""
    return {SampleKey(task, index): mark == "+" for index, mark in enumerate(text) if mark != "."}


#                  0123456789
DRAFT = outcomes("++++------")
TARGET = outcomes("++--+++---")
METHOD = outcomes("+++-++-+--")


def test_comparisons_by_hand() -> None:
    assert (union(DRAFT, TARGET).count, union(DRAFT, TARGET).num) == (7, 10)
    assert union(DRAFT, TARGET).ci95 == wilson(7, 10)
    assert non_nested(DRAFT, TARGET).count == 2
    assert recovered(METHOD, DRAFT, TARGET).share == 1 / 2
    assert lost(METHOD, TARGET).share == 1 / 5
    neither = solved_by_neither_alone(METHOD, DRAFT, TARGET)
    assert (neither.count, neither.num) == (1, 3)
    # Gained 2 and 7, lost 6.
    found = paired_accuracy(METHOD, TARGET)
    assert found is not None
    assert (found.gained, found.lost, found.difference, found.p) == (2, 1, 0.1, 1.0)


def test_controls_of_the_comparisons() -> None:
    assert recovered(TARGET, DRAFT, TARGET).count == 0
    assert recovered(DRAFT, DRAFT, TARGET).share == 1
    assert lost(TARGET, TARGET).count == 0
    same = paired_accuracy(TARGET, TARGET)
    assert same is not None
    assert (same.p, same.difference, same.min_detectable) == (1, 0, None)
    assert solved_by_neither_alone(DRAFT, DRAFT, TARGET).count == 0


def test_a_problem_that_one_side_was_not_scored_on_is_compared_nowhere() -> None:
    ill = outcomes("+++-++..--")
    assert lost(ill, TARGET).share == 0
    neither = solved_by_neither_alone(ill, DRAFT, TARGET)
    assert (neither.count, neither.num) == (0, 2)
    nothing = union(outcomes("."), TARGET)
    assert (nothing.share, nothing.to_json()["ci95"]) == (None, None)
    assert paired_accuracy({}, TARGET) is None
    assert lost(METHOD, outcomes("----------")).share is None


def sample(index: int, mark: str, **changes: Any) -> Sample:
    base = Sample(
        task="t",
        method="m",
        id=index,
        repeat=0,
        verdict={"+": "right", "-": "wrong", ".": "error"}[mark],
        extracted=None,
        reason="",
        num_tokens=12,
        finish_reason="eos",
        num_rounds=4,
        num_drafted=20,
        num_accepted=9,
        num_mismatches=6,
        num_kept=3,
        drafted_at=(4, 4, 4, 4, 4),
        accepted_at=(4, 3, 2),
        mismatches_by_risk=(1, 0, 0, 0, 0, 0, 1, 4),
        kept_by_risk=(0, 0, 0, 0, 0, 0, 0, 3),
        repetitive=False,
        reward=None,
        reward_by_outcome=None,
        text="",
        output_ids=(7,) * 12,
        timing=SampleTiming(active_s=0.2),
    )
    return dataclasses.replace(base, **changes)


def result(name: str, rule: str, marks: str, active_s: float = 0.2, **changes: Any) -> MethodResult:
    timing = SampleTiming(active_s=active_s)
    samples = tuple(sample(i, mark, method=name, timing=timing, **changes) for i, mark in enumerate(marks))
    return MethodResult(name, rule, None, rule == "arbiter", samples)


CRAFTED = Evaluation(
    (
        TaskResult(
            "t",
            (
                result("draft", "draft", "++++------", num_rounds=12, num_mismatches=0, num_kept=0),
                result("target", "target", "++--+++---", 0.6, num_rounds=12, num_mismatches=0, num_kept=0),
                result("strict", "strict", "++--+++---", 0.9, num_kept=0, num_rounds=6, num_tokens=15),
                result("sft", "arbiter", "+++-++-+-.", reward=0.5, finish_reason="length", repetitive=True),
            ),
        ),
    )
)


def test_scores_are_ratios_of_sums() -> None:
    draft, _, strict, sft = CRAFTED.tasks[0].results
    score, timing = sft.score(), sft.timing()
    assert (score.right, score.num, score.num_failed) == (6, 9, 1)
    assert score.accuracy == 6 / 9
    assert score.tokens_per_round == 3
    assert score.tokens_per_round_ci95 == (3, 3)
    assert score.target_passes_per_token == 1 / 3
    assert timing.tokens_per_s == pytest.approx(120 / 2.0)
    assert score.keep_rate == 0.5
    assert score.mean_reward == 0.5
    assert (score.truncated, score.repetitive) == (1, 1)
    assert score.acceptance_rate == 9 / 20
    assert draft.score().target_passes_per_token is None
    assert draft.score().keep_rate is None
    assert strict.score().keep_rate == 0
    assert sft.by_position() == [(40, 40), (40, 30), (40, 20), (40, 0), (40, 0)]
    assert sft.by_risk()[0] == (10, 0)
    assert sft.by_risk()[-1] == (40, 30)


def test_summary_has_the_promised_form() -> None:
    found = summary(CRAFTED, 5)
    promised = ("n", "k", "methods", "union_accuracy", "non_nested", "recovered_share", "lost_share")
    assert {*promised, "solved_by_neither_alone", "mcnemar_p", "tasks", "macro", "timing"} <= found.keys()
    assert (found["n"], found["k"]) == (10, 5)
    assert found["timing"]["seconds"] == pytest.approx(19)
    assert (found["union_accuracy"], found["non_nested"], found["num_neither_alone"]) == (0.7, 2, 3)
    assert found["recovered_share"] == {"sft": 0.5}
    assert found["lost_share"] == {"sft": 0.2}
    assert found["solved_by_neither_alone"] == {"sft": 1 / 2}
    assert found["mcnemar_p"] == {"sft": 1.0}
    sft, strict = found["methods"]["sft"], found["methods"]["strict"]
    assert sft["timing"]["speed_ratio"] == pytest.approx(3)
    assert sft["tokens_per_round_ratio"] == pytest.approx(3 / 2.5)
    assert sft["tokens_per_round_ratio_ci95"] == pytest.approx([3 / 2.5, 3 / 2.5])
    assert strict["length_ratio"] == 1.25
    # Two thirds of the speed times five quarters of the length: nearly twice the time.
    assert strict["timing"]["time_ratio"] == pytest.approx(2 / 3)
    assert strict["timing"]["speed_ratio"] == pytest.approx(2 / 3 * 1.25)
    assert found["methods"]["target"]["p_vs_target"] is None
    assert sft["vs_target"]["p_adjusted"] == sft["vs_target"]["p"] == sft["p_vs_target"]
    assert found["complementarity"]["methods"]["sft"]["recovered"]["count"] == 1
    assert {key: found[key] for key in found["tasks"]["t"]} == found["tasks"]["t"]


def keys_of(value: Any) -> set[str]:
    """All keys of nested dictionaries, but for what lies under "timing"."""
    if isinstance(value, dict):
        inner = [keys_of(item) for key, item in value.items() if key != "timing"]
        return set(value) - {"timing"} | set().union(*inner)
    return set().union(*map(keys_of, value)) if isinstance(value, list) else set()


def test_what_a_clock_measured_lies_under_timing_alone() -> None:
    slower = [dataclasses.replace(r, samples=tuple(_slowed(s) for s in r.samples)) for r in CRAFTED.tasks[0].results]
    one, other = summary(CRAFTED, 5), summary(Evaluation((TaskResult("t", tuple(slower)),)), 5)
    assert one["methods"]["sft"]["timing"] != other["methods"]["sft"]["timing"]
    assert _without_timing(one) == _without_timing(other)
    assert not {key for key in keys_of(one) if "second" in key or "speed" in key or key.endswith("_s")}


def _slowed(one: Sample) -> Sample:
    return dataclasses.replace(one, timing=SampleTiming(active_s=one.timing.active_s * (2 + int(one.id))))


def _without_timing(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_timing(item) for key, item in value.items() if key != "timing"}
    return [_without_timing(item) for item in value] if isinstance(value, list) else value


def test_summary_without_draft_and_target_says_none() -> None:
    found = summary(Evaluation((TaskResult("t", CRAFTED.tasks[0].results[2:]),)), 5)
    assert [found[name] for name in ("union_accuracy", "non_nested", "num_neither_alone")] == [None] * 3
    for name in ("recovered_share", "lost_share", "solved_by_neither_alone", "mcnemar_p"):
        assert found[name] == {"sft": None}
    assert found["methods"]["sft"]["vs_target"] is None
    assert found["macro"]["methods"]["sft"]["difference"] is None


def two_tasks() -> Evaluation:
    """The second task is the first, its problems in another order and those that `sft` has no verdict for right."""
    other = []
    for r in CRAFTED.tasks[0].results:
        samples = [dataclasses.replace(s, task="u", verdict="right" if s.is_failure else s.verdict) for s in r.samples]
        other.append(dataclasses.replace(r, samples=tuple(samples[::-1])))
    return Evaluation((*CRAFTED.tasks, TaskResult("u", tuple(other))))


def test_several_tasks_are_summed_apart_together_and_averaged() -> None:
    found = summary(two_tasks(), 5, extra={"u": {"oracle_branch": {}}})
    assert list(found["tasks"]) == ["t", "u"]
    assert (found["n"], found["tasks"]["t"]["n"], found["tasks"]["u"]["n"]) == (20, 10, 10)
    assert found["methods"]["sft"]["right"] == 6 + 7
    assert "oracle_branch" in found["tasks"]["u"]
    assert "oracle_branch" not in found["tasks"]["t"]
    macro = found["macro"]["methods"]["sft"]
    assert macro["accuracy"] == pytest.approx((6 / 9 + 7 / 10) / 2)
    assert macro["difference"] == pytest.approx((1 / 9 + 2 / 10) / 2)
    assert macro["ci95"][0] < macro["accuracy"] < macro["ci95"][1]
    strict = found["macro"]["methods"]["strict"]
    assert strict["ci95"][0] < strict["accuracy"] == 0.5 < strict["ci95"][1]
    assert (strict["difference"], strict["p"]) == (0, 1)
    assert macro["timing"]["speed_ratio"] == pytest.approx(3)
    # Holm over two tasks: the smaller of two p-values is doubled.
    draft = [found["tasks"][name]["methods"]["draft"]["vs_target"] for name in ("t", "u")]
    smaller = min(draft, key=lambda paired: paired["p"])
    assert smaller["p_adjusted"] == min(1, 2 * smaller["p"])


def test_repeats_are_averaged_and_their_problems_are_the_units() -> None:
    repeated = [
        dataclasses.replace(
            r, samples=tuple(dataclasses.replace(s, repeat=repeat) for repeat in range(3) for s in r.samples)
        )
        for r in CRAFTED.tasks[0].results
    ]
    found = summary(Evaluation((TaskResult("t", tuple(repeated)),)), 5)
    once = summary(CRAFTED, 5)
    sft, before = found["methods"]["sft"], once["methods"]["sft"]
    assert found["n"] == 10
    assert (sft["right"], sft["num"], sft["accuracy"]) == (18, 27, before["accuracy"])
    # Three times the same text says nothing new: as long an interval as before, not one shorter by sqrt(3).
    for name in ("strict", "sft", "draft"):
        (low, high), (low_once, high_once) = (run["methods"][name]["ci95"] for run in (found, once))
        assert 0 <= low < low_once < high_once < high <= 1
    assert sft["vs_target"]["p_inferior"] == pytest.approx(before["vs_target"]["p_inferior"])
    assert sft["vs_target"]["p_mid"] is None
    assert sft["vs_target"]["p"] == pytest.approx(before["vs_target"]["p"], abs=0.01)
    assert sft["vs_target"]["num_problems"] == 9


def test_table_and_plot_take_any_summary(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for evaluation in (CRAFTED, Evaluation((TaskResult("t", CRAFTED.tasks[0].results[2:]),)), two_tasks()):
        found = summary(evaluation, 5)
        print_summary(found)
        assert "6/9 (1 failed)" in capsys.readouterr().out
        pytest.importorskip("matplotlib")
        plot_summary(found, tmp_path / "plot.png")
        assert (tmp_path / "plot.png").stat().st_size > 1000
    said = "\n".join(lines(summary(CRAFTED, 5)))
    assert "sft: the scorer failed on 1 " in said
    assert "strict: slower than the target alone (0.83 [0.83, 0.83]" in said
    assert "sft: slower" not in said
    assert "sft: 100.0% of the texts end in a loop" in said
    # tune and sweep measure c_rel in bare passes.
    model = {"speedup": 2.0, "length_factor": 1.0, "round_factor": 2.0, "c_rel": 0.25}
    (line,) = _modelled({"model": model, "time_ratio": 1.5, "time_ratio_ci95": None})
    assert "at c_rel 0.250 in this run; by the clock 1.50" in line


def test_names_that_look_like_markup_or_formulas_are_printed_as_they_are(
    tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    name = r"[/red] [bold]x :smile: $\frac$"
    tasks = [
        TaskResult(name + task.name, tuple(dataclasses.replace(r, name=f"{name}{r.name}") for r in task.results))
        for task in two_tasks().tasks
    ]
    found = summary(Evaluation(tuple(tasks)), 5)
    print_summary(found)
    paired = found["methods"][f"{name}strict"]["vs_target"] | {"timing": None, "length_ratio": None}
    compared = {"tasks": {name: {name: paired | {"length_ratio_ci95": None}}}, "old": name, "new": name}
    print_against(compared | {"differences": [name], "left_out": [name]})
    said = capsys.readouterr().out
    # Of the title and a row for each method of each task and of the mean, and of the comparison.
    num_methods = len(found["methods"])
    assert said.count(name) >= 2 * (1 + num_methods) + num_methods + 5
    plot_summary(found, tmp_path / "plot.png")


@pytest.mark.parametrize(
    ("ids", "loops"),
    [
        ([1, 2, 3] * 11, True),
        ([9, 8, 4] + [5] * 32, True),
        ([5] * 31, False),
        ([1, 2, 3] * 10 + [1, 9, 3], False),
        (list(range(40)) * 4, False),
        ([*range(50), *list(range(32)) * 4], True),
        (list(range(100)), False),
        ([], False),
    ],
)
def test_loops_are_found_at_the_end_alone(ids: list[int], loops: bool) -> None:
    assert ends_in_loop(ids) == loops


def test_a_sample_survives_json_and_a_new_verdict() -> None:
    one = sample(3, "+", reward=1.5, reward_by_outcome=(-0.2, 1.5), text="a\u2028b")
    assert sample_from_json(json.loads(dumps(one.to_json()))) == one
    again = one.judged(Verdict("wrong", "4", "expected 5"))
    assert (again.verdict, again.extracted, again.reward, again.text) == ("wrong", "4", -0.2, one.text)
    assert one.judged(Verdict("timeout")).reward is None
    with pytest.raises(ValueError, match="another version"):
        sample_from_json({"id": 3})


# --- with models -----------------------------------------------------------------------------------------------------

SETTINGS = EvalSettings(max_new_tokens=20, batch_size=3)
ROWS = [PromptRow(id=index, prompt_ids=[1, 9 + index, 30 - index], gold=str(index % 2)) for index in range(7)]


def parity(text: str, row: Mapping[str, Any]) -> Verdict:
    return Verdict("right" if len(text) % 2 == int(row["gold"]) else "wrong")


TASK = EvalTask("parity", tuple(ROWS), parity)


def methods() -> list[Method]:
    rules: Sequence[str] = ("strict", "always")
    return [Method("draft", "draft"), Method("target", "target"), *(Method(rule, rule_named(rule)) for rule in rules)]


@pytest.fixture(scope="module")
def llama() -> Pair:
    return family_pair("llama", "sdpa")


def test_a_busy_machine_is_told_beside_the_speeds(llama: Pair) -> None:
    found = evaluate(llama, methods(), [TASK], SETTINGS)
    shares = [result.timing().cpu_share for result in found.tasks[0].results]
    assert all(share is not None and share > 0.0 for share in shares)

    def slept(sample: Sample, share: float) -> Sample:
        timing = dataclasses.replace(sample.timing, cpu_s=share * sample.timing.active_s)
        return dataclasses.replace(sample, timing=timing)

    for share, is_busy in ((0.4, True), (1.0, False), (0.0, False)):
        results = [
            dataclasses.replace(result, samples=tuple(slept(sample, share) for sample in result.samples))
            for result in found.tasks[0].results
        ]
        told = summary(Evaluation((TaskResult(TASK.name, tuple(results)),)), SETTINGS.num_draft_tokens)
        said = [line for line in lines(told["tasks"][TASK.name]) if "the machine was busy" in line]
        assert len(said) == (len(results) if is_busy else 0)


def test_every_method_sees_every_row(llama: Pair) -> None:
    seen = []

    def on_sample(one: Sample, rollout: Rollout) -> None:
        assert one.output_ids == rollout.output_ids
        seen.append((one.method, one.id))

    found = evaluate(llama, methods(), [TASK], SETTINGS, on_sample=on_sample)
    assert sorted(seen) == sorted((method.name, row.id) for method in methods() for row in ROWS)
    by_name = {r.name: r for r in found.tasks[0].results}
    assert all([s.id for s in r.samples] == [row.id for row in ROWS] for r in by_name.values())
    texts = {name: [s.text for s in r.samples] for name, r in by_name.items()}
    assert texts["strict"] == texts["target"] != texts["always"] == texts["draft"]
    target = Engine(llama, rule_named("target"), max_new_tokens=20)
    assert texts["target"] == [r.text for r in target.rollouts([Request(row.id, row.prompt_ids) for row in ROWS])]
    assert by_name["always"].score().keep_rate == 1
    assert by_name["target"].score().tokens_per_round == 1
    assert all(s.timing.active_s > 0 for r in by_name.values() for s in r.samples)
    assert by_name["strict"].bonus == "target"
    assert by_name["target"].bonus is None
    strict = by_name["strict"]
    assert sum(drafted for drafted, _ in strict.by_position()) == sum(s.num_drafted for s in strict.samples)
    assert sum(accepted for _, accepted in strict.by_position()) == sum(s.num_accepted for s in strict.samples)
    assert sum(mismatches for mismatches, _ in strict.by_risk()) == sum(s.num_mismatches for s in strict.samples)


def test_active_seconds_are_shares_of_the_engines_time(llama: Pair) -> None:
    engine = Engine(llama, rule_named("strict"), max_new_tokens=20, batch_size=3)
    start = time.perf_counter()
    rollouts = []
    for _, rollout in engine.run([Request(row.id, row.prompt_ids or []) for row in ROWS]):
        rollouts.append(rollout)
        # Whoever takes rollouts may dawdle: this is nobody's time.
        time.sleep(0.05)
    elapsed = time.perf_counter() - start
    active = sum(rollout.timings.active_s for rollout in rollouts)
    assert 0 < active < elapsed - 0.05 * len(ROWS)
    parts = [sum(getattr(r.timings, name) for r in rollouts) for name in ("draft_s", "target_s", "arbiter_s")]
    assert parts == pytest.approx([engine.clock.draft_s, engine.clock.target_s, engine.clock.arbiter_s])
    assert sum(parts) < active


def test_kept_samples_are_not_run_again(llama: Pair) -> None:
    whole = evaluate(llama, methods(), [TASK], SETTINGS).tasks[0].results
    kept = [*whole[1].samples, *whole[2].samples[:4]]
    seen = []
    again = evaluate(
        llama, methods()[1:3], [TASK], SETTINGS, kept=kept, on_sample=lambda s, _: seen.append((s.method, s.id))
    )
    assert sorted(seen) == [("strict", 4), ("strict", 5), ("strict", 6)]
    strict = again.tasks[0].results[1]
    assert [s.text for s in strict.samples] == [s.text for s in whole[2].samples]
    assert strict.samples[:4] == tuple(kept[-4:])


def test_repeats_differ_and_the_first_is_the_plain_run(llama: Pair) -> None:
    sampled = dataclasses.replace(SETTINGS, sampling=Sampling(temperature=1.0))
    once = evaluate(llama, methods()[:2], [TASK], sampled)
    thrice = evaluate(llama, methods()[:2], [TASK], dataclasses.replace(sampled, repeats=3))
    for single, several in zip(once.tasks[0].results, thrice.tasks[0].results, strict=True):
        assert [s.output_ids for s in several.samples[: len(ROWS)]] == [s.output_ids for s in single.samples]
        assert [s.repeat for s in several.samples] == [repeat for repeat in range(3) for _ in ROWS]
        assert len({s.output_ids for s in several.samples if s.id == 0}) > 1
    with pytest.raises(ValueError, match="temperature 0"):
        EvalSettings(repeats=2)


def failing(share: float) -> tuple[EvalTask, list[int]]:
    """A task of 60 rows whose scorer fails on the last of every 1 / share, and what it was asked."""
    asked: list[int] = []

    def scorer(text: str, row: Mapping[str, Any]) -> Verdict:
        asked.append(row["id"])
        return Verdict("timeout" if share and row["id"] % round(1 / share) == 0 else "wrong")

    rows = [PromptRow(id=i, prompt_ids=[1, 9 + i % 30], gold="1") for i in range(60)]
    return EvalTask("ill", tuple(rows), scorer), asked


def test_a_scorer_that_fails_too_often_stops_the_run(llama: Pair) -> None:
    for share, limit, num_judged in ((1.0, 0.05, 20), (1 / 15, 0.05, 60), (1 / 30, 0.05, None), (1.0, 1.0, None)):
        task, asked = failing(share)
        kept: list[Sample] = []

        def run(task: EvalTask = task, limit: float = limit, kept: list[Sample] = kept) -> Evaluation:
            return evaluate(
                llama,
                methods()[:1],
                [task],
                dataclasses.replace(SETTINGS, max_new_tokens=4),
                on_sample=lambda one, _: kept.append(one),
                max_failed_share=limit,
            )

        if num_judged is None:
            score = run().tasks[0].results[0].score()
            assert (score.num_failed, score.num_timeout) == (round(60 * share), round(60 * share))
            continue
        with pytest.raises(TooManyFailures, match=r"task 'ill'.*method 'draft'"):
            run()
        # All that was judged has been handed over before the run stopped.
        assert len(kept) == len(asked) == num_judged


@pytest.mark.parametrize("num", [1, 3, 19])
def test_a_scorer_that_fails_on_a_small_task_stops_the_run_at_its_end(num: int) -> None:
    ill, well = sample(0, "."), sample(1, "+")
    for num_failed, share in ((num, 0.99), (1, 0.05)):
        limit = FailureLimit(share, num)
        for _ in range(num - 1):
            limit.add(well if num_failed == 1 else ill)
        with pytest.raises(TooManyFailures, match=f"failed on {num_failed} of {num} samples"):
            limit.add(ill)
    limit = FailureLimit(1.0, num)
    for _ in range(num):
        limit.add(ill)


def test_workers_judge_the_same_and_keep_the_order(llama: Pair) -> None:
    task = dataclasses.replace(TASK, scores_in_parallel=True)
    found = [evaluate(llama, methods()[:2], [task], dataclasses.replace(SETTINGS, workers=n)) for n in (1, 3)]
    for one, other in zip(*(evaluation.tasks[0].results for evaluation in found), strict=True):
        assert [(s.id, s.verdict, s.output_ids) for s in one.samples] == [
            (s.id, s.verdict, s.output_ids) for s in other.samples
        ]


def test_new_verdicts_leave_texts_and_other_tasks_alone(llama: Pair) -> None:
    samples = evaluate(llama, methods()[:2], [TASK], SETTINGS).tasks[0].results[1].samples
    other = dataclasses.replace(samples[0], task="other")
    always_right = dataclasses.replace(TASK, scorer=lambda text, row: True)
    again = rescored([other, *samples], [always_right], workers=1)
    assert again[0] == other
    assert all(s.verdict == "right" for s in again[1:])
    assert [s.output_ids for s in again[1:]] == [s.output_ids for s in samples]


def test_what_cannot_work_is_refused_before_anything_is_decoded(llama: Pair) -> None:
    seen: list[str] = []

    def run(methods: Sequence[Method], rows: Sequence[PromptRow], settings: EvalSettings = SETTINGS) -> None:
        task = EvalTask("parity", tuple(rows), parity)
        evaluate(llama, methods, [task], settings, on_sample=lambda s, _: seen.append(s.method))

    long = [*ROWS, PromptRow(id="long", prompt_ids=[9] * llama.draft_context)]
    with pytest.raises(ValueError, match=r"'long'.*method 'target'"):
        run(methods()[1:], long)
    with pytest.raises(ValueError, match="two methods are called 'target'"):
        run([*methods(), Method("target", rule_named("never"))], ROWS)
    with pytest.raises(ValueError, match="two tasks are called 'parity'"):
        evaluate(llama, methods(), [TASK, TASK], SETTINGS)
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
