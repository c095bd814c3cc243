"""The directory of a sweep: what a later command finds there, goes on with, keeps, and refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from model_dirs import assert_refused, read_rows, run_here, write_pair, write_rows
from test_eval_resume import without_timing

RIGHT, ILL = "return len(text) % 2 == 0", "raise RuntimeError('ill')"


class Sweep:
    """Commands on one directory, and what they leave there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.pair = write_pair(folder / "pair")
        self.rows = [{"id": i, "prompt": f"w{9 + i} w{30 - i}", "gold": "1"} for i in range(3)]
        write_rows(folder / "rows.jsonl", self.rows)
        self.scorer(RIGHT)

    def scorer(self, body: str) -> None:
        (self.folder / "swept_scorer.py").write_text(f"def score(text, row):\n    {body}\n")
        sys.modules.pop("swept_scorer", None)

    def run(self, *options: str, rules: str = "strict always", lengths: str = "2") -> Result:
        asked = ["sweep", "--pair", str(self.pair), "--prompts", "rows.jsonl", "--scorer", "swept_scorer:score"]
        asked += ["--max-new-tokens", "8", "--rule", rules, "--num-draft-tokens", lengths, "--out", "out"]
        return run_here(*asked, *options)

    def done(self, *options: str, **named: str) -> list[dict[str, Any]]:
        result = self.run(*options, **named)
        assert result.exit_code == 0, result.output
        return self.table()

    def table(self) -> list[dict[str, Any]]:
        return read_rows((self.out / "cells.jsonl").read_text())

    def edit(self, group: str, change: Callable[[dict[str, Any]], None]) -> None:
        file = self.out / "temperature=0" / group / "settings.json"
        settings = json.loads(file.read_text())
        change(settings)
        file.write_text(json.dumps(settings))

    def samples(self, group: str) -> Path:
        return self.out / "temperature=0" / group / "samples.jsonl"


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sweep]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Sweep(tmp_path)
    sys.modules.pop("swept_scorer", None)


def test_a_smaller_grid_leaves_the_other_cells_in_the_table(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sweep.done(lengths="2,3")
    assert [(row["method"], row["num_draft_tokens"]) for row in whole] == [
        ("target", None),
        ("strict", 2),
        ("always", 2),
        ("strict", 3),
        ("always", 3),
    ]
    less = sweep.done(rules="always", lengths="3")
    assert [(row["method"], row["num_draft_tokens"]) for row in less[:2]] == [("target", None), ("always", 3)]

    def by_cell(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(without_timing(rows), key=lambda row: (row["method"], row["num_draft_tokens"] or 0))

    assert by_cell(less) == by_cell(whole)
    written: list[int] = []
    from cospec.evaluation.sweep import store

    write = store.write_table
    monkeypatch.setattr(store, "write_table", lambda out, rows: written.append(len(rows)) or write(out, rows))
    assert without_timing(sweep.done(lengths="2,3")) == without_timing(whole)
    assert set(written) == {5}


def test_settings_are_those_of_the_whole_directory(sweep: Sweep) -> None:
    sweep.done("--batch-size", "8")
    other = sweep.run("--temperature", "0.6", "--batch-size", "2")
    assert_refused(other, "out/temperature=0/", "batch_size was 8, now 2")
    assert_refused(sweep.run("--temperature", "0.6", "--seed", "3"), "seed was 0, now 3")
    assert sorted(path.name for path in sweep.out.glob("temperature=*")) == ["temperature=0"]


def test_what_another_k_contradicts_is_found_before_anything_is_decoded(sweep: Sweep) -> None:
    sweep.done(lengths="2,3")
    sweep.edit("k3", lambda settings: settings["methods"]["strict"].update(bonus="rule"))
    sweep.samples("k2").unlink()
    assert_refused(sweep.run(lengths="2,3"), "k3", "strict.bonus was 'rule', now 'target'")
    assert_refused(sweep.run(lengths="2"), "k3", "strict.bonus was 'rule', now 'target'")
    assert not sweep.samples("k2").exists()


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda settings: settings.pop("sampling"), "k3/settings.json holds no settings of a sweep's group"),
        (lambda settings: settings.pop("repeats"), "k3/settings.json holds no settings of a sweep's group"),
        (lambda settings: settings["methods"].update(strict={}), "k3/settings.json holds no settings"),
        (
            lambda settings: settings["methods"]["always"].update(rule="nonsense:x=1"),
            "k3/settings.json holds no settings",
        ),
        (
            lambda settings: settings["tasks"]["rows"].update(num_problems="3"),
            "num_problems was '3', now 3",
        ),
        (lambda settings: settings.update(num_draft_tokens=4), "its settings belong to temperature=0/k4"),
    ],
)
def test_groups_outside_the_grid_are_checked_before_anything_is_decoded(
    sweep: Sweep, harm: Callable[[dict[str, Any]], None], told: str
) -> None:
    sweep.done(lengths="2,3")
    sweep.samples("k2").unlink()
    sweep.edit("k3", harm)
    assert_refused(sweep.run(), told)
    assert not sweep.samples("k2").exists()


def test_texts_outside_the_grid_are_checked_too(sweep: Sweep) -> None:
    sweep.done(lengths="2,3")
    samples = sweep.samples("k3")
    whole = samples.read_text()
    for old, new, told in (
        ('"id": 1', '"id": 77', "a sample of problem 77, which this evaluation does not have"),
        ('"repeat": 0', '"repeat": 5', "a sample of repeat 5"),
        ('"num_rounds": ', '"num_rounds": -', "is damaged: num_rounds is -"),
        ('"num_accepted": ', '"num_accepted": 9', "is damaged: num_accepted is 9"),
    ):
        samples.write_text(whole.replace(old, new, 1))
        assert samples.read_text() != whole
        assert_refused(sweep.run(), "k3/samples.jsonl:", told)
    samples.write_text(whole)
    (sweep.out / "temperature=0" / "k3" / "settings.json").unlink()
    assert_refused(sweep.run(), "k3 holds samples.jsonl without settings.json")


