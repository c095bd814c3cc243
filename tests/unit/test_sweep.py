"""The grid and its spelling, the Pareto front, and a cell's numbers against hand-computed ones and scipy."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from test_evaluate import sample

from cospec.cli.sweep_options import methods_of
from cospec.cli.sweep_run import choose
from cospec.config import load_config
from cospec.engine.record import Sampling
from cospec.engine.rules import RULES, rule_named
from cospec.evaluation import MethodResult, SampleTiming
from cospec.evaluation.sweep.directory import read_rows
from cospec.evaluation.sweep.grid import Grid, MethodGrid, SamplingGrid, groups_of, points_of, sampling_name
from cospec.evaluation.sweep.pareto import pareto_front
from cospec.evaluation.sweep.plots import _apart, _draw, _labels, plot_cells
from cospec.evaluation.sweep.row import CellKey, adjusted, cell_row
from cospec.evaluation.sweep.store import read_costs, read_table, write_parquet, write_table
from cospec.evaluation.sweep.table import front_of, print_cells, starved_note
from cospec.evaluation.table import shown_names

ROOT = Path(__file__).parents[2]
NUMBER = st.integers(-5, 5).map(float)


# --- the front -------------------------------------------------------------------------------------------------------


def beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one != other and one[0] >= other[0] and one[1] >= other[1]


@given(st.lists(st.tuples(NUMBER, NUMBER), max_size=25))
def test_the_front_is_what_nothing_beats(points: list[tuple[float, float]]) -> None:
    front = pareto_front(points)
    unbeaten = {i for i, point in enumerate(points) if not any(beats(other, point) for other in points)}
    assert set(front) == unbeaten
    assert len(front) == len(unbeaten)
    assert [points[i][0] for i in front] == sorted(points[i][0] for i in front)


# --- the grid --------------------------------------------------------------------------------------------------------


def test_points_are_every_combination() -> None:
    methods = [MethodGrid(rule="strict"), MethodGrid(rule="fly:window=2", values={"theta": [0.1, 0.3]})]
    methods.append(MethodGrid(arbiter="runs/a", values={"threshold": [0.3, 0.7]}))
    found = list(points_of(methods))
    assert [point.spec for point in found[:3]] == ["strict", "fly:window=2,theta=0.1", "fly:window=2,theta=0.3"]
    assert [dict(point.parameters) for point in found[3:]] == [{"threshold": 0.3}, {"threshold": 0.7}]


def test_the_command_line_spells_the_same_grid() -> None:
    found = methods_of(["strict cactus", "ensemble"], ["cactus:delta=0.1,1", "arbiter:threshold=0.4"], ["mine=runs/a"])
    assert [(m.rule, m.arbiter, m.name, m.values) for m in found] == [
        ("strict", None, None, {}),
        ("cactus", None, None, {"delta": ["0.1", "1"]}),
        ("ensemble", None, None, {}),
        (None, "runs/a", "mine", {"threshold": ["0.4"]}),
    ]
    named = choose(Grid(methods=found[:3]))
    assert list(named) == ["strict", "cactus:delta=0.1", "cactus:delta=1", rule_named("ensemble").spec]
    assert named["cactus:delta=0.1"].rule == "cactus"


def test_values_are_for_the_method_that_cells_are_called_after() -> None:
    values = ["mine:threshold=0.2", "b:threshold=0.3,0.4", "judge:threshold=0.5,0.9", "fly:theta=0.1"]
    found = methods_of(["judge:runs/head fly:window=2"], values, ["mine=runs/a", "runs/b"])
    assert [method.values for method in found] == [
        {"threshold": ["0.5", "0.9"]},
        {"theta": ["0.1"]},
        {"threshold": ["0.2"]},
        {"threshold": ["0.3", "0.4"]},
    ]
    assert [point.spec for point in points_of(found)][:2] == [
        "judge:runs/head,threshold=0.5",
        "judge:runs/head,threshold=0.9",
    ]
    both = methods_of([], ["arbiter:threshold=0.2"], ["mine=runs/a", "runs/b"])
    assert [method.values for method in both] == [{"threshold": ["0.2"]}] * 2
    with pytest.raises(ValueError, match="mine has values of threshold already"):
        methods_of([], ["arbiter:threshold=0.2", "mine:threshold=0.3"], ["mine=runs/a"])
    with pytest.raises(ValueError, match=r"no method is called 'judge'; there are judge:a, judge:b, c, arbiter"):
        methods_of(["judge:a judge:b"], ["judge:threshold=0.2"], ["runs/c"])


@pytest.mark.parametrize(
    ("rules", "values", "message"),
    [
        (["strict strict"], [], "names strict twice"),
        (["cactus"], ["ensemble:weight=1"], "no method is called 'ensemble'"),
        (["cactus"], ["cactus:delta=1", "cactus:delta=2"], "has values of delta already"),
        (["cactus"], ["cactus=1"], "write RULE:PARAM=V,V"),
        (["cactus"], ["cactus:delta=1,,2"], "write RULE:PARAM=V,V"),
        ([], [], "no methods"),
        (["strict,cactus:delta=1"], [], "stand with spaces between"),
    ],
)
def test_what_the_command_line_refuses(rules: list[str], values: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        methods_of(rules, values, [])


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ([MethodGrid(rule="cactus", values={"delta": [-1]})], "out of range"),
        ([MethodGrid(rule="cactus", values={"theta": [1]})], "no parameter 'theta'"),
        ([MethodGrid(rule="cactus", values={"delta": [0.5, 0.5]})], "twice"),
        ([MethodGrid(rule="cactus"), MethodGrid(rule="cactus:delta=0.75")], "twice"),
        ([MethodGrid(rule="target")], "leave `target` out"),
    ],
)
def test_two_cells_are_never_the_same_and_none_is_out_of_range(methods: list[MethodGrid], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        choose(Grid(methods=methods))


def test_a_grid_without_anything_is_refused() -> None:
    with pytest.raises(ValueError, match="no methods"):
        choose(Grid())
    for changes in ({"num_draft_tokens": [0]}, {"num_draft_tokens": [3, 3]}, {"samplings": []}):
        with pytest.raises(ValueError, match=r"the grid|at least 1"):
            Grid(**({"methods": [MethodGrid(rule="strict")]} | changes))
    for wrong in ({"rule": "a", "arbiter": "b"}, {}, {"rule": "a", "name": "b"}, {"rule": "a", "values": {"x": []}}):
        with pytest.raises(ValueError, match="method"):
            MethodGrid(**wrong)


def test_groups_are_settings() -> None:
    samplings = [SamplingGrid(temperature=0.6, top_p=0.95), SamplingGrid(only=["cactus"])]
    grid = Grid([MethodGrid(rule="strict"), MethodGrid(rule="cactus")], [3, 5], samplings)
    names = {"strict": "strict", "cactus:delta=1": "cactus"}
    assert [(group.folder, group.methods) for group in groups_of(grid, names)] == [
        ("temperature=0.6,top_p=0.95/target", ("target",)),
        ("temperature=0.6,top_p=0.95/k3", ("strict", "cactus:delta=1")),
        ("temperature=0.6,top_p=0.95/k5", ("strict", "cactus:delta=1")),
        ("temperature=0/target", ("target",)),
        ("temperature=0/k3", ("cactus:delta=1",)),
        ("temperature=0/k5", ("cactus:delta=1",)),
    ]
    with pytest.raises(ValueError, match="only for 'cactus'"):
        groups_of(grid, {"strict": "strict"})


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "sweeps").glob("*.yaml")), ids=lambda path: path.name)
def test_grid_files_parse_and_name_rules_that_exist(path: Path) -> None:
    grid = load_config(Grid, path, [])
    # What is trained first is not there yet.
    rules = Grid(methods=[method for method in grid.methods if method.rule and "/" not in method.rule])
    chosen = choose(rules)
    names = {name: entry.rule for name, entry in chosen.items()} | {"an arbiter": "arbiter", "a judge": "judge"}
    assert len(groups_of(grid, names)) == len(grid.samplings) * (1 + len(grid.num_draft_tokens))
    for entry in grid.samplings:
        for name in entry.only if entry.temperature == 0 else []:
            assert RULES[name].greedy_kind != "refused"


# --- a cell ----------------------------------------------------------------------------------------------------------


def result(name: str, marks: str, rule: str, **changes: Any) -> MethodResult:
    bonus = None if rule == "target" else "target"
    samples = [sample(index, mark, method=name, **changes) for index, mark in enumerate(marks)]
    return MethodResult(name, rule, bonus, False, tuple(samples))


TARGET = result(
    "target", "++++++----+.", "target", num_rounds=12, num_drafted=0, num_accepted=0, drafted_at=(), accepted_at=()
)
CELL = result("cactus:delta=1", "+++-----++-+", "cactus:delta=1", num_tokens=24, timing=SampleTiming(active_s=0.1))
KEY = CellKey("t", Sampling(0.6), "cactus:delta=1", "cactus", 5, "model", (("delta", 1.0),))


def test_a_cell_by_hand_and_by_scipy() -> None:
    row = cell_row(KEY, CELL, TARGET, 0.2, 0.02)
    assert (row["right"], row["num"], row["num_draft_tokens"], row["parameters"]) == (6, 12, 5, {"delta": 1.0})
    expected = binomtest(6, 12).proportion_ci(0.95, method="wilson")
    assert row["ci95"] == pytest.approx([expected.low, expected.high])
    # Both judged on 11 problems: gained 8 and 9, lost 3, 4, 5 and 10.
    assert (row["gained"], row["lost"]) == (2, 4)
    assert row["difference"] == pytest.approx(-2 / 11)
    assert row["p"] == pytest.approx(binomtest(2, 6).pvalue)
    # 24 tokens against 12, in 4 rounds of 9 accepted tokens.
    assert row["length_ratio"] == 2
    assert row["rambling"] == 1
    assert row["l_accept"] == 9 / 4
    assert row["acceptance_by_position"] == [1, 3 / 4, 2 / 4]
    assert row["accepted_lengths"] == [0, 12, 12, 24]
    timing = row["timing"]
    assert timing["length_factor"] == pytest.approx(1 / 2)
    assert timing["round_factor"] == pytest.approx((24 / 4) / (1 + 5 * 0.2))
    assert timing["modelled_speedup"] == pytest.approx(1.5)
    # 0.2 s against 0.1 s a problem; tokens per second four times.
    assert timing["clock_speedup"] == pytest.approx(2)
    assert timing["tokens_per_s_ratio"] == pytest.approx(4)


def test_the_target_is_a_cell_without_a_difference() -> None:
    key = dataclasses.replace(KEY, method="target", rule="target", num_draft_tokens=None, parameters=())
    row = cell_row(key, TARGET, TARGET, 0.2, 0.02)
    assert row["difference"] is row["p"] is None
    assert row["timing"]["modelled_speedup"] == row["timing"]["clock_speedup"] == row["length_ratio"] == 1
    assert row["accepted_lengths"] == []
    assert row["rambling"] == 0


def test_infinite_parameters_keep_their_sign_in_the_table(tmp_path: Path) -> None:
    values = {"alpha": -math.inf, "theta": math.inf, "window": None, "delta": 0.5}
    write_table(
        tmp_path, [cell_row(dataclasses.replace(KEY, parameters=tuple(values.items())), CELL, TARGET, 0.2, 0.02)]
    )
    assert read_table(tmp_path)[0]["parameters"] == {"alpha": "-inf", "theta": "inf", "window": None, "delta": 0.5}


def test_a_damaged_table_says_that_it_can_be_removed(tmp_path: Path) -> None:
    file = tmp_path / "cells.jsonl"
    assert read_rows(tmp_path) == {}
    for text in ('{"task": ', '{"task": "t"}\n', "[]\n"):
        file.write_text(text)
        with pytest.raises(ValueError, match=r"cells.jsonl is damaged .*remove it"):
            read_rows(tmp_path)


@pytest.mark.parametrize("c_rel", ["0", "-1", "NaN", "Infinity"])
def test_costs_that_cannot_be_are_not_read(tmp_path: Path, c_rel: str) -> None:
    file = tmp_path / "costs.json"
    file.write_text(f'{{"c_rel": {c_rel}}}')
    with pytest.raises(ValueError, match="remove it, and the costs are measured anew"):
        read_costs(file)


def test_a_family_of_holms_is_the_cells_of_one_task_and_sampling() -> None:
    samplings = [dataclasses.asdict(sampling) for sampling in (Sampling(0.0), Sampling(0.6), Sampling(0.6, top_p=0.9))]
    kinds = [{"task": task, **sampling} for task in ("a", "b") for sampling in samplings]
    rows = [{**kind, "p": p, "p_adjusted": None} for p in (0.01, 0.04, None) for kind in kinds]
    found = [row["p_adjusted"] for row in adjusted(rows)]
    assert found == [0.02] * 6 + [0.04] * 6 + [None] * 6


def test_the_table_reads_back_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = dataclasses.replace(KEY, method="target", rule="target", num_draft_tokens=None, parameters=())
    rows = [cell_row(key, TARGET, TARGET, 0.2, 0.02)]
    rows += [cell_row(dataclasses.replace(KEY, num_draft_tokens=k), CELL, TARGET, 0.2, 0.02) for k in (3, 5)]
    rows = adjusted(rows)
    assert rows[1]["p_adjusted"] == pytest.approx(min(1, 2 * rows[1]["p"]))
    write_table(tmp_path, rows)
    assert read_table(tmp_path) == json.loads(json.dumps(rows))
    write_parquet(tmp_path / "cells.parquet", rows)
    table = pq.read_table(tmp_path / "cells.parquet").to_pylist()
    assert [row["timing.modelled_speedup"] for row in table] == [row["timing"]["modelled_speedup"] for row in rows]
    assert json.loads(table[1]["parameters"]) == {"delta": 1.0}
    # K = 3 costs less a round for the same tokens.
    assert [row["num_draft_tokens"] for row in front_of(rows, "modelled_speedup")] == [None, 3]
    print_cells(rows)
    assert "Pareto front of accuracy and modelled speed-up: target, cactus:delta=1 K=3" in capsys.readouterr().out
    for speed in ("modelled_speedup", "clock_speedup"):
        plot_cells(rows, speed, tmp_path / f"{speed}.png")  # type: ignore[arg-type]
        assert (tmp_path / f"{speed}.png").read_bytes().startswith(b"\x89PNG")


def test_a_piped_table_cuts_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    judges = [f"judge:/{'long/' * 30}{name},threshold={value}" for name in "ab" for value in (0.5, 0.9)]
    row = cell_row(KEY, CELL, TARGET, 0.2, 0.02)
    rows = [row | {"method": name, "num_draft_tokens": 1234567, "num_failed": 7654321} for name in judges]
    print_cells([*rows, row | {"method": "m" * 200}])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if "judge" in line and "Pareto" not in line] == [
        [f"judge:{name},threshold={value}", "1234567"] for name in "ab" for value in (0.5, 0.9)
    ]
    shown = [line for line in lines if "Pareto" not in line]
    assert sum("(7654321 failed)" in line for line in shown) == 4
    assert sum(line.count("m" * 10) for line in shown) >= 15
    assert not any("…" in line for line in shown)


def test_a_busy_machine_stands_beside_the_front_by_the_clock(capsys: pytest.CaptureFixture[str]) -> None:
    row = cell_row(KEY, CELL, TARGET, 0.2, 0.02)
    rows = [{**row, "timing": row["timing"] | {"cpu_share": share}} for share in (None, 0.99, 0.39, 0.49)]
    assert starved_note(rows[:2]) == ""
    print_cells(rows[:2])
    assert "busy" not in capsys.readouterr().out
    print_cells(rows)
    noted = [line for line in capsys.readouterr().out.splitlines() if "busy" in line]
    assert len(noted) == 1
    assert "speed-up by the clock (2 of 4 cells had 39% to 49% of a core" in noted[0]
    assert [_draw(rows, speed).get_suptitle() for speed in ("modelled_speedup", "clock_speedup")] == [
        "",
        starved_note(rows),
    ]


def test_labels_stay_in_their_panels_and_titles_have_n() -> None:
    cell = cell_row(KEY, CELL, TARGET, 0.2, 0.02)
    rows = [
        cell | {"method": f"{'m' * 70}{x}{name}", "accuracy": y, "timing": cell["timing"] | {"clock_speedup": x}}
        for x, y in ((1.0, 0.9), (1.4, 0.8), (1.6, 0.5), (2.0, 0.1))
        for name in "abc"
    ]
    figure = _draw(rows, "clock_speedup")
    figure.canvas.draw()
    (axes,) = figure.axes
    assert axes.get_title().endswith("K = 5, n = 12")
    assert len(axes.texts) == 4
    panel = axes.get_window_extent()
    for text in axes.texts:
        box = text.get_window_extent()
        assert panel.x0 <= box.x0 < box.x1 <= panel.x1
        assert panel.y0 <= box.y0 < box.y1 <= panel.y1


def test_labels_name_what_differs() -> None:
    cascades = [f"cascade_opt:alpha={alpha},rows=raw" for alpha in (0, 0.1)]
    judges = [f"judge:runs/head,threshold={threshold}" for threshold in (0.5, 0.9)]
    names = ["strict", *cascades, *judges, "fly:theta=0.3,window=2"]
    shown = ["strict", "cascade_opt:alpha=0", "cascade_opt:alpha=0.1", "judge:threshold=0.5", "judge:threshold=0.9"]
    assert list(_labels(names).values()) == [*shown, "fly:theta=0.3,window=2"]


def test_labels_tell_two_judges_apart() -> None:
    judges = [f"judge:runs/{name}/last,threshold={threshold}" for name, threshold in (("a", 0.5), ("b", 0.9))]
    assert list(_labels(judges).values()) == judges
    judges = [f"judge:runs/{name},threshold={threshold}" for name in "ab" for threshold in (0.5, 0.9)]
    assert list(_labels(judges).values()) == [judge.replace("runs/", "") for judge in judges]


def test_labels_make_room_for_one_another() -> None:
    assert _apart([50.0, 100.0], [8.0, 8.0]) == [50.0, 100.0]
    assert _apart([50.0, 50.0, 51.0], [8.0, 16.0, 8.0]) == [50.0, 62.0, 74.0]
    assert _apart([0.0, 225.0, 225.0], [8.0, 8.0, 8.0]) == [4.0, 213.0, 221.0]
    # Too many for a panel.
    assert _apart([0.0, 100.0, 225.0], [150.0] * 3) == [75.0, 112.5, 150.0]
    assert _apart([], []) == []


def test_judges_that_would_be_called_alike_keep_their_directories() -> None:
    names = [f"judge:runs/{name}" for name in ("a/last,threshold=0.5", "b/last,threshold=0.9", "b/first", "c/first")]
    assert list(shown_names(names).values()) == names
    assert list(shown_names(names[1:3]).values()) == ["judge:last,threshold=0.9", "judge:first"]
    of_one = [f"judge:/runs/a/last,threshold={threshold}" for threshold in (0.5, 0.9)]
    assert list(shown_names([*of_one, "strict"]).values()) == [
        "judge:last,threshold=0.5",
        "judge:last,threshold=0.9",
        "strict",
    ]


def test_samplings_have_names() -> None:
    assert sampling_name(Sampling()) == "temperature=0"
    assert sampling_name(Sampling(0.6, top_k=20, top_p=0.95)) == "temperature=0.6,top_k=20,top_p=0.95"
    # Two samplings never share a name, and with it a directory.
    assert sampling_name(Sampling(0.70000001, top_k=1234567)) == "temperature=0.70000001,top_k=1234567"
