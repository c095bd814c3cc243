"""`cospec report` on what the other commands leave behind, with tiny random models."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from model_dirs import assert_refused, run_here, run_process, write_arbiter, write_pair, write_rows

pytest.importorskip("matplotlib", reason="the report needs the extra report")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of `cospec eval` with all it can keep: rollouts, and both branches of an arbiter's decisions."""
    folder = tmp_path_factory.mktemp("report")
    pair = write_pair(folder / "pair")
    write_arbiter(folder / "arbiter", pair)
    rows = [{"id": i, "prompt": f"w{9 + i} w{30 - i}", "gold": f"w{9 + i}"} for i in range(8)]
    write_rows(folder / "rows.jsonl", rows)
    result = run_here(
        *("eval", "--pair", pair, "--prompts", folder / "rows.jsonl", "--max-new-tokens", "16", "--scorer", "exact"),
        *("--arbiter", f"mine={folder / 'arbiter'}", "--methods", "draft,strict", "--out", folder / "run"),
        *("--keep-rollouts", "--oracle-branch", "3"),
    )
    assert result.exit_code == 0, result.output
    return folder


def test_a_run_becomes_a_page(run: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in (run / "run").rglob("*") if path.is_file()}
    done = run_process("report", run / "run", "--out", tmp_path / "out", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = json.loads(done.stdout)
    assert written["page"] == str(tmp_path / "out" / "report.html")
    assert written["notes"] == []
    assert "found evaluation run: 4 methods on 8 problems" in done.stderr
    assert "found rollout records run: rows/mine" in done.stderr
    assert "found rollout records run, oracle branch: rows/mine" in done.stderr
    for name in written["charts"]:
        assert (tmp_path / "out" / name).read_bytes().startswith(b"\x89PNG")
    wanted = {"acceptance.png", "risk.png", "run_accuracy_speed.png", "run_accuracy_tokens_per_round.png"}
    assert set(written["charts"]) == wanted
    html = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    # The texts are those of the pair's tokenizer, and the verdicts those of the evaluation.
    assert re.search(r"w\d+ w\d+", html)
    assert "⟨" not in html
    assert "Rule arbiter: 8 rollouts, 8 of them with a verdict" in html
    assert "Without a decision, and so not shown: run: rows/draft, run: rows/target." in html
    assert before == {path: path.read_bytes() for path in (run / "run").rglob("*") if path.is_file()}


def test_loose_records_are_scored_with_their_prompts(run: Path, tmp_path: Path) -> None:
    records = tmp_path / "records.jsonl"
    records.write_bytes((run / "run" / "rollouts" / "rows%2Fmine.jsonl").read_bytes())
    asked = ("report", records, "--out", tmp_path / "out", "--pair", run / "pair" / "PAIR.yaml")
    assert run_here(*asked).exit_code == 0
    assert "0 of them with a verdict" in (tmp_path / "out" / "report.html").read_text()
    scored = run_here(*asked, "--prompts", run / "rows.jsonl", "--scorer", "exact", "--max-texts", "2")
    assert scored.exit_code == 0, scored.output
    assert "8 of them with a verdict" in (tmp_path / "out" / "report.html").read_text()


def test_bad_options_are_refused_by_name(run: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    assert_refused(run_here("report", run / "run"), "--out DIR")
    assert_refused(run_here("report", run / "run", "--out", run / "rows.jsonl"), "is a file")
    assert_refused(run_here("report", tmp_path, *out), "holds nothing to report on", "samples.jsonl", "metrics.jsonl")
    assert_refused(run_here("report", tmp_path / "nowhere", *out), "does not exist")
    assert_refused(run_here("report", run / "rows.jsonl", *out), "neither a file of rollout records")
    scorer = ("--scorer", "exact")
    assert_refused(run_here("report", run / "run", *out, *scorer), "--scorer is given without --prompts")
    unused = run_here("report", run / "run", *out, *scorer, "--prompts", run / "rows.jsonl")
    assert_refused(unused, "no unscored rollout of its rows")
    assert not (tmp_path / "out").exists()
