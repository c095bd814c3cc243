"""`cospec datastore build`, and `--drafter` in the commands that decode, with tiny random models on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from model_dirs import assert_refused, read_rows, run_here, run_process, write_arbiter, write_pair, write_rows

from cospec.engine.rollout_file import read_rollouts

ROWS = [
    {"id": 1, "prompt": "w9 w10 w11 w12 w9 w10", "gold": "w9"},
    {"id": 2, "prompt_ids": [1, 20, 21, 22, 20, 21], "gold": "w9"},
    {"id": 3, "prompt": "w30 w31 w30", "gold": "w9"},
]


class Files(NamedTuple):
    pair: Path
    target: Path
    rows: Path
    store: Path
    folder: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A pair, prompts, and a datastore of the target's own texts, built by real processes."""
    folder = tmp_path_factory.mktemp("drafters")
    pair, rows, store = write_pair(folder / "pair"), write_rows(folder / "rows.jsonl", ROWS), folder / "store"
    target = folder / "pair" / "target"
    rollouts = folder / "target.jsonl"
    written = ["rollout", "--target", target, "--prompts", rows, "--rule", "target", "--out", rollouts]
    run_here(*written, "--max-new-tokens", "24")
    built = run_process(
        "datastore", "build", "--rows", rollouts, "--target", target, "--out", store, "--json", cwd=folder
    )
    assert built.returncode == 0, built.stderr
    texts = [[*rollout.prompt_ids, *rollout.output_ids] for rollout in read_rollouts(rollouts)]
    assert json.loads(built.stdout) == {"out": str(store), "num_texts": 3, "num_tokens": sum(map(len, texts))}
    return Files(pair, target, rows, store, folder)


