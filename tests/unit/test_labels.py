"""Outcome labels: what each branch leads to, checked by decoding the branches one by one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cospec.engine.decode import Engine
from cospec.engine.record import Rollout
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.jsonl import dumps, read_jsonl
from cospec.labels import MismatchLabel, RolloutLabels, complementarity, labels_from_json
from cospec.labels.outcome import OutcomeLabeller
from cospec.labels.run import label_file
from cospec.pair import Pair
from cospec.prompt_rows import PromptRow
from cospec.training.sft import examples
from tests.conftest import random_prompts

CAP = 14


def even(text: str, row: Mapping[str, Any]) -> bool:
    """A rule that splits continuations about evenly, for any model."""
    return sum(int(word[1:]) for word in text.split() if word[1:].isdigit()) % 2 == 0


@pytest.fixture
def rollouts(llama: Pair) -> list[Rollout]:
    requests = [Request(f"r{i}", ids) for i, ids in enumerate(random_prompts(3, 5, 8, 4))]
    return Engine(llama, rule_named("never"), num_draft_tokens=3, max_new_tokens=CAP).rollouts(requests)


def rows_of(rollouts: list[Rollout]) -> dict[str | int, dict[str, Any]]:
    return {rollout.id: {"id": rollout.id, "gold": "x"} for rollout in rollouts}


def rows_of_prompts(prompts: list[PromptRow]) -> dict[str | int, dict[str, Any]]:
    return {row.id: row.scorer_row() for row in prompts}


def finished_text(pair: Pair, who: str, rollout: Rollout, ids: tuple[int, ...]) -> str:
    """The branch finished alone, in a batch of one."""
    model = pair.draft_alone() if who == "draft" else pair
    left = CAP - len(ids)
    more: tuple[int, ...] = ()
    if left > 0:
        request = Request("alone", rollout.prompt_ids + ids)
        more = Engine(model, rule_named("target"), max_new_tokens=left, batch_size=1).rollouts([request])[0].output_ids
    return pair.tokenizer.decode([*ids, *more], skip_special_tokens=True)


@pytest.mark.parametrize("continue_with", ["target", "draft", "either"])
def test_labels_equal_branches_decoded_one_by_one(llama: Pair, rollouts: list[Rollout], continue_with: str) -> None:
    labelled = OutcomeLabeller(llama, even, continue_with=continue_with).label(rollouts, rows_of(rollouts))
    seen = set()
    for rollout, row in zip(rollouts, labelled, strict=True):
        mismatches = [
            (b, i)
            for b, block in enumerate(rollout.blocks)
            for i, (d, t) in enumerate(zip(block.draft_ids, block.target_ids, strict=True))
            if d != t
        ]
        assert [(label.block, label.position) for label in row.labels] == mismatches
        for label in row.labels:
            block = rollout.blocks[label.block]
            before = rollout.output_ids[: block.start - len(rollout.prompt_ids)] + block.draft_ids[: label.position]
            outcome = {}
            for side, token in (("draft", block.draft_ids), ("target", block.target_ids)):
                whom = ("target", "draft") if continue_with == "either" else (continue_with,)
                ids = (*before, token[label.position])
                outcome[side] = any(even(finished_text(llama, who, rollout, ids), {}) for who in whom)
            assert (label.draft_right, label.target_right) == (outcome["draft"], outcome["target"])
            expected = None if not any(outcome.values()) else float(outcome["draft"])
            assert label.label == expected
            seen.add(expected)
    assert seen >= {0.0, 1.0}


def test_executed_scope_labels_one_mismatch_per_vanilla_block(llama: Pair, rollouts: list[Rollout]) -> None:
    labelled = OutcomeLabeller(llama, even, scope="executed").label(rollouts, rows_of(rollouts))
    assert [len(row.labels) for row in labelled] == [rollout.num_mismatches for rollout in rollouts]


def test_a_scorer_that_fails_gives_no_label_and_is_counted(llama: Pair, rollouts: list[Rollout]) -> None:
    def broken(text: str, row: Mapping[str, Any]) -> bool:
        raise RuntimeError("no scorer today")

    labelled = OutcomeLabeller(llama, broken, continue_with="target").label(rollouts, rows_of(rollouts))
    assert all(label.label is None for row in labelled for label in row.labels)
    report = complementarity(labelled)
    assert report.num_failed == sum(len(row.labels) for row in labelled) > 0
    assert report.num_mismatches == 0


def test_a_scorer_that_fails_often_stops_and_its_failures_are_made_good(
    llama: Pair, rollouts: list[Rollout], tmp_path: Path
) -> None:
    out, ill = tmp_path / "labels.jsonl", {"r0", "r1", "r2", "r3"}

    def moody(text: str, row: Mapping[str, Any]) -> bool:
        if row["id"] in ill:
            raise RuntimeError("no scorer today")
        return even(text, row)

    prompts = [PromptRow(id=rollout.id, prompt="w9", gold="x") for rollout in rollouts]
    with pytest.raises(ValueError, match=r"failed on \d+ of \d+ texts; the first time: .*no scorer today"):
        label_file(OutcomeLabeller(llama, moody), rollouts, prompts, out)
    assert not out.exists()
    broken = OutcomeLabeller(llama, moody).label(rollouts, rows_of_prompts(prompts))
    out.write_text("".join(dumps(row.to_json()) + "\n" for row in broken))
    ill.clear()
    whole = label_file(OutcomeLabeller(llama, moody), rollouts, prompts, out)
    assert not any(row.has_failures for row in whole)
    assert [labels_from_json(row) for row in read_jsonl(out)] == whole


def test_a_file_of_labels_is_resumed_not_made_again(llama: Pair, rollouts: list[Rollout], tmp_path: Path) -> None:
    out, calls = tmp_path / "labels.jsonl", []

    def counting(text: str, row: Mapping[str, Any]) -> bool:
        calls.append(row["id"])
        return even(text, row)

    prompts = [PromptRow(id=rollout.id, prompt="w9", gold="x") for rollout in rollouts]
    labeller = OutcomeLabeller(llama, counting)
    whole = label_file(labeller, rollouts, prompts, out)
    assert [labels_from_json(row) for row in read_jsonl(out)] == whole
    first = out.read_text().split("\n")[0]
    out.write_text(first + '\n{"id": "r1", "torn')
    calls.clear()
    again = label_file(labeller, rollouts, prompts, out)
    assert again == whole
    assert "r0" not in calls
    assert "r1" in calls
    other_gold = [PromptRow(id=row.id, prompt=row.prompt, gold="y") for row in prompts]
    with pytest.raises(ValueError, match="its gold answer perhaps"):
        label_file(labeller, rollouts, other_gold, out)
    with pytest.raises(ValueError, match="continue_with=either"):
        label_file(OutcomeLabeller(llama, counting, continue_with="target"), rollouts, prompts, out)
    other = Engine(llama, rule_named("never"), num_draft_tokens=2, max_new_tokens=CAP)
    others = other.rollouts([Request(rollout.id, rollout.prompt_ids) for rollout in rollouts])
    with pytest.raises(ValueError, match="labels of other rollouts"):
        label_file(labeller, others, prompts, out)
    with pytest.raises(ValueError, match="made for another rollout"):
        examples(others, whole)
    with pytest.raises(ValueError, match="scorer=other"):
        label_file(OutcomeLabeller(llama, counting, scorer_name="other"), rollouts, prompts, out)


def test_an_interrupt_loses_one_chunk_of_labels(llama: Pair, rollouts: list[Rollout], tmp_path: Path) -> None:
    out, prompts = tmp_path / "labels.jsonl", [PromptRow(id=r.id, prompt="w9", gold="x") for r in rollouts]

    def interrupted(text: str, row: Mapping[str, Any]) -> bool:
        if row["id"] == "r2":
            raise KeyboardInterrupt
        return even(text, row)

    with pytest.raises(KeyboardInterrupt):
        label_file(OutcomeLabeller(llama, interrupted), rollouts, prompts, out, chunk_size=1)
    assert [row["id"] for row in read_jsonl(out)] == ["r0", "r1"]
    whole = label_file(OutcomeLabeller(llama, even), rollouts, prompts, out, chunk_size=1)
    assert whole == label_file(OutcomeLabeller(llama, even), rollouts, prompts, tmp_path / "whole.jsonl")


def test_one_rollout_that_no_scorer_can_judge_does_not_stop_a_file_that_goes_on(
    llama: Pair, rollouts: list[Rollout], tmp_path: Path
) -> None:
    out, prompts = tmp_path / "labels.jsonl", [PromptRow(id=r.id, prompt="w9", gold="x") for r in rollouts]

    def moody(text: str, row: Mapping[str, Any]) -> bool:
        if row["id"] == "r0":
            raise RuntimeError("never")
        return even(text, row)

    for _ in range(2):
        found = label_file(OutcomeLabeller(llama, moody), rollouts, prompts, out, chunk_size=1, max_failed_share=0.5)
        assert [row.id for row in found if row.has_failures] == ["r0"]
    with pytest.raises(ValueError, match=r"the first time: .*never"):
        label_file(OutcomeLabeller(llama, moody), rollouts, prompts, out, chunk_size=1, max_failed_share=0.0)


def test_bad_choices_are_refused(llama: Pair) -> None:
    with pytest.raises(ValueError, match="continue_with is 'both'"):
        OutcomeLabeller(llama, even, continue_with="both")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="arbiter directory go together"):
        OutcomeLabeller(llama, even, continue_with="arbiter")


def test_the_report_counts_both_branches() -> None:
    outcomes = [(True, False), (False, True), (False, True), (True, True), (False, False), (None, True)]
    labels = tuple(MismatchLabel(0, i, d, t, None) for i, (d, t) in enumerate(outcomes))
    report = complementarity([RolloutLabels("a", "", "", "either", "block", "s", labels)])
    assert (report.only_draft, report.only_target, report.both, report.none, report.num_failed) == (1, 2, 1, 1, 1)
    assert sum(report.shares().values()) == pytest.approx(1.0)
