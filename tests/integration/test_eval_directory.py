"""The run directory of `cospec eval`: whose it is, and what is found before anything is decoded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from model_dirs import ROOT, assert_refused, read_rows, run_here, write_arbiter, write_pair, write_rows

from cospec.cli.lock import sole_writer

ASKED = ("--max-new-tokens", "6", "--batch-size", "4")


class Files(NamedTuple):
    folder: Path
    pair: Path
    rows: Path
    run: Path

    @property
    def asked(self) -> tuple[str | Path, ...]:
        return ("eval", "--pair", self.pair, "--prompts", self.rows, *ASKED, "--scorer", "exact", "--methods", "strict")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("eval")
    pair = write_pair(folder / "pair")
    write_arbiter(folder / "arbiter", pair)
    rows = write_rows(
        folder / "rows.jsonl", [{"id": i, "prompt": f"w{9 + i} w{30 - i}", "gold": "1"} for i in range(6)]
    )
    found = Files(folder, pair, rows, folder / "run")
    result = run_here(*found.asked, "--out", found.run)
    assert result.exit_code == 0, result.output
    return found


def copied(files: Files, folder: Path) -> Path:
    """The finished run once more, to be damaged."""
    (folder / "run").mkdir()
    for name in ("settings.json", "samples.jsonl", "results.json"):
        (folder / "run" / name).write_bytes((files.run / name).read_bytes())
    return folder / "run"


def edit(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    rows = read_rows(path.read_text())
    change(rows)
    write_rows(path, rows)


@pytest.fixture
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading weights fails the test: what is refused is refused before."""

    def refuse(*arguments: object) -> None:
        raise AssertionError("models were loaded")

    monkeypatch.setattr("cospec.cli.loading.load_pair_from_options", refuse)


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda rows: rows.append(rows[0] | {"task": "zzz"}), "samples.jsonl:13: a sample of task 'zzz'"),
        (lambda rows: rows.append(rows[0] | {"method": "zzz"}), "samples.jsonl:13: a sample of method 'zzz'"),
        (lambda rows: rows.append(rows[0] | {"id": "zzz"}), "samples.jsonl:13: a sample of problem 'zzz'"),
        (lambda rows: rows.append(rows[0] | {"repeat": 7}), "samples.jsonl:13: a sample of repeat 7"),
        (lambda rows: rows.append(rows[3]), "is in line 4 already"),
        (lambda rows: rows[0].update(num_tokens="x"), "samples.jsonl:1: sample 0 is damaged: num_tokens is 'x'"),
        (lambda rows: rows[0].update(verdict="banana"), "verdict is 'banana'"),
        (lambda rows: rows[0].update(id=["a"]), "id is ('a',)"),
        (lambda rows: rows[0].update(id={"a": 1}), "id is {'a': 1}"),
        (lambda rows: rows[0].update(output_ids=[1, "2"]), "output_ids is (1, '2')"),
        (lambda rows: rows[0].update(timing=[1]), "of another version"),
        (lambda rows: rows[0]["timing"].update(draft_s=None), "draft_s is None"),
    ],
)
def test_rows_that_are_not_the_runs_own_are_found_before_anything_is_decoded(
    files: Files, tmp_path: Path, change: Callable[[list[dict[str, Any]]], None], part: str
) -> None:
    run = copied(files, tmp_path)
    edit(run / "samples.jsonl", change)
    written = (run / "samples.jsonl").read_text()
    assert_refused(run_here(*files.asked, "--out", run), part)
    assert_refused(run_here(*files.asked, "--out", run, "--rescore"), part)
    assert (run / "samples.jsonl").read_text() == written


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize(
    "text",
    [
        '{"tasks": {',
        "",
        "[]",
        "{}",
        '{"tasks": null, "methods": {}}',
        "\udcff",
        '{"tasks": {}, "methods": []}',
        '{"tasks": {}, "methods": {}, "environments": {}}',
    ],
)
def test_damaged_settings_are_refused_by_name(files: Files, tmp_path: Path, text: str) -> None:
    run = copied(files, tmp_path)
    (run / "settings.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    assert_refused(run_here(*files.asked, "--out", run), "run/settings.json", "restore it")
    assert_refused(run_here("eval", "--out", files.run, "--against", run), "run/settings.json", "restore it")


@pytest.mark.usefixtures("no_models")
def test_other_settings_are_refused_before_models_are_loaded(files: Files) -> None:
    for options, part in ((("--seed", "1"), "seed was 0, now 1"), (("--raw",), "rows.raw was False, now True")):
        assert_refused(run_here(*files.asked, "--out", files.run, *options), part)


def test_a_run_of_an_earlier_version_goes_on(files: Files, tmp_path: Path) -> None:
    run = copied(files, tmp_path)
    settings = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(
        json.dumps({k: v for k, v in settings.items() if k not in ("stop", "cost_ratio", "packed")})
    )
    for out in ((), ("--out", run)):
        again = run_here(*files.asked, *out, "--against", files.run, "--json")
        assert again.exit_code == 0, again.output
        assert json.loads(again.stdout)["against"]["differences"] == []
    assert json.loads((run / "settings.json").read_text()) == settings
    assert_refused(run_here(*files.asked, "--out", run, "--stop", "w9"), "stop was [], now ['w9']")


def test_a_run_that_went_on_under_another_revision_was_on_one_machine(files: Files, tmp_path: Path) -> None:
    run = copied(files, tmp_path)
    settings = json.loads((run / "settings.json").read_text())
    settings["environments"].append(settings["environments"][0] | {"git": {"revision": "other", "diff_digest": None}})
    (run / "settings.json").write_text(json.dumps(settings))
    result = run_here("eval", "--out", files.run, "--against", run, "--json")
    found = json.loads(result.stdout)
    assert [line.split()[0] for line in found["differences"]] == ["git"]
    assert found["tasks"]["rows"]["strict"]["timing"] is not None


def test_a_second_process_on_one_directory_is_refused(files: Files, tmp_path: Path) -> None:
    hold = "import sys, pathlib\nfrom cospec.cli.lock import sole_writer\n"
    hold += "with sole_writer(pathlib.Path('run')): print(1, flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", hold],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    asked = (*files.asked, "--out", tmp_path / "run")
    assert_refused(run_here(*asked), f"process {process.pid} on", "is writing to", "name another --out")
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    process.kill()
    process.communicate()
    with sole_writer(tmp_path / "run"):
        pass
    assert run_here(*asked).exit_code == 0


