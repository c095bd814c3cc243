"""`cospec eval` on tiny random models: the record it leaves, what it picks up again and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from model_dirs import assert_refused, read_rows, run_here, run_process, write_arbiter, write_pair, write_rows

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


def test_an_evaluation_leaves_its_record_and_goes_on_after_a_stop(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = ("--methods", "draft,strict,always", "--out", str(out), "--scorer", "parity_scorer:score")
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
    assert methods["strict"]["right"] == methods["target"]["right"]
    assert methods["always"]["right"] == methods["draft"]["right"]
    assert methods["always"]["tokens_per_round"] > methods["strict"]["tokens_per_round"] > 1
    assert methods["sft"]["mean_reward"] is not None
    assert "mean_reward" not in methods["strict"]
    samples = read_rows((out / "samples.jsonl").read_text())
    assert len({(sample["method"], sample["id"]) for sample in samples}) == len(samples) == 60

    cut = [json.dumps(sample) for sample in samples if sample["method"] != "sft"]
    rest = [json.dumps(sample) for sample in samples if sample["method"] == "sft"]
    (out / "samples.jsonl").write_text("\n".join([*cut, *rest[:4]]) + "\n" + rest[4][:30])
    second = run_process(*files.arguments, *asked, "--json", cwd=files.folder)
    assert second.returncode == 0, second.stderr
    assert "strict: 12 of 12 samples are there already, not run again" in second.stderr
    assert "sft: 4 of 12 samples are there already, goes on" in second.stderr
    timed = ("tokens_per_s", "speed_ratio")
    for name, method in json.loads(second.stdout)["methods"].items():
        assert {key: method[key] for key in method if key not in timed} == {
            key: methods[name][key] for key in methods[name] if key not in timed
        }


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
    assert found["settings"]["scorer"] == "word_problems"


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--scorer", "exact", "--methods", "target,lenient"], ["no method 'lenient'"]),
        (["--scorer", "exact", "--methods", "arbiter"], ["--arbiter DIR"]),
        (["--scorer", "exakt"], ["unknown scorer 'exakt'", "'exact'"]),
        ([], ["no scorer", "--scorer NAME"]),
        (["--scorer", "exact", "--num", "3"], ["--num"]),
        (["--scorer", "exact", "--task", "word_problems"], ["--prompts", "--task"]),
        (["--scorer", "exact", "--num-draft-tokens", "-1"], ["--num-draft-tokens is -1"]),
        (["--scorer", "exact", "--arbiter", "sft=nowhere"], ["'sft'", "NAME=nowhere"]),
        (["--scorer", "exact", "--arbiter", "nowhere"], ["no arbiter directory 'nowhere'"]),
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
