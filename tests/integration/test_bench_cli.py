"""`cospec bench` as a user meets it: what it prints and keeps, what it picks up again, what it refuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from model_dirs import ROOT, assert_refused, read_rows, run_here, write_arbiter, write_pair, write_rows

from cospec.cli.bench_options import BenchOptions
from cospec.cli.bench_prompts import load_prompts
from cospec.cli.lock import sole_writer

SHORT = ("--max-new-tokens", "6", "--num-draft-tokens", "2", "--repeats", "1")
CONTRACT = {
    "engine",
    "method",
    "batch",
    "tokens_per_s",
    "tokens_per_round",
    "share",
    "peak_mb",
    "identical_to_target",
}


class Files(NamedTuple):
    folder: Path
    pair: Path
    arbiter: Path
    prompts: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("bench")
    pair = write_pair(folder / "pair")
    rows = [{"id": i, "prompt": " ".join(f"w{9 + 3 * i + j}" for j in range(2 + 3 * i))} for i in range(4)]
    return Files(folder, pair, write_arbiter(folder / "arbiter", pair), write_rows(folder / "rows.jsonl", rows))


def bench(files: Files, *options: str | Path) -> tuple[str | Path, ...]:
    return ("bench", "--pair", files.pair, "--prompts", files.prompts, *SHORT, *options)


def of_cells(found: dict[str, Any]) -> dict[tuple[str, str, int], dict[str, Any]]:
    return {(cell["engine"], cell["method"], cell["batch"]): cell for cell in found["cells"]}


def test_the_bundled_pair_is_measured_with_the_bundled_problems() -> None:
    result = run_here("bench", "--pair", "tiny", "--num", "2", "--batch", "1", "--batch", "2", *SHORT, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {"cells", "model_limit_share", "machine"} <= found.keys()
    cells = of_cells(found)
    ours, theirs = ("target", "strict"), ("generate", "assisted")
    wanted = {("cospec", method, batch) for method in ours for batch in (1, 2)}
    assert cells.keys() == wanted | {("transformers", method, batch) for method in theirs for batch in (1, 2)}
    for cell in found["cells"]:
        assert cell.keys() >= CONTRACT
        assert len(cell["tokens_per_s"]) == 1
        assert cell["identical_to_target"] is True
        assert sum(cell["share"].values()) == pytest.approx(1)
        assert cell["share"]["arbiter"] == 0
        assert cell["overhead"] >= 1
    assert cells["cospec", "target", 1]["ratio_to_target"] == {"median": 1, "min": 1, "max": 1}
    assert (
        cells["cospec", "target", 1]["tokens_per_round"]
        == cells["transformers", "generate", 2]["tokens_per_round"]
        == 1
    )
    assert cells["cospec", "strict", 2]["tokens_per_round"] > 1
    assert cells["transformers", "assisted", 2]["tokens_per_s"] == cells["transformers", "assisted", 1]["tokens_per_s"]
    assert found["model_limit_share"] == found["limits"][0]["share"] > 0
    assert found["machine"]["threads"] == 1
    assert found["settings"]["prompts"]["tasks"]["word_problems"]["num_rows"] == 2


def test_an_arbiter_is_measured_and_the_table_says_what_numbers_mean(files: Files, tmp_path: Path) -> None:
    asked = bench(files, "--arbiter", f"sft={files.arbiter}", "--batch", "2", "--out", tmp_path / "run")
    result = run_here(*asked)
    assert result.exit_code == 0, result.output
    for part in (
        "tokens/s",
        "sft",
        "limit of strict at batch 2",
        "limit of sft at batch 2",
        "x t_A",
        "prompt by prompt",
    ):
        assert part in result.stdout
    assert "…" not in result.stdout
    found = json.loads((tmp_path / "run" / "results.json").read_text())
    cell = of_cells(found)["cospec", "sft", 2]
    assert cell["share"]["arbiter"] > 0
    assert (tmp_path / "run" / "cells.png").read_bytes().startswith(b"\x89PNG")


def test_adaptive_blocks_draft_as_much_as_pays_and_write_the_same(files: Files) -> None:
    drafts = {}
    for ratio in ("0.001", "10"):
        result = run_here(*bench(files, "--batch", "1", "--num-draft-tokens", "4", "--cost-ratio", ratio, "--json"))
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert found["settings"]["cost_ratio"] == float(ratio)
        assert of_cells(found)["cospec", "strict", 1]["identical_to_target"] is True
        drafts[ratio] = found["limits"][0]["num_drafts"]
    assert drafts["10"] <= 1 < drafts["0.001"]


def test_a_bench_goes_on_where_it_stopped(files: Files, tmp_path: Path) -> None:
    asked, out = bench(files, "--batch", "1", "--out", tmp_path / "run"), tmp_path / "run"
    assert run_here(*asked).exit_code == 0
    first = (out / "cells.jsonl").read_text()
    again = run_here(*asked, "--repeats", "3", "--json")
    assert again.exit_code == 0, again.output
    assert "cells: 1 of 3 repeats are there already, not run again" in again.stderr
    assert (out / "cells.jsonl").read_text().startswith(first)
    rows, found = read_rows((out / "cells.jsonl").read_text()), json.loads(again.stdout)
    assert [row["repeat"] for row in rows] == [0, 1, 2]
    assert all(len(cell["tokens_per_s"]) == 3 for cell in found["cells"])
    ended = run_here(*asked, "--repeats", "3", "--json")
    assert json.loads(ended.stdout) == found
    assert_refused(run_here(*asked, "--max-new-tokens", "5"), "max_new_tokens was 6, now 5")
    assert_refused(run_here(*asked, "--batch", "2"), "batches was [1], now [1, 2]")


def test_a_killed_bench_keeps_its_finished_repeats(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "run"
    asked = [str(part) for part in bench(files, "--batch", "1", "--out", out)]
    asked[asked.index("--repeats") + 1] = "500"
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cospec", *asked]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kept = out / "cells.jsonl"
    while process.poll() is None and (not kept.exists() or kept.read_bytes().count(b"\n") < 2):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    with kept.open("a") as file:
        file.write('{"repeat": ')
    num = len(read_rows("".join(kept.read_text().splitlines(keepends=True)[:-1])))
    asked[asked.index("--repeats") + 1] = str(num + 1)
    result = run_here(*asked, "--json")
    assert result.exit_code == 0, result.output
    assert f"{num} of {num + 1} repeats are there already" in result.stderr
    assert {len(cell["tokens_per_s"]) for cell in json.loads(result.stdout)["cells"]} == {num + 1}


def test_a_sweep_of_the_context_ends_with_the_pairs(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = run_here("bench", "--pair", "tiny", "--sweep", "context", *SHORT, "--out", out)
    assert result.exit_code == 0, result.output
    found = json.loads((out / "results.json").read_text())
    (sweep,) = found["sweeps"]
    last = 512 - 6
    assert [(point["at"], point["method"]) for point in sweep["points"]] == [
        (256, "target"),
        (256, "strict"),
        (last, "target"),
        (last, "strict"),
    ]
    assert f"ends at a prompt of {last} tokens instead of 8192" in sweep["clipped"]
    for point in sweep["points"]:
        assert point["batch"] == 1
        assert sum(point["parts_s"].values()) == pytest.approx(point["seconds_per_round"][0])
        assert min(point["bare_s"], point["over_bare"], *point["seconds_per_round"]) > 0
    assert (found["cells"], found["model_limit_share"]) == ([], None)
    for part in ("sweep of the context: ms of a round", f"from context 256 to {last}", sweep["clipped"]):
        assert part in result.stdout
    assert (out / "sweep_context.png").read_bytes().startswith(b"\x89PNG")


def test_a_sweep_of_the_batch_includes_arbiters(files: Files) -> None:
    asked = ("--sweep", "batch", "--sweep-to", "2", "--arbiter", f"sft={files.arbiter}", "--json")
    result = run_here(*bench(files, *asked))
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    points = {(point["method"], point["at"]): point for point in found["sweeps"][0]["points"]}
    assert points.keys() == {(method, at) for method in ("target", "strict", "sft") for at in (1, 2)}
    assert points["sft", 2]["batch"] == 2
    # Rows are copies of one prompt: what one does in a round, all do.
    assert points["sft", 1]["tokens_per_round"] == points["sft", 2]["tokens_per_round"]
    assert points["sft", 1]["arbiter_share_of_rounds"] == points["sft", 2]["arbiter_share_of_rounds"] > 0
    assert points["sft", 2]["parts_s"]["arbiter"] > 0
    line = "the plots of the sweeps are left out: add --out DIR"
    assert found["left_out"] == [line]
    assert result.stderr.startswith(f"cospec: {line}")


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--sweep", "width"], ["no sweep 'width'", "context or batch"]),
        (["--sweep", "batch", "--sweep", "batch"], ["there twice"]),
        (["--sweep", "batch", "--batch", "2"], ["takes no --batch"]),
        (["--sweep", "context", "--sweep", "batch", "--sweep-to", "9"], ["--sweep-to", "exactly one"]),
        (["--sweep-to", "9"], ["--sweep-to", "exactly one"]),
        (["--sweep", "batch", "--sweep-to", "0"], ["--sweep-to is 0"]),
        (["--sweep", "batch", "--eos-token-id", "5"], ["--eos-token-id has no place"]),
        (["--sweep", "context", "--vllm-python", sys.executable], ["--vllm-python has no place"]),
        (["--sweep", "context", "--drafter", "ngram"], ["--drafter has no place"]),
        (["--drafter", "ngram", "--drafter", "ngram:max_match=3"], ["--drafter ngram:match=first", "measured already"]),
        (["--drafter", "model"], ["--drafter model is measured already"]),
        (["--drafter", "suffix"], ["there is no drafter 'suffix'"]),
        (["--batch", "0"], ["--batch is 0"]),
        (["--batch", "2", "--batch", "2"], ["there twice"]),
        (["--batch", "5"], ["--batch 5 is more than the 4 prompts"]),
        (["--repeats", "0"], ["--repeats is 0"]),
        (["--max-new-tokens", "0"], ["--max-new-tokens is 0"]),
        (["--num-draft-tokens", "0"], ["--num-draft-tokens is 0"]),
        (["--batch", "1,8"], ["--batch", "'1,8' is no whole number", "again for each other"]),
        (["--eos-token-id", "end"], ["--eos-token-id", "'end' is no whole number"]),
        (["--cost-ratio", "0"], ["--cost-ratio is 0"]),
        (["--cost-ratio", "auto"], ["cospec generate --cost-ratio auto"]),
        (["--cost-ratio", "cheap"], ["'cheap' is no number"]),
        (["--num", "3"], ["--num is for tasks"]),
        (["--task", "word_problems"], ["--prompts", "--task", "one of the two"]),
        (["--arbiter", "nowhere"], ["no arbiter directory 'nowhere'"]),
        (["--threshold", "0.7"], ["--threshold", "--arbiter DIR"]),
        (["--vllm-python", "nowhere/python", "--batch", "1"], ["--vllm-python nowhere/python cannot be run"]),
        (["--vllm-python", sys.executable, "--batch", "1"], ["cannot import vllm"]),
        (["--vllm-option", "seed=1"], ["--vllm-option", "--vllm-python"]),
        (["--vllm-option", "seed", "--vllm-python", sys.executable], ["NAME=VALUE"]),
        (["--out", __file__], ["is a file"]),
        (["--compile", "graphs", "--device", "cpu"], ["the pair is on cpu"]),
        (["--compile", "inductor", "--packed"], ["--packed and --compile", "drop one"]),
    ],
)
def test_bad_options_are_refused_before_weights_are_read(files: Files, options: list[str], parts: list[str]) -> None:
    weights = files.pair.parent / "target" / "model.safetensors"
    hidden = weights.rename(weights.with_suffix(".hidden"))
    try:
        assert_refused(run_here(*bench(files, *options)), *parts)
    finally:
        hidden.rename(weights)


@pytest.mark.parametrize("verb", ["bench", "generate", "rollout"])
def test_a_compile_mode_that_cannot_work_is_refused_before_weights_are_read(
    files: Files, tmp_path: Path, verb: str
) -> None:
    weights = files.pair.parent / "target" / "model.safetensors"
    hidden = weights.rename(weights.with_suffix(".hidden"))
    asked = [verb, "--pair", files.pair, "--prompts", files.prompts, "--compile", "graphs", "--device", "cpu"]
    try:
        out = [] if verb == "generate" else ["--out", tmp_path / "out"]
        assert_refused(run_here(*asked, *out), "the pair is on cpu: use 'inductor'")
    finally:
        hidden.rename(weights)
    assert not (tmp_path / "out").exists()


def test_a_bench_that_measured_nothing_leaves_its_directory_to_other_settings(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert_refused(run_here(*bench(files, "--batch", "1", "--max-new-tokens", "158", "--out", out)), "must fit behind")
    result = run_here(*bench(files, "--batch", "1", "--out", out))
    assert result.exit_code == 0, result.output


def test_a_second_bench_on_one_directory_is_refused(files: Files, tmp_path: Path) -> None:
    with sole_writer(tmp_path / "run"):
        result = run_here(*bench(files, "--batch", "1", "--out", tmp_path / "run"))
    assert_refused(result, f"process {os.getpid()} on", "is writing to", "name another --out")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


def test_a_number_for_one_task_leaves_the_default_to_the_others(files: Files) -> None:
    data = [{"Body": "Tom has 2 pens.", "Question": f"And {i}?", "ID": str(i), "Answer": 3.0} for i in range(12)]
    svamp = write_rows(files.folder / "svamp.jsonl", data)
    given = {"raw": True, "task": ["word_problems", "svamp"], "data": [f"svamp={svamp}"], "num": ["word_problems=2"]}
    rows, described = load_prompts(BenchOptions(**dict.fromkeys(BenchOptions.__slots__) | given))
    assert [info["num_rows"] for info in described["tasks"].values()] == [2, 8]
    assert len(rows) == 10


def test_prompts_must_come_from_somewhere(files: Files, tmp_path: Path) -> None:
    assert_refused(run_here("bench", "--pair", files.pair), "no prompts given", "--task NAME")
    empty = write_rows(tmp_path / "empty.jsonl", [])
    assert_refused(run_here("bench", "--pair", files.pair, "--prompts", empty), "no rows")
    assert_refused(run_here("bench", "--pair", "tiny", "--num", "0"), "--num is 0")
    assert_refused(run_here("bench", "--prompts", files.prompts), "no models given")


def test_prompts_that_do_not_fit_are_refused(files: Files) -> None:
    result = run_here(*bench(files, "--batch", "1", "--max-new-tokens", "158"))
    assert_refused(result, "prompt 0 has", "158 must fit behind it (the text)", "context holds 160")


def test_an_arbiter_of_another_pair_is_refused(files: Files, tmp_path: Path) -> None:
    other = write_pair(tmp_path / "other", seed=9)
    asked = ("--prompts", files.prompts, "--batch", "1", "--arbiter", files.arbiter)
    assert_refused(run_here("bench", "--pair", other, *asked), "made for another pair", "other weights")
    asked = ("--batch", "1", "--num", "1", "--arbiter", files.arbiter)
    assert_refused(run_here("bench", "--pair", "tiny", *asked), "made for another pair", "another tokenizer")