def test_a_datastores_drafts_are_the_targets_text_and_are_accepted(files: Files, tmp_path: Path) -> None:
    out, common = tmp_path / "out.jsonl", ["--prompts", files.rows, "--max-new-tokens", "24", "--target", files.target]
    spec = f"retrieval:{files.store}"
    done = run_process("rollout", *common, "--drafter", spec, "--rule", "strict", "--out", out, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["acceptance_rate"] > 0.8
    assert summary["tokens_per_round"] > 3
    found = {rollout.id: rollout for rollout in read_rollouts(out)}
    for expected in read_rollouts(files.folder / "target.jsonl"):
        assert found[expected.id].output_ids == expected.output_ids
        assert found[expected.id].settings.drafter == f"{spec},max_hits=5000,max_match=16,min_match=2"
    assert json.loads((tmp_path / "out.jsonl.made_by.json").read_text()).keys() == {
        "pair",
        "arbiter",
        "judge",
        "drafter",
        "target",
    }
    again = run_here("rollout", *common, "--drafter", f"{spec},min_match=3", "--rule", "strict", "--out", out)
    assert_refused(again, "another setting (drafter was")


@pytest.mark.parametrize("models", ["pair", "target"])
def test_generate_copies_from_the_prompt_without_a_draft_model(files: Files, models: str) -> None:
    named = {"pair": ["--pair", files.pair], "target": ["--target", files.target]}[models]
    common = ["--prompts", files.rows, "--max-new-tokens", "24"]
    plain = read_rows(run_here("generate", *common, "--target", files.target, "--rule", "target").stdout)
    found = read_rows(run_here("generate", *common, *named, "--drafter", "ngram", "--batch-size", "2").stdout)
    assert [row["output_ids"] for row in found] == [row["output_ids"] for row in plain]
    assert sum(row["num_accepted"] for row in found) > 0


def test_eval_reports_a_drafters_acceptance(files: Files, tmp_path: Path) -> None:
    common = ["--prompts", files.rows, "--target", files.target, "--max-new-tokens", "16", "--out", tmp_path / "run"]
    scored = [*common, "--scorer", "cospec.scoring.open_qa:score_open_qa", "--methods", "strict", "--json"]
    done = run_here("eval", *scored, "--drafter", "ngram:match=last")
    assert done.exit_code == 0, done.output
    settings = json.loads((tmp_path / "run" / "settings.json").read_text())
    assert settings["drafter"] == "ngram:match=last,max_match=3,min_match=1"
    assert settings["pair"]["draft"] is None
    assert_refused(run_here("eval", *scored, "--drafter", "ngram"), "drafter was 'ngram:match=last")
    assert_refused(run_here("eval", *scored), "--target is given without --draft")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "TARGET"], "a pair needs both; --target alone will do where no draft model runs: the target as"),
        (
            ["--draft", "DRAFT", "--target", "TARGET", "--drafter", "ngram"],
            "nothing here drafts with one: drop --draft",
        ),
        (["--pair", "PAIR", "--drafter", "ngram", "--rule", "target"], "--drafter is given, but nothing here drafts"),
        (["--pair", "PAIR", "--drafter", "ngram", "--cost-ratio", "0.1"], "has no draft steps whose time"),
        (["--pair", "PAIR", "--drafter", "ngram", "--cost-ratio", "auto"], "runs none: drop it"),
        (["--pair", "PAIR", "--drafter", "ngram", "--arbiter", "ARBITER"], "judges the draft model's tokens"),
        (["--pair", "PAIR", "--drafter", "ngram:copy=6"], "copies up to 6 tokens and a block holds 5"),
        (["--pair", "PAIR", "--drafter", "retrieval"], "lacks a datastore"),
        (["--pair", "PAIR", "--drafter", "suffix"], "there is no drafter 'suffix': choose one of model, ngram"),
        (["--pair", "NO_DRAFT"], "has no draft, and this needs one"),
    ],
)
def test_what_cannot_work_is_refused_by_name(files: Files, tmp_path: Path, options: list[str], message: str) -> None:
    lone = tmp_path / "lone.yaml"
    lone.write_text(f"draft: null\ntarget: {{path: {files.target}}}\n", encoding="utf-8")
    places = {"TARGET": files.target, "DRAFT": files.pair.parent / "draft", "PAIR": files.pair, "NO_DRAFT": lone}
    if "ARBITER" in options:
        places["ARBITER"] = write_arbiter(tmp_path / "arbiter", files.pair)
    assert_refused(run_here("generate", *[str(places.get(option, option)) for option in options], "w9 w10"), message)


def test_a_pair_file_without_a_draft_decodes(files: Files, tmp_path: Path) -> None:
    lone = tmp_path / "lone.yaml"
    lone.write_text(f"draft: null\ntarget: {{path: {files.target}}}\n", encoding="utf-8")
    with_file = run_here("generate", "--pair", lone, "--drafter", "ngram", "--max-new-tokens", "8", "w9 w10")
    by_option = run_here("generate", "--target", files.target, "--rule", "target", "--max-new-tokens", "8", "w9 w10")
    assert with_file.exit_code == 0, with_file.output
    assert with_file.stdout == by_option.stdout


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": 1}, "no text: a row needs text, output_ids, or a prompt"),
        ({"text": 3}, "text is a int: it must be a string"),
        ({"output_ids": [1, "2"]}, "output_ids is no list of whole numbers"),
        ({"output_ids": [1, 99999]}, "an id outside the tokenizer's"),
        ({"prompt": " ", "text": "w9"}, "the prompt is empty"),
    ],
)
def test_rows_that_are_no_texts_are_refused(files: Files, tmp_path: Path, row: dict[str, object], message: str) -> None:
    rows, store = write_rows(tmp_path / "rows.jsonl", [{"text": "w9 w10"}, row]), tmp_path / "store"
    build = ["datastore", "build", "--rows", rows, "--pair", files.pair, "--out"]
    assert_refused(run_here(*build, store), "rows.jsonl:2", message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]
    assert_refused(run_here(*build, files.store), "is there already")