@pytest.mark.parametrize("name", ["cells.jsonl", "cells.parquet", "costs.json", "clock_speedup.png"])
def test_a_directory_in_place_of_a_file_is_refused(sweep: Sweep, name: str) -> None:
    (sweep.out / name).mkdir(parents=True)
    assert_refused(sweep.run(), f"out/{name} is a directory")


def test_a_block_longer_than_any_text_is_swept(sweep: Sweep) -> None:
    (row,) = [row for row in sweep.done(rules="strict", lengths="100000") if row["method"] == "strict"]
    assert (row["num_draft_tokens"], row["num"]) == (100000, 3)
    costs = json.loads((sweep.out / "costs.json").read_text())
    assert list(costs["target_s"]) == ["1", "9"]
    assert costs["cpu_share"] > 0


def test_a_busy_machine_is_told_where_its_costs_are_used(sweep: Sweep) -> None:
    sweep.done()
    file = sweep.out / "costs.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"cpu_share": 0.4, "c_rel": 0.7}))
    told = sweep.run()
    assert "warning: c_rel 0.700 was measured with 40% of a core" in told.stderr
    assert "was measured with" not in sweep.run("--c-rel", "0.5").stderr


def test_a_dry_run_looks_past_a_line_that_a_kill_has_torn(sweep: Sweep) -> None:
    sweep.done()
    with sweep.samples("k2").open("a") as file:
        file.write('{"task": "ro')
    before = sweep.samples("k2").read_bytes()
    shown = sweep.run("--dry-run")
    assert (shown.exit_code, "0 to decode" in shown.stdout) == (0, True), shown.output
    assert sweep.samples("k2").read_bytes() == before


def test_seconds_of_two_machines_are_not_compared(sweep: Sweep) -> None:
    sweep.done(lengths="2,3")
    costs = json.loads((sweep.out / "costs.json").read_text())
    # Finished on one machine: showing the table again on another changes nothing.
    for group in ("target", "k2", "k3"):
        sweep.edit(group, lambda settings: settings["environments"][0].update(machine={"accelerator": "A"}))
    costs["measured_with"]["machine"] = {"accelerator": "A"}
    (sweep.out / "costs.json").write_text(json.dumps(costs))
    shown = sweep.run(lengths="2,3")
    assert "costs.json is of another machine or other settings: measuring anew" in shown.stderr
    assert "several machines" not in shown.stderr
    assert all(row["timing"]["clock_speedup"] is not None for row in sweep.table())
    # Gone on with here.
    rows = read_rows(sweep.samples("k3").read_text())
    write_rows(sweep.samples("k3"), rows[:-1])
    shown = sweep.run(lengths="2,3", rules="strict always")
    assert "2 cells have no speed-up by the clock" in shown.stderr
    for row in sweep.table():
        mixed = row["num_draft_tokens"] == 3
        assert (row["timing"]["clock_speedup"] is None) == (row["timing"]["tokens_per_s_ratio"] is None) == mixed
        assert row["timing"]["modelled_speedup"] is not None
    assert "measuring anew" not in shown.stderr


def test_texts_are_judged_again_by_a_mended_scorer(sweep: Sweep) -> None:
    sweep.scorer(ILL)
    assert_refused(sweep.run(), "mend the scorer", "kept: all finished texts in out, which --rescore judges again")
    sweep.scorer(RIGHT)
    assert_refused(sweep.run(), "judged by another scorer", "add --rescore")
    again = sweep.done("--rescore")
    assert all(row["num"] == 3 for row in again)
    # Also those that the grid does not ask for.
    sweep.scorer("return True")
    assert_refused(sweep.run(rules="strict"), "add --rescore")
    assert [row["right"] for row in sweep.done("--rescore", rules="strict")] == [3, 3, 3]


def test_parquet_and_pictures_follow_a_table_that_grows(sweep: Sweep) -> None:
    first = sweep.run("--parquet", "--plot", rules="strict")
    names = "cells.jsonl, cells.parquet, modelled_speedup.png, clock_speedup.png"
    assert first.stderr.splitlines()[-1] == f"sweep: done, 2 cells in out: {names}"
    pictures = [sweep.out / f"{speed}.png" for speed in ("modelled_speedup", "clock_speedup")]
    before = [picture.read_bytes() for picture in pictures]
    more = sweep.run(lengths="3")
    assert more.stderr.splitlines()[-1] == f"sweep: done, 4 cells in out: {names}"
    assert pq.read_table(sweep.out / "cells.parquet").num_rows == len(sweep.table()) == 4
    assert all(picture.read_bytes() != old for picture, old in zip(pictures, before, strict=True))
    plain = sweep.run("--parquet", "--out", "other", rules="strict")
    assert plain.stderr.splitlines()[-1] == "sweep: done, 2 cells in other: cells.jsonl, cells.parquet"


def test_a_parquet_file_without_pyarrow_is_refused_first(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    from cospec.evaluation.sweep import store

    monkeypatch.setattr(store, "find_spec", lambda name: None)
    assert_refused(sweep.run("--parquet"), "--parquet needs pyarrow")
    assert not sweep.out.exists()
