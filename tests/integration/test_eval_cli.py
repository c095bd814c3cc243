"""`cospec eval` on tiny random models: the record it leaves, what it picks up again and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from model_dirs import assert_refused, read_rows, run_here, run_process, write_arbiter, write_pair, write_rows

from cospec.scoring.code import isolation_here

SCORER = """
def score(text, row):
    if row["id"] == 5:
        raise RuntimeError("scorer is ill")
    return sum(map(ord, text)) % 2 == int(row["gold"])
"""


class Files(NamedTuple):
    folder: Path
    arguments: tuple[str, ...]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("eval")
    pair = write_pair(folder / "pair")
    write_arbiter(folder / "arbiter", pair)
    (folder / "parity_scorer.py").write_text(SCORER)
    rows = [{"id": i, "prompt": f"w{9 + i} w{30 - i}", "gold": i % 2} for i in range(12)]
    write_rows(folder / "rows.jsonl", rows)
    common = ("eval", "--pair", str(pair), "--prompts", str(folder / "rows.jsonl"), "--max-new-tokens", "16")
    return Files(folder, (*common, "--arbiter", f"sft={folder / 'arbiter'}"))


def test_an_evaluation_leaves_its_record(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = ("--methods", "draft,strict,always", "--out", str(out), "--scorer", "parity_scorer:score")
    asked += ("--max-failed-share", "0.1")
    first = run_process(*files.arguments, *asked, "--plot", str(tmp_path / "plot.png"), "--json", cwd=files.folder)
    assert first.returncode == 0, first.stderr
    found = json.loads(first.stdout)
    assert json.loads((out / "results.json").read_text()) == found
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert list(found["methods"]) == ["target", "draft", "strict", "always", "sft"]
    assert (found["n"], found["k"]) == (12, 5)
    for name in ("recovered_share", "lost_share", "solved_by_neither_alone", "mcnemar_p"):
        assert list(found[name]) == ["sft"]
    methods = found["methods"]
    assert all((method["num"], method["num_failed"]) == (11, 1) for method in methods.values())
    assert methods["draft"]["target_passes_per_token"] is None
    assert methods["target"]["target_passes_per_token"] == 1
    assert methods["target"]["timing"]["speed_ratio"] == 1
    assert methods["strict"]["right"] == methods["target"]["right"]
    assert methods["always"]["right"] == methods["draft"]["right"]
    assert methods["always"]["tokens_per_round"] > methods["strict"]["tokens_per_round"] > 1
    assert methods["sft"]["mean_reward"] is not None
    assert "mean_reward" not in methods["strict"]
    samples = read_rows((out / "samples.jsonl").read_text())
    order = [(name, index) for name in methods for index in range(12)]
    assert [(sample["method"], sample["id"]) for sample in samples] == order
    settings = json.loads((out / "settings.json").read_text())
    assert settings == found["settings"]
    assert {"pair", "device", "dtype", "attn", "batch_size", "num_draft_tokens", "seed", "repeats"} <= settings.keys()
    assert settings["tasks"]["rows"].keys() == {
        "scorer",
        "scorer_digest",
        "file",
        "num_problems",
        "problems_digest",
        "prompt_digest",
        "raw",
    }
    assert {"python", "packages", "git", "machine"} == settings["environments"][0].keys()


def test_methods_and_tasks_can_be_added_to_a_run(files: Files, tmp_path: Path) -> None:
    pair = (
        "eval",
        "--pair",
        files.arguments[2],
        "--max-new-tokens",
        "4",
        "--num",
        "3",
        "--raw",
        "--out",
        tmp_path / "a",
    )
    first = run_here(*pair, "--task", "word_problems", "--methods", "target", "--json")
    assert first.exit_code == 0, first.output
    more = ("--task", "word_problems", "--task", "word_problems@train", "--methods", "strict")
    second = run_here(*pair, *more)
    assert second.exit_code == 0, second.output
    assert "target on word_problems: 3 of 3 samples are there already, not run again" in second.stderr
    for part in ("word_problems: 3 problems", "word_problems@train: 3 problems", "mean of 2 tasks", "p adj."):
        assert part in second.stdout
    found = json.loads((tmp_path / "a" / "results.json").read_text())
    assert list(found["tasks"]) == list(found["settings"]["tasks"]) == ["word_problems", "word_problems@train"]
    assert (found["n"], found["macro"]["num_tasks"]) == (6, 2)
    assert found["settings"]["tasks"]["word_problems@train"]["split"] == "train"
    digests = {task["prompt_digest"] for task in found["settings"]["tasks"].values()}
    assert len(digests) == 2
    assert len(read_rows((tmp_path / "a" / "samples.jsonl").read_text())) == 12


def test_a_number_for_one_task_goes_before_the_number_for_all(files: Files) -> None:
    tasks = ("--task", "word_problems", "--task", "reasoning_gym:chain_sum", "--num", "reasoning_gym=1", "--num", "2")
    result = run_here("eval", *files.arguments[1:3], *tasks, "--max-new-tokens", "2", "--raw", "--json")
    assert result.exit_code == 0, result.output
    assert [task["n"] for task in json.loads(result.stdout)["tasks"].values()] == [2, 1]


def test_two_runs_are_compared_problem_by_problem(files: Files, tmp_path: Path) -> None:
    pair = ("eval", "--pair", files.arguments[2], "--prompts", files.folder / "rows.jsonl", "--scorer", "exact")
    old, new, other = tmp_path / "old", tmp_path / "new", tmp_path / "other"
    assert run_here(*pair, "--methods", "draft", "--max-new-tokens", "8", "--out", old).exit_code == 0
    again = run_here(*pair, "--methods", "strict", "--max-new-tokens", "16", "--out", new, "--against", old, "--json")
    assert again.exit_code == 0, again.output
    found = json.loads(again.stdout)["against"]
    assert found == json.loads((new / "against.json").read_text())
    assert list(found["tasks"]["rows"]) == ["target"]
    assert found["tasks"]["rows"]["target"]["p"] == found["tasks"]["rows"]["target"]["p_adjusted"] == 1
    assert found["tasks"]["rows"]["target"]["length_ratio"] == 2
    assert "max_new_tokens was 8, now 16" in found["differences"]
    assert found["left_out"] == ["method 'draft' on task 'rows'", "method 'strict' on task 'rows'"]
    finished = run_here("eval", "--against", old / "results.json", "--out", new)
    assert finished.exit_code == 0, finished.output
    assert "rows: " in finished.stdout
    assert "only in one run: method 'draft'" in finished.stdout

    rows = write_rows(tmp_path / "rows.jsonl", [{"id": 0, "prompt": "w9", "gold": "1"}])
    changed = ("eval", "--pair", files.arguments[2], "--prompts", rows, "--scorer", "exact", "--methods", "target")
    assert run_here(*changed, "--max-new-tokens", "8", "--out", other).exit_code == 0
    by_file = run_here("eval", "--against", old, "--out", new / "results.json")
    assert by_file.exit_code == 0, by_file.output
    assert_refused(run_here("eval", "--against", old / "results.json", "--out", old), "no difference from itself")
    itself = run_here(*pair, "--methods", "strict", "--out", new, "--against", new)
    assert_refused(itself, "no difference from itself")
    refused = run_here("eval", "--against", old, "--out", other)
    assert_refused(refused, "'rows' does not have the same problems", "num_problems was 12, now 1")
    assert_refused(run_here("eval", "--against", old, "--out", tmp_path / "nowhere"), "nowhere does not exist")
    assert_refused(run_here("eval", "--against", old, "--out", new, "--seed", "3"), "--seed has no place")
    assert_refused(run_here("eval", "--against", old), "name the other one with --out")
    for margin in ("7", "0", "nan"):
        assert_refused(run_here("eval", "--against", old, "--out", new, "--margin", margin), "--margin is", "share")


def test_a_scorer_that_fails_too_often_stops_the_run_and_new_verdicts_cost_no_decoding(
    files: Files, tmp_path: Path
) -> None:
    write_rows(tmp_path / "rows.jsonl", [{"id": i, "prompt": f"w{9 + i}", "gold": "1"} for i in range(30)])
    (tmp_path / "mended.py").write_text("def score(text, row):\n    return None\n")
    asked = ("eval", "--pair", files.arguments[2], "--prompts", "rows.jsonl", "--scorer", "mended:score")
    asked += ("--methods", "target", "--max-new-tokens", "4", "--out", "run")
    first = run_process(*asked, cwd=tmp_path)
    assert first.returncode == 2
    for part in ("failed on 20 of 20 samples under method 'target'", "20 error", "--max-failed-share", "kept: all"):
        assert part in first.stderr
    before = read_rows((tmp_path / "run" / "samples.jsonl").read_text())
    assert len(before) == 20
    (tmp_path / "mended.py").write_text("def score(text, row):\n    return row['id'] < 10\n")
    refused = run_process(*asked, cwd=tmp_path)
    assert refused.returncode == 2
    assert "judged by another scorer (rows.scorer_digest was" in refused.stderr
    assert read_rows((tmp_path / "run" / "samples.jsonl").read_text()) == before
    second = run_process(*asked, "--rescore", "--json", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["methods"]["target"]["right"] == 10
    after = {row["id"]: row for row in read_rows((tmp_path / "run" / "samples.jsonl").read_text())}
    assert len(after) == 30
    assert all(after[row["id"]]["timing"] == row["timing"] for row in before)


def test_problems_that_were_trained_on_are_named(files: Files, tmp_path: Path) -> None:
    pytest.importorskip("cospec.evaluation.contamination")
    train = write_rows(tmp_path / "train.jsonl", [{"prompt": "w9 w30"}, {"prompt": "W11  w28"}, {"prompt": "w9"}])
    asked = ("--methods", "target", "--scorer", "exact", "--max-new-tokens", "4", "--train-prompts", train, "--json")
    result = run_here(*files.arguments[:5], *asked)
    assert result.exit_code == 0, result.output
    assert "warning: 2 of 12 problems of rows are among the training prompts" in result.stderr
    assert json.loads(result.stdout)["contamination"]["rows"]["exact_ids"] == [0, 2]


def test_programs_are_run_with_consent_only(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cospec.scoring.code")
    # Set, so that what the command does to it is undone.
    monkeypatch.setenv("COSPEC_ALLOW_CODE_EXECUTION", "0")
    rows = [{"id": i, "prompt": f"w{9 + i}", "gold": "-", "tests": "assert True", "code_prompt": ""} for i in range(3)]
    pair = ("eval", "--pair", files.arguments[2], "--prompts", write_rows(tmp_path / "rows.jsonl", rows))
    asked = ("--methods", "target", "--scorer", "code", "--max-new-tokens", "4", "--workers", "2", "--json")
    assert_refused(run_here(*pair, *asked), "--confirm-run-unsafe-code")
    nothing_to_run = (*files.arguments, "--scorer", "exact", "--methods", "target", "--confirm-run-unsafe-code")
    assert_refused(run_here(*nothing_to_run), "--confirm-run-unsafe-code", "no task here")
    monkeypatch.setenv("COSPEC_ALLOW_CODE_EXECUTION", "0")
    asked = tuple("humaneval" if word == "code" else word for word in asked)
    assert_refused(run_here(*pair, *asked), "--confirm-run-unsafe-code")
    result = run_here(*pair, *asked, "--confirm-run-unsafe-code", "--max-failed-share", "1")
    assert result.exit_code == 0, result.output
    assert "generated programs run under isolation" in result.stderr
    assert "level" in json.loads(result.stdout)["settings"]["tasks"]["rows"]["isolation"]


@pytest.mark.parametrize("verb", ["eval", "sweep", "tune"])
def test_programs_are_not_run_in_less_isolation_than_is_asked_for(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("COSPEC_ALLOW_CODE_EXECUTION", "0")
    monkeypatch.setattr("cospec.scoring.code.isolation_here", lambda: isolation_here(()))
    rows = [{"id": 1, "prompt": "w9", "gold": "-", "tests": "assert True", "code_prompt": ""}]
    # There are no models to be loaded.
    pair = (verb, "--draft", tmp_path / "none", "--target", tmp_path / "none", "--minimum-isolation", "contained")
    asked = (*pair, *(("--rule", "strict", "--out", tmp_path / "run") if verb == "sweep" else ()))
    programs = (*asked, "--prompts", write_rows(tmp_path / "rows.jsonl", rows), "--scorer", "code")
    refused = run_here(*programs, "--confirm-run-unsafe-code")
    assert_refused(refused, "isolation level 'contained' is asked for")
    answers = (*asked, "--prompts", files.arguments[4], "--scorer", "exact")
    assert_refused(run_here(*answers), "--minimum-isolation is for the scorer 'code'", "drop it")


def test_a_run_under_other_settings_is_not_mixed_in(files: Files, tmp_path: Path) -> None:
    asked = ("--methods", "target", "--out", str(tmp_path / "run"), "--scorer", "exact")
    assert run_here(*files.arguments, *asked).exit_code == 0
    written = (tmp_path / "run" / "samples.jsonl").read_text()
    assert_refused(run_here(*files.arguments, *asked, "--num-draft-tokens", "3"), "num_draft_tokens was 5, now 3")
    assert_refused(run_here(*files.arguments, *asked, "--threshold", "0.9"), "sft.threshold was 0.5, now 0.9")
    assert (tmp_path / "run" / "samples.jsonl").read_text() == written


def test_the_bundled_problems_come_from_the_seed(files: Files, tmp_path: Path) -> None:
    pair = ("eval", "--pair", files.arguments[2], "--task", "word_problems", "--num", "3", "--max-new-tokens", "4")
    result = run_here(*pair, "--methods", "target", "--seed", "3", "--raw", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["n"], found["methods"]["target"]["right"]) == (3, 0)
    task = found["settings"]["tasks"]["word_problems"]
    assert (task["scorer"], task["num_rows"], task["seed"], task["chat"]) == ("word_problems", 3, 3, False)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--scorer", "exact", "--methods", "target,lenient"], ["no method 'lenient'"]),
        (["--scorer", "exact", "--methods", "strict,cactus,delta=0.25"], ["write cactus:delta=0.25"]),
        (["--scorer", "exact", "--methods", ""], ["--methods ''", "empty name"]),
        (["--scorer", "exact", "--methods", "strict,,draft"], ["empty name"]),
        (["--scorer", "exact", "--methods", "strict, strict"], ["names strict twice"]),
        (["--scorer", "exact", "--plot", __file__], ["ends in .png"]),
        (["--scorer", "exact", "--methods", "arbiter"], ["--arbiter DIR"]),
        (["--scorer", "exakt"], ["unknown scorer 'exakt'", "'exact'"]),
        ([], ["no scorer", "--scorer NAME"]),
        (["--scorer", "exact", "--num", "3"], ["--num"]),
        (["--scorer", "exact", "--task", "word_problems"], ["--prompts", "--task"]),
        (["--scorer", "exact", "--num-draft-tokens", "-1"], ["--num-draft-tokens is -1"]),
        (["--scorer", "exact", "--arbiter", "sft=nowhere"], ["'sft'", "NAME=nowhere"]),
        (["--scorer", "exact", "--arbiter", "nowhere"], ["no arbiter directory 'nowhere'"]),
        (["--scorer", "exact", "--shots", "2"], ["--shots", "--task"]),
        (["--scorer", "exact", "--repeats", "3"], ["--repeats 3 at temperature 0"]),
        (["--scorer", "exact", "--margin", "2"], ["--margin is 2"]),
        (["--scorer", "exact", "--workers", "4"], ["--workers 4", "no task here"]),
        (["--scorer", "exact", "--rescore"], ["--rescore", "--out"]),
        (["--scorer", "exact", "--keep-rollouts"], ["--keep-rollouts", "--out"]),
        (["--scorer", "exact", "--against", "nowhere"], ["nowhere does not exist"]),
    ],
)
def test_bad_options_are_refused_by_name(files: Files, options: list[str], parts: list[str]) -> None:
    assert_refused(run_here(*files.arguments, *options), *parts)


def test_a_row_without_gold_is_refused(files: Files, tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": 1, "prompt": "w9", "gold": "1"}, {"id": 2, "prompt": "w9"}])
    result = run_here("eval", "--pair", files.arguments[2], "--prompts", rows, "--scorer", "exact")
    assert_refused(result, "rows.jsonl:2", "gold")


def test_an_arbiter_of_another_pair_is_refused(files: Files, tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "other", seed=9)
    options = ("--scorer", "exact", "--methods", "target", "--arbiter", files.folder / "arbiter")
    result = run_here("eval", "--pair", pair, "--prompts", files.folder / "rows.jsonl", *options)
    assert_refused(result, "made for another pair", "other weights")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--task", "word_problem"], ["unknown task 'word_problem'"]),
        (["--task", "word_problems@"], ["NAME@SPLIT"]),
        (["--task", "word_problems", "--num", "0"], ["--num is 0"]),
        (["--task", "word_problems", "--num", "gsm8k=3"], ["--num gsm8k=3", "none of the tasks word_problems"]),
        (["--task", "word_problems", "--num", "3", "--num", "4"], ["--num 4", "another --num for word_problems"]),
        (["--task", "word_problems", "--data", "gsm8k=x"], ["--data gsm8k=x", "none of the tasks word_problems"]),
        (["--task", "word_problems", "--task", "word_problems@train", "--scorer", "exact"], ["--scorer", "one by one"]),
        (["--task", "word_problems", "--oracle-branch", "3"], ["--oracle-branch", "--arbiter DIR"]),
        ([], ["--prompts", "--task"]),
    ],
)
def test_bad_task_options_are_refused_by_name(files: Files, options: list[str], parts: list[str]) -> None:
    assert_refused(run_here("eval", "--pair", files.arguments[2], *options), *parts)