def test_an_arbiter_is_the_same_however_its_path_is_spelt(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = copied(files, tmp_path)
    monkeypatch.chdir(files.folder)
    for spelt in ("arbiter", "./arbiter", files.folder / "arbiter"):
        result = run_here(*files.asked, "--out", run, "--arbiter", f"a={spelt}")
        assert result.exit_code == 0, result.output
    assert json.loads((run / "settings.json").read_text())["methods"]["a"]["arbiter"] == str(files.folder / "arbiter")


def test_new_verdicts_are_for_the_oracle_too(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "oracle_scorer.py").write_text("def score(text, row): return True\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = (*files.asked[:5], *ASKED, "--scorer", "oracle_scorer:score", "--arbiter", f"a={files.folder / 'arbiter'}")
    asked += ("--out", "run", "--oracle-branch", "4", "--json")
    first = run_here(*asked)
    assert first.exit_code == 0, first.output
    found = json.loads(first.stdout)["tasks"]["rows"]["oracle_branch"]["a"]
    assert found["both"] == found["num_decisions"] > 0
    rollouts = [path.read_text() for path in Path("run/oracle").glob("*.rollouts.jsonl")]
    (tmp_path / "oracle_scorer.py").write_text("def score(text, row): return False  # now\n")
    del sys.modules["oracle_scorer"]
    assert_refused(run_here(*asked), "judged by another scorer", "add --rescore")
    again = run_here(*asked, "--rescore")
    assert again.exit_code == 0, again.output
    found = json.loads(again.stdout)["tasks"]["rows"]["oracle_branch"]["a"]
    assert found["none"] == found["num_decisions"] > 0
    assert rollouts == [path.read_text() for path in Path("run/oracle").glob("*.rollouts.jsonl")]
    assert run_here(*asked).exit_code == 0


@pytest.mark.usefixtures("no_models")
def test_what_ends_in_a_comparison_or_a_plot_is_checked_first(files: Files, tmp_path: Path) -> None:
    other = copied(files, tmp_path)
    assert_refused(run_here(*files.asked, "--plot", tmp_path), f"--plot {tmp_path}")
    assert_refused(run_here(*files.asked, "--plot", files.rows / "x.png"), "cannot be written")
    assert_refused(
        run_here(
            *files.asked[:4],
            write_rows(tmp_path / "rows.jsonl", [{"id": 1, "prompt": "w9", "gold": "1"}]),
            *files.asked[5:],
            "--against",
            other,
        ),
        "'rows' does not have the same problems",
    )
    edit(other / "samples.jsonl", lambda rows: rows.pop())
    assert_refused(run_here(*files.asked, "--against", other), "holds 5 of 6 samples of method 'strict'")
    assert_refused(run_here("eval", "--out", other, "--against", files.run), "holds 5 of 6 samples of method 'strict'")
    assert_refused(run_here("eval", "--out", files.run, "--against", other), "holds 5 of 6 samples of method 'strict'")
    edit(other / "samples.jsonl", lambda rows: rows.clear())
    assert_refused(run_here(*files.asked, "--against", other), "share no method")


@pytest.mark.usefixtures("no_models")
@pytest.mark.parametrize(
    ("options", "part"),
    [
        (
            ("--methods", "target,draft", "--bonus", "target"),
            "--bonus is given, but nothing here drafts (target, draft)",
        ),
        (("--methods", "target", "--cost-ratio", "0.1"), "--cost-ratio is given"),
        (("--top-k", "5"), "--top-k chooses among tokens"),
        (("--top-p", "0.5"), "--top-p chooses"),
        (("--min-p", "0.5"), "--min-p chooses"),
    ],
)
def test_options_without_effect_are_refused(files: Files, options: tuple[str, ...], part: str) -> None:
    assert_refused(run_here(*files.asked, *options), part)


def test_a_full_disk_keeps_what_was_written(files: Files, tmp_path: Path) -> None:
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
    limited += "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nfrom cospec.cli.main import run; run()"
    asked = [str(part) for part in (*files.asked, "--out", "run", "--keep-rollouts")]
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", limited, *asked], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("cospec: error: [Errno 27]")
    assert "kept: all finished samples in run" in done.stderr
    assert "Traceback" not in done.stderr
    result = run_here(*files.asked, "--out", tmp_path / "run", "--keep-rollouts")
    assert result.exit_code == 0, result.output
    assert "samples are there already" in result.stderr
