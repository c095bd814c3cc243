"""What `cospec eval` looks at more closely: decisions against outcomes, batch size 1, runs against runs, signals."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import family_pair

from cospec.cli.stopping import StopSignals
from cospec.engine.record import Block, Decision, Rollout, Sampling, Settings, Timings
from cospec.engine.rules import rule_named
from cospec.evaluation import EvalSettings, EvalTask, Method, Sample, evaluate
from cospec.evaluation.against import FinishedRun, compare_runs, read_finished
from cospec.evaluation.oracle import agree_with_oracle, agreement_of
from cospec.evaluation.run import EvalRun
from cospec.evaluation.spot_check import compare_texts, spot_check
from cospec.jsonl import append_jsonl, read_jsonl
from cospec.labels import MismatchLabel, RolloutLabels
from cospec.pair import Pair
from cospec.prompt_rows import PromptRow
from cospec.scoring import Verdict

SETTINGS = EvalSettings(max_new_tokens=20, batch_size=3)
ROWS = tuple(PromptRow(id=index, prompt_ids=[1, 9 + index, 30 - index], gold=str(index % 2)) for index in range(7))


def parity(text: str, row: Mapping[str, Any]) -> Verdict:
    return Verdict("right" if len(text) % 2 == int(row["gold"]) else "wrong")


TASK = EvalTask("parity", ROWS, parity, "parity")


@pytest.fixture(scope="module")
def llama() -> Pair:
    return family_pair("llama", "sdpa")


# --- the better branch -----------------------------------------------------------------------------------------------


def decided(name: int, kept: str) -> Rollout:
    """A rollout with one decision per block: `k` kept, `f` fell back."""
    blocks = tuple(
        Block(5 + index, (7,), (8,), (Decision(0, 7, 8, 0.1, 0.5, mark == "k"),), int(mark == "k"), (7,))
        for index, mark in enumerate(kept)
    )
    settings = Settings(0, "arbiter", 1, "arbitrated", 9, Sampling(), ())
    return Rollout(name, (1,), (7,), "", blocks, "length", settings, Timings())


def labelled(name: int, outcomes: str) -> RolloutLabels:
    """What both branches of each decision end in: `d` only the draft's right, `t` the target's, `b` both, `n`, `x`."""
    right = {"d": (True, False), "t": (False, True), "b": (True, True), "n": (False, False), "x": (None, True)}
    labels = tuple(MismatchLabel(index, 0, *right[mark], None) for index, mark in enumerate(outcomes))
    return RolloutLabels(name, "", "", "either", "executed", "", labels)


def test_agreement_counts_the_decisions_that_have_a_better_branch() -> None:
    found = agreement_of("t", [decided(1, "kfkfk"), decided(2, "kkf"), decided(3, "")], [
        labelled(2, "dtt"), labelled(1, "ddbnx"), labelled(3, "")
    ])  # fmt: skip
    # Right: kept for d, fell back for t. Wrong: fell back for d, kept for t.
    assert (found.agreement.count, found.agreement.num) == (3, 5)
    assert (found.both, found.none, found.num_failed) == (1, 1, 1)
    assert (found.num_decisions, found.num_problems) == (8, 3)
    # Two problems say next to nothing, however many decisions they hold.
    low, high = found.agreement.ci95
    assert high - low > 0.95
    assert agreement_of("t", [decided(3, "")], [labelled(3, "")]).to_json()["agreement"]["ci95"] is None


def test_what_always_falls_back_agrees_where_the_targets_branch_is_better(llama: Pair, tmp_path: Path) -> None:
    found, settings = {}, EvalSettings(max_new_tokens=10, batch_size=16)
    for rule in ("never", "always"):
        method, stem = Method(rule, rule_named(rule)), tmp_path / rule
        found[rule] = agree_with_oracle(llama, method, TASK, settings, 5, stem)
        again = agree_with_oracle(llama, method, TASK, settings, 5, stem)
        assert again == found[rule]
        rows = [row["id"] for row in read_jsonl(tmp_path / f"{rule}.rollouts.jsonl")]
        assert sorted(rows) == [0, 1, 2, 3, 4]
        labels = list(read_jsonl(tmp_path / f"{rule}.labels.jsonl"))
        better = [(row["draft_right"], row["target_right"]) for line in labels for row in line["labels"]]
        wanted = (False, True) if rule == "never" else (True, False)
        assert found[rule].agreement.count == better.count(wanted)
        assert found[rule].agreement.num == better.count((True, False)) + better.count((False, True)) > 0


# --- batch size 1 ----------------------------------------------------------------------------------------------------


def test_in_float32_no_token_depends_on_the_batch(llama: Pair, tmp_path: Path) -> None:
    method = Method("strict", rule_named("strict"))
    samples = evaluate(llama, [method], [TASK], SETTINGS).tasks[0].results[0].samples
    found = spot_check(llama, method, TASK, SETTINGS, 4, samples, tmp_path / "alone.jsonl")
    assert (found.num, found.num_equal, found.differences) == (4, 4, ())
    other = [dataclasses.replace(s, output_ids=(*s.output_ids[:2], 0, *s.output_ids[3:])) for s in samples]
    # What was decoded is there: the second call decodes nothing and finds the difference.
    (tmp_path / "alone.jsonl").write_text((tmp_path / "alone.jsonl").read_text())
    found = spot_check(llama, method, TASK, SETTINGS, 4, other, tmp_path / "alone.jsonl")
    assert [(d.id, d.position) for d in found.differences] == [(index, 2) for index in range(4)]
    assert len(list(read_jsonl(tmp_path / "alone.jsonl"))) == 4


def test_texts_part_where_their_first_tokens_differ() -> None:
    found = compare_texts({1: [5, 6, 7], 2: [5, 6], 3: [], 4: [1]}, {1: (5, 6, 7), 2: (5, 6, 7), 3: (), 4: (2,)})
    assert (found.num, found.num_equal) == (4, 2)
    assert found.to_json()["differences"] == ({"id": 2, "position": 2}, {"id": 4, "position": 0})


# --- two runs --------------------------------------------------------------------------------------------------------


def finished(samples: list[Sample], **settings: Any) -> FinishedRun:
    task = {"problems_digest": "d", "num_problems": 7}
    common = {"batch_size": 3, "tasks": dict.fromkeys(("t", "u"), task), "methods": {"m": {"rule": "strict"}}}
    by_name: dict[tuple[str, str], tuple[Sample, ...]] = {}
    for one in samples:
        by_name[one.task, one.method] = (*by_name.get((one.task, one.method), ()), one)
    return FinishedRun(Path("run"), common | settings, by_name)


def test_runs_are_compared_by_id_with_holm_over_tasks(llama: Pair) -> None:
    base = evaluate(llama, [Method("m", rule_named("strict"))], [TASK], SETTINGS).tasks[0].results[0].samples
    old = [dataclasses.replace(s, task=task, verdict="wrong") for task in ("t", "u") for s in base]
    new = [dataclasses.replace(s, verdict="right") if s.task == "t" else s for s in reversed(old)]
    found = compare_runs(finished(new), finished(old))
    by_task = {entry.task: entry for entry in found.methods}
    assert (by_task["t"].accuracy.gained, by_task["t"].accuracy.p) == (7, 2 / 2**7)
    assert by_task["t"].p_adjusted == 2 * by_task["t"].accuracy.p
    assert by_task["u"].p_adjusted == 1
    assert by_task["u"].cost.length.value == 1
    assert found.speed_is_comparable
    assert found.to_json()["tasks"]["t"]["m"]["timing"]["speed_ratio"] == pytest.approx(1)
    slower = compare_runs(finished(new, batch_size=1), finished(old))
    assert slower.differences == ("batch_size was 3, now 1",)
    assert slower.to_json()["tasks"]["t"]["m"]["timing"] is None


def test_runs_that_cannot_be_compared_are_refused(llama: Pair, tmp_path: Path) -> None:
    base = evaluate(llama, [Method("m", rule_named("strict"))], [TASK], SETTINGS).tasks[0].results[0].samples
    here = [dataclasses.replace(s, task="t") for s in base]
    other = {"t": {"problems_digest": "e", "num_problems": 7}}
    with pytest.raises(ValueError, match=r"'t' does not have the same problems.*problems_digest was 'd', now 'e'"):
        compare_runs(finished(here, tasks=other), finished(here))
    with pytest.raises(ValueError, match="share no method"):
        compare_runs(finished([dataclasses.replace(s, method="n") for s in here]), finished(here))
    EvalRun(tmp_path / "begun", {"tasks": {}, "methods": {}})
    with pytest.raises(ValueError, match="not finished"):
        read_finished(tmp_path / "begun")


# --- the run directory and signals -----------------------------------------------------------------------------------


def test_samples_are_sorted_in_the_end_whatever_their_order(llama: Pair, tmp_path: Path) -> None:
    methods = [Method("target", "target"), Method("draft", "draft")]
    results = evaluate(llama, methods, [TASK], SETTINGS).tasks[0].results
    described = {"tasks": {"gone": {}, "parity": {}}, "methods": {"target": {}, "draft": {}}}
    run = EvalRun(tmp_path, described)
    in_order = [sample for result in results for sample in result.samples]
    gone = dataclasses.replace(in_order[0], task="gone", id="x")
    for one in [*in_order[::-1], gone]:
        run.add(one)
    run.finish({"n": 7}, [TASK])
    assert run.samples() == [gone, *in_order]


def test_a_signal_waits_for_a_write_and_then_stops_the_work() -> None:
    before = signal.getsignal(signal.SIGTERM)
    done = []
    with pytest.raises(KeyboardInterrupt), StopSignals() as stop:  # noqa: PT012
        with stop.held():
            os.kill(os.getpid(), signal.SIGTERM)
            done.append("written")
        done.append("never")
    assert done == ["written"]
    with pytest.raises(KeyboardInterrupt), StopSignals():  # noqa: PT012
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    assert signal.getsignal(signal.SIGTERM) == before


def test_records_and_samples_are_matched(llama: Pair, tmp_path: Path) -> None:
    method = Method("a/b", rule_named("strict"))
    run = EvalRun(tmp_path, {"tasks": {"parity": {}}, "methods": {"a/b": {}}})

    def keep(sample: Sample, rollout: Rollout) -> None:
        run.add_rollout(sample, rollout)
        # The first one is lost between its record and its sample.
        if sample.id != 0:
            run.add(sample)

    samples = evaluate(llama, [method], [TASK], SETTINGS, on_sample=keep).tasks[0].results[0].samples
    assert run.match_rollouts([TASK], ["a/b"]) == 0
    path = run.rollouts("parity", "a/b")
    assert path.parent == tmp_path / "rollouts"
    assert sorted(row["id"] for row in read_jsonl(path)) == [1, 2, 3, 4, 5, 6]
    run.add(samples[0])
    assert run.match_rollouts([TASK], ["a/b"]) == 1


@pytest.mark.parametrize("foreign", [["x"], [[3]], [None], [0, 1]])
def test_records_that_are_not_the_runs_own_are_refused_and_stay(tmp_path: Path, foreign: list[Any]) -> None:
    run = EvalRun(tmp_path, {"tasks": {"parity": {}}, "methods": {"m": {}}})
    ours, other = run.rollouts("parity", "m"), tmp_path / "rollouts" / "by_hand.jsonl"
    for path in (ours, other):
        append_jsonl(path, [{"id": name} for name in foreign])
    before = ours.read_text()
    with pytest.raises(ValueError, match=r"parity%2Fm\.jsonl holds \d records without a sample.*move the file away"):
        run.match_rollouts([TASK], ["m"])
    assert ours.read_text() == other.read_text() == before
