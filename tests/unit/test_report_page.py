"""A report of hand-made runs: what is found, and a page that is whole, inert and bounded."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from pathlib import Path

import pytest
from report_records import HOSTILE, Parsed, decision, rollout
from report_runs import (
    ARBITER,
    METHODS,
    hostile_rollouts,
    summary,
    write_demo,
    write_evaluation,
    write_rollouts,
    write_training,
)

from cospec.evaluation.report import Report, ReportOptions, build_report, find_runs
from cospec.evaluation.report import page as page_module
from cospec.evaluation.report.text import plain
from cospec.jsonl import read_jsonl, write_json_atomic, write_jsonl_atomic
from cospec.scoring.verdict import Verdict

ASSETS = Path(page_module.__file__).parents[2] / "assets" / "report"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_demo(tmp_path_factory.mktemp("runs") / "demo <b>")


@pytest.fixture(scope="module")
def report(demo: Path) -> Report:
    return build_report(find_runs([demo]), ReportOptions(title="<i>A & B</i>"))


# --- what is found ---------------------------------------------------------------------------------------------------


def test_a_demo_directory_is_recognised_part_by_part(demo: Path) -> None:
    found = find_runs([demo])
    assert [run.name for run in found.evaluations] == ["demo <b>/eval"]
    assert [(run.name, run.stage) for run in found.trainings] == [
        ("demo <b>/grpo", "GRPO"),
        ("demo <b>/sft", "warm-up"),
    ]
    by_method = {file.method: file for file in found.rollouts}
    assert set(by_method) == {None, ARBITER, "strict"}
    assert by_method[ARBITER].evaluation is found.evaluations[0]
    assert by_method[ARBITER].task == "maths"
    assert by_method[None].labels == demo / "labels.jsonl" or by_method[None].in_training
    assert [file.name for file in found.rollouts if file.in_training] == ["demo <b>/grpo/rollouts"]
    assert len(found.labels) == 1
    assert len(found.lines()) == 8


def test_single_files_and_single_runs_are_taken(demo: Path) -> None:
    assert len(find_runs([demo / "rollouts.jsonl"]).rollouts) == 1
    assert len(find_runs([demo / "labels.jsonl"]).labels) == 1
    assert find_runs([demo / "grpo" / "rollouts" / "rank0.jsonl"]).rollouts[0].in_training
    assert len(find_runs([demo / "eval", demo / "sft"]).trainings) == 1


def test_runs_in_directories_of_one_name_keep_their_own_names_and_rollout_curves(tmp_path: Path) -> None:
    paths = [write_training(tmp_path / name / "grpo", num_steps=6) for name in ("a", "b")]
    for rank in range(2):
        file = paths[1] / "rollouts" / f"rank{rank}.jsonl"
        write_jsonl_atomic(file, list(read_jsonl(file))[:3])
    found = find_runs(paths)
    assert [run.name for run in found.trainings] == ["a/grpo", "b/grpo"]
    assert [file.name for file in found.rollouts] == ["a/grpo/rollouts", "b/grpo/rollouts"]
    report = build_report(found, ReportOptions())
    curves = [chart.table for chart in report.charts if chart.name.endswith("tokens_per_round")]
    assert [table.rows[0][-1] for table in curves if table] == ["4", "3"]
    legend = next(chart for chart in report.charts if chart.name == "acceptance").table
    assert legend is not None
    assert [row[0] for row in legend.rows] == ["a/grpo/rollouts", "b/grpo/rollouts"]


def test_evaluations_in_directories_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = [write_evaluation(tmp_path / name / "run") for name in ("a", "b")]
    found = find_runs([*paths, tmp_path / "a", paths[0]])
    assert [run.name for run in found.evaluations] == ["a/run", "b/run"]
    legend = next(c for c in build_report(found, ReportOptions()).charts if c.name == "acceptance").table
    assert legend is not None
    assert len({row[0] for row in legend.rows}) == len(legend.rows)
    assert {f"{name}/run strict" for name in "ab"} <= {row[0] for row in legend.rows}


def test_results_of_a_bench_are_named_as_what_they_are(tmp_path: Path) -> None:
    write_json_atomic(tmp_path / "results.json", {"cells": [], "sweeps": []})
    with pytest.raises(ValueError, match="results of `cospec bench`, which a report does not read"):
        find_runs([tmp_path])


def test_what_cannot_be_used_is_refused_by_name(demo: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds nothing to report on.*samples\.jsonl.*metrics\.jsonl.*labels\.jsonl"):
        find_runs([demo, tmp_path])
    with pytest.raises(ValueError, match="does not exist"):
        find_runs([tmp_path / "nowhere"])
    for name, text in (("a.txt", "x"), ("a.jsonl", '{"id": 1}\n'), ("b.jsonl", "")):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match="neither a file of rollout records"):
            find_runs([tmp_path / name])
    (tmp_path / "results.json").write_text("[1")
    with pytest.raises(ValueError, match=r"results\.json is not JSON"):
        find_runs([tmp_path])
    (tmp_path / "results.json").write_text('{"n": 3, "methods": {"a": {}}}')
    with pytest.raises(ValueError, match="is not of this version"):
        find_runs([tmp_path])


def test_a_damaged_record_is_named_and_a_torn_tail_passed_over(tmp_path: Path) -> None:
    file = write_rollouts(tmp_path / "rollouts.jsonl", hostile_rollouts()[:3])
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:100])
    report = build_report(find_runs([file]), ReportOptions())
    assert "3 rollouts" in report.html
    assert any(f"{file} ends in a line that is not finished" in note for note in report.notes)
    file.write_bytes(b'{"blocks": []}\n' + whole)
    with pytest.raises(ValueError, match=r"rollouts\.jsonl:1: rollout None is not a record of this version"):
        build_report(find_runs([file]), ReportOptions())


@pytest.mark.parametrize("whole_rows", [0, 2])
def test_labels_that_are_still_being_written_do_not_refuse_the_page(
    demo: Path, tmp_path: Path, whole_rows: int
) -> None:
    run = Path(shutil.copytree(demo, tmp_path / "run"))
    rows = (run / "labels.jsonl").read_bytes().splitlines(keepends=True)
    assert len(rows) > whole_rows
    (run / "labels.jsonl").write_bytes(b"".join(rows[:whole_rows]) + rows[whole_rows][:-9])
    report = build_report(find_runs([run]), ReportOptions())
    said = [note for note in report.notes if "not finished" in note]
    assert len(said) == 1
    assert said[0].startswith(f"{run / 'labels.jsonl'} ends in a line that is not finished, which is left out")
    (run / "labels.jsonl").write_bytes(b"x\n" + rows[0])
    with pytest.raises(ValueError, match=r"labels\.jsonl:1: not JSON"):
        build_report(find_runs([run]), ReportOptions())


def test_no_chart_takes_the_file_of_another(tmp_path: Path) -> None:
    for name, tasks in (("eval", ("gsm8k", "GSM8K!", "x" * 300)), ("eval_gsm8k", ()), ("eval gsm8k", ())):
        numbers = summary(tasks or ("maths",), 20)
        write_json_atomic(tmp_path / name / "results.json", numbers)
    for name in ("eval_accuracy", "eval accuracy"):
        rows = [{"step": step, "tokens_per_round": 3.0} for step in range(3)]
        write_jsonl_atomic(tmp_path / name / "metrics.jsonl", rows)
    report = build_report(find_runs([tmp_path]), ReportOptions())
    names = [chart.name for chart in report.charts]
    # Two charts of each evaluation and of each of three tasks, one of each training, two of all methods in sum.
    assert len(names) == len(set(names)) == 2 * (3 + 3) + 2 + 2
    report.write(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.png"))) == len(names)


def test_intervals_without_length_are_drawn_although_rounding_sets_them_beside_their_values(tmp_path: Path) -> None:
    numbers = summary(("maths",), 20)
    for method in numbers["methods"].values():
        beside = [value * (1 + 2**-52) for value in (method["accuracy"], method["tokens_per_round"] or 1.0)]
        method["ci95"], method["tokens_per_round_ci95"] = ([value, value] for value in beside)
    write_json_atomic(tmp_path / "results.json", numbers)
    assert len(build_report(find_runs([tmp_path]), ReportOptions()).charts) == 4


def test_an_unfinished_evaluation_is_counted_from_its_samples(tmp_path: Path) -> None:
    run = find_runs([write_evaluation(tmp_path / "cut", finished=False)]).evaluations[0]
    assert not run.is_finished
    assert "not finished" in run.described()
    assert [(m.name, m.rule) for m in run.whole.methods] == list(METHODS.items())
    for place, method in enumerate(run.whole.methods):
        right = sum((i + place) % 3 > 0 for i in range(len(HOSTILE)))
        assert (method.right, method.num, method.tokens_per_round, method.keep_rate) == (right, len(HOSTILE), 3, 0.5)
        assert method.p is method.speed_ratio is None
    assert "Not finished" in build_report(find_runs([tmp_path / "cut"]), ReportOptions()).html


def test_repeats_of_an_unfinished_evaluation_are_no_further_problems(tmp_path: Path) -> None:
    run = write_evaluation(tmp_path / "cut", finished=False)
    rows = list(read_jsonl(run / "samples.jsonl"))
    once = find_runs([run]).evaluations[0].whole
    write_jsonl_atomic(run / "samples.jsonl", [row | {"repeat": repeat} for row in rows for repeat in range(4)])
    repeated = find_runs([run]).evaluations[0].whole
    for before, now in zip(once.methods, repeated.methods, strict=True):
        assert (now.num, now.accuracy) == (4 * before.num, before.accuracy)
        assert now.ci95[0] < before.ci95[0] < before.ci95[1] < now.ci95[1]


def test_several_tasks_are_shown_together_apart_and_in_the_mean(tmp_path: Path) -> None:
    run = find_runs([write_evaluation(tmp_path / "two", ("maths", "code <i>"))]).evaluations[0]
    assert [task.name for task in run.tasks] == ["maths", "code <i>"]
    assert run.whole.num_problems == 2 * run.tasks[0].num_problems
    assert run.macro[0].difference_ci95 == (0.0, 0.2)
    method = run.tasks[0].methods[-1]
    assert (method.p, method.p_adjusted, method.speed_ratio_ci95) == (0.02, 0.04, (1.1, 1.3))
    assert (method.accepted_at, method.by_risk) == ((9, 5), ((0.0, 1e-4, 4, 1), (1e-4, 1.0, 6, 5)))
    html = build_report(find_runs([tmp_path / "two"]), ReportOptions()).html
    assert "Means over 2 tasks" in html
    assert Parsed(html).tags.count("table") >= 4
    assert "p adjusted (Holm)" in html


def test_records_named_after_a_method_alone_find_its_verdicts(tmp_path: Path) -> None:
    write_evaluation(tmp_path / "run")
    by_hand = tmp_path / "run" / "rollouts" / "draft.jsonl"
    write_rollouts(by_hand, hostile_rollouts())
    files = {file.method: file for file in find_runs([tmp_path / "run"]).rollouts}
    assert files["draft"].task == "maths"
    write_evaluation(tmp_path / "run", ("maths", "code"))
    assert {file.method for file in find_runs([tmp_path / "run"]).rollouts} == {ARBITER, "strict", None}


def test_only_the_last_step_of_training_is_looked_into(tmp_path: Path) -> None:
    html = build_report(find_runs([write_training(tmp_path / "grpo")]), ReportOptions()).html
    assert "training step 3" in html
    for rank in range(2):
        assert f"r{rank}s3" in html
        assert f"r{rank}s2" not in html
    # Tokens per round by step come from the records: 1, 2, 3, 4.
    assert "from 1 to 4" in html


# --- the page --------------------------------------------------------------------------------------------------------


def test_the_page_loads_nothing_and_runs_its_own_script_alone(report: Report) -> None:
    parsed = Parsed(report.html)
    assert parsed.tags.count("script") == 1
    assert not {"img", "iframe", "object", "embed", "form", "base", "b onmouseover"} & set(parsed.tags)
    for name in ("src", "href", "xlink:href", "action", "srcset"):
        assert all(value.startswith("#") or value == "data:," for value in parsed.values(name)), name
    assert not [name for _, name, _ in parsed.attributes if name.startswith("on")]
    assert not re.search(r"url\((?!#)|@import", report.html)
    digest = base64.b64encode(hashlib.sha256((ASSETS / "report.js").read_bytes()).digest()).decode()
    policy = next(value for value in parsed.values("content") if "default-src" in value)
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_every_link_has_its_place_and_every_place_is_one(report: Report) -> None:
    parsed = Parsed(report.html)
    ids = parsed.values("id")
    assert len(ids) == len(set(ids))
    links = [value[1:] for name in ("href", "xlink:href") for value in parsed.values(name) if value.startswith("#")]
    assert set(links) <= set(ids)
    for name in ("aria-labelledby", "aria-describedby"):
        assert set(parsed.values(name)) <= set(ids)
    # Lists lead into texts.
    assert any(re.fullmatch(r"s\d+-t\d+-b0p\d+", link) for link in links)


def test_texts_stand_in_the_page_as_the_model_wrote_them(report: Report) -> None:
    texts = Parsed(report.html, "text").texts
    for text in HOSTILE:
        # The first text of a split character is shown as a name, so compare where no decision splits one.
        if text.isascii() and text.isprintable() and text:
            assert text in texts
    assert not [text for text in texts if "\u202e" in text or "\x00" in text]


def test_hostile_names_are_inert_everywhere(report: Report) -> None:
    assert "alert(1)</script>" not in report.html
    assert Parsed(report.html).tags.count("b") > 0
    assert plain(ARBITER) in Parsed(report.html.replace("svg", "div"), "charts").texts[0]


def test_tables_have_scopes_and_charts_have_words(report: Report) -> None:
    parsed = Parsed(report.html)
    assert parsed.tags.count("h1") == 1
    assert parsed.tags.count("th") == len([1 for tag, name, _ in parsed.attributes if (tag, name) == ("th", "scope")])
    images = [value for tag, name, value in parsed.attributes if (tag, name) == ("div", "role") and value == "img"]
    assert len(images) == len(report.charts) == parsed.tags.count("svg")
    assert all(len(chart.description) > 20 for chart in report.charts)
    assert all(chart.png.startswith(b"\x89PNG") for chart in report.charts)
    names = [chart.name for chart in report.charts]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z0-9_-]+", name) for name in names)
    for wanted in ("accuracy_tokens_per_round", "accuracy_speed", "acceptance", "risk", "reward", "keep_rate", "loss"):
        assert any(wanted in name for name in names), wanted


def test_a_report_written_twice_is_the_same(demo: Path, report: Report, tmp_path: Path) -> None:
    again = build_report(find_runs([demo]), ReportOptions(title="<i>A & B</i>"))
    assert again.html == report.html
    again.write(tmp_path / "out" / "deep")
    assert {path.name for path in (tmp_path / "out" / "deep").iterdir()} == {
        "report.html",
        *(f"{chart.name}.png" for chart in report.charts),
    }


def test_records_without_a_pair_show_ids_and_say_so(tmp_path: Path) -> None:
    file = write_rollouts(tmp_path / "x" / "y" / "z" / "rollouts.jsonl", hostile_rollouts()[:2])
    report = build_report(find_runs([file]), ReportOptions())
    assert any("token ids in place of texts (no pair is named beside it)" in note for note in report.notes)
    assert "⟨" in report.html
    (file.parent / "pair.yaml").write_text("draft: {path: nowhere/a}\ntarget: {path: nowhere/b}\n")
    report = build_report(find_runs([file]), ReportOptions())
    assert any("nowhere" in note for note in report.notes)


def test_a_large_run_gives_a_small_page_that_says_what_it_leaves_out(tmp_path: Path) -> None:
    many = [decision(place, 0.9) for place in range(700)]
    texts = [rollout(number, [65] * 700, many) for number in range(30)]
    long = rollout("long", [66] * 5000, [decision(place, 0.3, kept=False) for place in (10, 4999)])
    rollouts = [*texts, long]
    file = write_rollouts(tmp_path / "rollouts.jsonl", rollouts)
    html = build_report(find_runs([file]), ReportOptions(num_texts=30)).html
    assert len(html.encode()) <= 4_000_000
    shown, left = re.search(r"(\d+) of 31 rollouts; (\d+) are left out", html).groups()
    assert 0 < int(shown) == 31 - int(left) < 31
    assert html.count("<article ") == int(shown)


def test_long_texts_keep_their_beginning_and_what_lists_name(tmp_path: Path) -> None:
    named = decision(2705, 0.99, 1e-6)
    long = rollout("long", [65] * 3000, [*(decision(place, 0.7, 1e-6) for place in range(1, 2700, 3)), named])
    file = write_rollouts(tmp_path / "rollouts.jsonl", [long])
    html = build_report(find_runs([file]), ReportOptions(), lambda one: Verdict("wrong")).html
    assert "-b450p5" in html
    assert html.count("left out … ") >= 2
    hidden = re.search(r"(\d+) of 3000 tokens are left out", html)
    assert hidden
    assert 1500 < int(hidden[1]) < 2400


# --- how it looks ----------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_have_contrast(scheme: int) -> None:
    css = (ASSETS / "report.css").read_text()
    light, dark = (dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", part)) for part in css.split("@media screen")[:2])
    colours = [light, light | dark][scheme]
    for name in ("ink", "muted", "link", "right", "wrong", "ctl"):
        for ground in ("paper", "panel"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
    for step in range(11):
        assert contrast(colours["ink"], colours[f"p{step}"]) >= 4.5, step
        assert contrast(colours["ctl"], colours[f"p{step}"]) >= 3, step
    for number in range(8):
        assert contrast(colours[f"c{number}"], colours["panel"]) >= 3, number


def test_settings_stand_in_the_page(report: Report) -> None:
    assert "2.13.0" in report.html
    assert json.dumps(list(METHODS)[2]).strip('"') in report.html
