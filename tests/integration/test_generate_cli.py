"""`cospec generate` and `cospec rollout` on tiny random models: what they print, write, refuse and pick up again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from conftest import CONTEXT, word_tokenizer
from model_dirs import (
    assert_refused,
    read_rows,
    run_here,
    run_process,
    write_arbiter,
    write_model,
    write_pair,
    write_rows,
)

from cospec.cli import generate
from cospec.engine import packed
from cospec.engine.record import rollout_from_json

KEYS = [
    "id",
    "output_ids",
    "text",
    "finish_reason",
    "num_rounds",
    "num_drafted",
    "num_accepted",
    "num_mismatches",
    "num_kept",
]
ROWS: list[dict[str, Any]] = [
    {"id": "first", "prompt": "w9 w10 w11 w12 w13 w14 w15"},
    {"id": 7, "prompt_ids": [1, 20, 21, 22]},
    {"prompt": "w30"},
    {"id": "chat", "messages": [{"role": "system", "content": "w8"}, {"role": "user", "content": "w40 w41"}]},
    {"id": "ünï", "prompt": "w9 w9", "note": "kept out"},
]
NEW = ("--max-new-tokens", "12")
IDS = ["first", 7, 3, "chat", "ünï"]


class Files(NamedTuple):
    pair: Path
    rows: Path
    arbiter: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("generate")
    pair = write_pair(folder / "pair")
    return Files(pair, write_rows(folder / "rows.jsonl", ROWS), write_arbiter(folder / "arbiter", pair))


def test_a_process_prints_json_lines_in_the_files_order_and_nothing_else(files: Files) -> None:
    result = run_process(
        *("generate", "--pair", "pair/PAIR.yaml", "--prompts", "rows.jsonl", "--max-new-tokens", "20"),
        *("--batch-size", "2", "--arbiter", "arbiter"),
        cwd=files.rows.parent,
    )
    assert result.returncode == 0, result.stderr
    lines = read_rows(result.stdout)
    assert [line["id"] for line in lines] == IDS
    for line in lines:
        assert list(line) == KEYS
        assert 1 <= len(line["output_ids"]) <= 20
        assert line["finish_reason"] in ("eos", "length")
        assert line["num_kept"] <= line["num_mismatches"] <= line["num_drafted"]
        assert line["num_accepted"] <= len(line["output_ids"]) <= line["num_accepted"] + line["num_rounds"]
    assert sum(line["num_mismatches"] for line in lines) > 0


def test_a_warning_of_the_engine_is_one_line(files: Files) -> None:
    options = ("w9 w10", "--rule", "cactus", "--max-new-tokens", "2")
    result = run_process("generate", "--pair", files.pair, *options, cwd=files.rows.parent)
    assert result.returncode == 0, result.stderr
    warned = [line for line in result.stderr.splitlines() if "warning" in line.lower()]
    assert len(warned) == 1, result.stderr
    assert warned[0].startswith("cospec: warning: rule 'cactus")
    assert "warnings.warn(" not in result.stderr
    assert "engine(" not in result.stderr


def lines_of(files: Files, *options: str) -> list[dict[str, Any]]:
    arguments = ("generate", "--pair", files.pair, "--prompts", files.rows, "--max-new-tokens", "12")
    result = run_here(*arguments, *options)
    assert result.exit_code == 0, result.output
    return read_rows(result.stdout)


def test_rules_are_what_they_say(files: Files) -> None:
    target, never, strict = (lines_of(files, "--rule", rule) for rule in ("target", "never", "strict"))
    assert [line["output_ids"] for line in target] == [line["output_ids"] for line in never]
    assert [line["output_ids"] for line in target] == [line["output_ids"] for line in strict]
    assert all(line["num_rounds"] == len(line["output_ids"]) and line["num_drafted"] == 0 for line in target)
    always = lines_of(files, "--rule", "always", "--bonus", "arbitrated")
    assert all(line["num_kept"] == line["num_mismatches"] for line in always)


def test_an_end_id_replaces_the_models_own(files: Files) -> None:
    text = lines_of(files)[0]["output_ids"]
    ended = lines_of(files, "--eos-token-id", str(text[3]), "--eos-token-id", "47")[0]
    assert ended["finish_reason"] == "eos"
    assert ended["output_ids"] == text[: text.index(text[3]) + 1]


def test_raw_takes_the_text_as_it_stands(files: Files, tmp_path: Path) -> None:
    raw = write_rows(tmp_path / "raw.jsonl", [{"id": 1, "prompt": "w20 w21"}, {"id": 2, "prompt_ids": [1, 20, 21]}])
    as_text, as_ids = lines_of(files._replace(rows=raw), "--raw")
    assert as_text["output_ids"] == as_ids["output_ids"]


def test_sampling_depends_on_seed_and_row_not_on_the_batch(files: Files) -> None:
    options = ("--temperature", "1.5", "--top-k", "20", "--top-p", "0.9")
    one, other = lines_of(files, *options, "--batch-size", "1"), lines_of(files, *options, "--batch-size", "5")
    assert one == other
    assert one != lines_of(files, *options, "--seed", "1")


def test_a_single_prompt_prints_its_text_or_one_line(files: Files) -> None:
    arguments = ("generate", "w9 w10", "--pair", files.pair, "--max-new-tokens", "5")
    line = json.loads(run_here(*arguments, "--json").stdout)
    assert list(line) == KEYS
    assert run_here(*arguments).stdout == line["text"] + "\n"


def test_a_stop_string_ends_a_text(files: Files) -> None:
    options = ("generate", "--pair", files.pair, "w9 w10", "--rule", "never", "--max-new-tokens", "12")
    whole = run_here(*options, "--json")
    words = json.loads(whole.stdout)["text"].split()
    cut = run_here(*options, "--json", "--stop", "nowhere", "--stop", f"{words[3]} {words[4]}")
    line = json.loads(cut.stdout)
    assert line["finish_reason"] == "stop"
    assert line["text"].split() == words[:3]
    assert len(line["output_ids"]) == 5
    assert_refused(run_here(*options, "--stop", ""), "stop string is empty")
    assert_refused(run_here(*options, "--stop", "</s>"), "special token '</s>'", "eos_token_id 2")


@pytest.mark.parametrize("verb", ["generate", "rollout", "eval", "sweep"])
def test_packed_weights_write_the_same(
    files: Files, tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "_FEWEST_WEIGHTS", 1)
    calls: list[int] = []
    forward = packed._PackedLinear.forward
    monkeypatch.setattr(packed._PackedLinear, "forward", lambda own, x: calls.append(1) or forward(own, x))
    found = []
    for name in ("plain", "packed"):
        where = [] if verb == "generate" else ["--out", tmp_path / name]
        more = ["--scorer", "number"] if verb in ("eval", "sweep") else []
        more += ["--rule", "strict"] if verb == "sweep" else []
        rows = write_rows(tmp_path / "rows.jsonl", [{**row, "id": i, "gold": "1"} for i, row in enumerate(ROWS)])
        flag = ["--packed"] if name == "packed" else []
        result = run_here(verb, "--pair", files.pair, "--prompts", rows, *NEW, *more, *where, *flag)
        assert result.exit_code == 0, result.output
        file = {"generate": "", "rollout": "", "eval": "samples.jsonl", "sweep": "temperature=0/k5/samples.jsonl"}[verb]
        lines = read_rows((tmp_path / name / file).read_text() if where else result.stdout)
        found.append([(line["id"], line.get("method"), line["text"]) for line in lines])
        assert bool(calls) == (name == "packed")
    assert found[0] == found[1]


def test_a_stream_of_one_prompt_is_its_text(files: Files) -> None:
    options = ("generate", "--pair", files.pair, "w9 w10", "--max-new-tokens", "12")
    assert run_here(*options, "--stream").stdout == run_here(*options).stdout


def test_a_stream_of_a_file_is_pieces_and_lines(files: Files) -> None:
    options = ("generate", "--pair", files.pair, "--prompts", files.rows, "--max-new-tokens", "12", "--batch-size", "2")
    expected = {line["id"]: line for line in read_rows(run_here(*options).stdout)}
    pieces: dict[Any, list[str]] = {id: [] for id in expected}
    found = {}
    for line in read_rows(run_here(*options, "--stream").stdout):
        if "piece" in line:
            assert line["id"] not in found
            pieces[line["id"]].append(line["piece"])
        else:
            found[line["id"]] = line
    assert found == expected
    assert {id: "".join(parts) for id, parts in pieces.items()} == {id: line["text"] for id, line in expected.items()}
    assert max(map(len, pieces.values())) > 1


def test_blocks_as_long_as_pays_write_the_same_text(files: Files) -> None:
    options = ("generate", "--pair", files.pair, "--prompts", files.rows, "--max-new-tokens", "12")
    texts = [line["text"] for line in read_rows(run_here(*options).stdout)]
    for ratio in ("0.9", "auto"):
        result = run_here(*options, "--cost-ratio", ratio)
        assert [line["text"] for line in read_rows(result.stdout)] == texts
        assert ("a draft step takes" in result.stderr) == (ratio == "auto")
    for bad in ("0", "-1", "nan", "cheap"):
        assert_refused(run_here(*options, "--cost-ratio", bad), "--cost-ratio is")


def test_a_rule_takes_parameters(files: Files) -> None:
    options = ("generate", "--pair", files.pair, "--prompts", files.rows, "--max-new-tokens", "12")
    texts = {
        spec: [line["text"] for line in read_rows(run_here(*options, "--rule", spec, "--bonus", "arbitrated").stdout)]
        for spec in ("always", "strict", "ensemble:weight=0", "cascade_v3:alpha=1", "tok_lt:alpha=-1")
    }
    assert texts["always"] == texts["ensemble:weight=0"] == texts["cascade_v3:alpha=1"] != texts["strict"]
    assert texts["tok_lt:alpha=-1"] == texts["strict"]


def test_texts_that_outgrow_the_drafts_context_are_counted(files: Files, tmp_path: Path) -> None:
    write_model(tmp_path / "draft", seed=1, max_position_embeddings=14)
    models = ("--draft", tmp_path / "draft", "--target", files.pair.parent / "target")
    options = (*models, "--prompts", files.rows, *NEW)
    line = "of 5 texts outgrew the draft's context of 14 tokens: from there on the target wrote alone"
    for more in ((), ("--stream",)):
        result = run_here("generate", *options, *more)
        assert result.exit_code == 0, result.output
        assert line in result.stderr
    assert "outgrew" not in run_here("generate", *options, "--rule", "target").stderr
    assert "outgrew" not in run_here("generate", "--pair", files.pair, "--prompts", files.rows, *NEW).stderr
    assert line in run_here("rollout", *options, "--out", tmp_path / "rollouts.jsonl").stderr


def test_a_stopped_run_has_printed_everything_that_was_finished(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def finished() -> Any:
        yield from ((1, "b"), (0, "a"), (3, "d"))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stop:
        generate._print_in_order(finished(), 4, str)
    assert capsys.readouterr().out == "a\nb\nd\n"
    assert stop.value.__notes__ == ["the 3 of 4 lines printed so far"]


def test_a_run_that_was_stopped_before_its_first_text_has_kept_nothing() -> None:
    def nothing() -> Any:
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt) as stop:
        generate._print_in_order(nothing(), 1, str)
    assert stop.value.__notes__ == ["nothing"]


def other_tokenizer(tmp_path: Path, files: Files) -> list[str]:
    write_model(tmp_path / "other", seed=1, tokenizer=word_tokenizer(50))
    return ["w9", "--draft", str(tmp_path / "other"), "--target", str(files.pair.parent / "target")]


def other_pair(tmp_path: Path, files: Files) -> list[str]:
    return ["w9", "--pair", str(write_pair(tmp_path / "other", seed=9)), "--arbiter", str(files.arbiter)]


def with_rows(text: str) -> Callable[[Path, Files], list[str]]:
    def build(tmp_path: Path, files: Files) -> list[str]:
        (tmp_path / "rows.jsonl").write_text(text)
        return ["--pair", str(files.pair), "--prompts", str(tmp_path / "rows.jsonl")]

    return build


def with_options(*options: str) -> Callable[[Path, Files], list[str]]:
    return lambda tmp_path, files: ["w9", "--pair", str(files.pair), *options]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (with_options("--num-draft-tokens", "0"), ["--num-draft-tokens is 0", "at least 1"]),
        (with_options("--max-new-tokens", "0"), ["--max-new-tokens is 0"]),
        (with_options("--temperature", "-1"), ["temperature is -1"]),
        (with_options("--rule", "lenient"), ["no rule 'lenient'", "strict", "target", "arbiter"]),
        (with_options("--rule", "arbiter"), ["--arbiter DIR"]),
        (with_options("--rule", "arbiter:runs/a"), ["--arbiter DIR"]),
        (with_options("--rule", "cactus,delta=0.25"), ["a comma before its parameters", "write cactus:delta=0.25"]),
        (with_options("--drafter", "ngrm"), ["did you mean 'ngram'"]),
        (with_options("--rule", "cactus:dleta=1"), ["no parameter 'dleta'", "did you mean 'delta'"]),
        (with_options("--rule", "lenience:alpha=1"), ["alpha=1 is out of range", "[0, 1)"]),
        (with_options("--rule", "cascade_v3:alpha=1,rows=processed"), ["no sense at temperature 0", "rows=raw"]),
        (with_options("--rule", "cactus", "--bonus", "rule"), ["no law of its own"]),
        (with_options("--rule", "contrastive:alpha=0.1", "--drafter", "ngram"), ["needs the drafter's distribution"]),
        (with_options("--rule", "strict", "--arbiter", "x"), ["--rule strict", "contradict"]),
        (with_options("--threshold", "0.7"), ["--threshold", "--arbiter DIR"]),
        (with_options("--rule", "target", "--bonus", "arbitrated"), ["--bonus", "nothing here drafts"]),
        (with_options("--rule", "target", "--cost-ratio", "0.3"), ["--cost-ratio", "nothing here drafts"]),
        (with_options("--rule", "target", "--cost-ratio", "auto"), ["--cost-ratio", "nothing here drafts"]),
        (with_options("--rule", "target", "--num-draft-tokens", "7"), ["--num-draft-tokens", "nothing here drafts"]),
        (with_options("--arbiter", "nowhere"), ["no arbiter directory 'nowhere'"]),
        (with_options("--eos-token-id", "48"), ["48", "0..47"]),
        (with_options("--prompts", "x.jsonl"), ["keep one of them"]),
        (with_options("--draft", "x"), ["--pair and --draft"]),
        (with_options("--raw", "--device", "cuda:77"), ["cuda:77"]),
        (lambda tmp_path, files: ["--pair", str(files.pair)], ["no prompt given"]),
        (lambda tmp_path, files: [" ", "--pair", str(files.pair)], ["prompt is empty"]),
        (
            lambda tmp_path, files: ["w9", "--pair", str(files.pair.parent / "target")],
            ["is a directory", "--draft MODEL --target MODEL"],
        ),
        (lambda tmp_path, files: ["w9", "--pair", str(tmp_path / "no.yaml")], ["no.yaml", "does not exist"]),
        (lambda tmp_path, files: ["w9", "--draft", "./no", "--target", "./no"], ["draft", "'./no'", "does not exist"]),
        (lambda tmp_path, files: ["--pair", str(files.pair), "--prompts", "no.jsonl"], ["no.jsonl does not exist"]),
        (with_rows(""), ["rows.jsonl", "no rows"]),
        (with_rows('{"id": 1, "prompt": "  "}\n'), ["rows.jsonl:1", "empty"]),
        (with_rows(json.dumps({"id": "long", "prompt_ids": [9] * CONTEXT})), ["'long'", str(CONTEXT), "shorten"]),
        (with_rows('{"id": 1, "prompt_ids": [48]}'), ["48", "another tokenizer"]),
        (other_tokenizer, ["tokenizers differ first at id 48", "'w48'"]),
        (other_pair, ["made for another pair", "a draft with other weights"]),
    ],
)
def test_bad_input_is_refused_by_name(
    files: Files, tmp_path: Path, arguments: Callable[[Path, Files], list[str]], parts: list[str]
) -> None:
    assert_refused(run_here("generate", *arguments(tmp_path, files)), *parts)


def test_a_pair_file_with_an_unknown_key_is_refused(files: Files, tmp_path: Path) -> None:
    (tmp_path / "PAIR.yaml").write_text("draft: {path: a, attention: eager}\ntarget: {path: b}\n")
    assert_refused(run_here("generate", "w9", "--pair", tmp_path / "PAIR.yaml"), "draft.attention", "draft.attn")


def test_rollouts_are_lossless_and_a_second_run_goes_on(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "rollouts.jsonl"
    arguments = ("rollout", "--pair", files.pair, "--prompts", files.rows, "--out", out, "--max-new-tokens", "16")
    first = run_here(*arguments, "--json")
    assert first.exit_code == 0, first.output
    summary, written = json.loads(first.stdout), out.read_text()
    rollouts = [rollout_from_json(row) for row in read_rows(written)]
    assert sorted(map(str, IDS)) == sorted(str(rollout.id) for rollout in rollouts)
    assert {rollout.settings.rule for rollout in rollouts} == {"never"}
    assert [rollout.to_json() for rollout in rollouts] == [json_like(rollout.to_json()) for rollout in rollouts]
    assert summary["num_tokens"] == sum(len(rollout.output_ids) for rollout in rollouts)
    assert summary["num_kept"] == 0
    lines = written.splitlines(keepends=True)
    out.write_text("".join(lines[:2]) + lines[2][:50])
    second = run_process(*arguments, "--json", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    resumed = json.loads(second.stdout)
    assert (resumed["num_kept_from_before"], resumed["num_new"]) == (2, 3)
    assert {row["id"]: row["output_ids"] for row in read_rows(out.read_text())} == {
        rollout.id: list(rollout.output_ids) for rollout in rollouts
    }
    assert_refused(run_here(*arguments, "--num-draft-tokens", "3"), str(out), "num_draft_tokens was 5, now 3")
    hotter = run_here(*arguments, "--temperature", "0.5", "--seed", "1")
    assert_refused(hotter, "(seed was 0, now 1, temperature was 0.0, now 0.5): name another")


def test_ends_in_another_order_are_the_same_ends(files: Files, tmp_path: Path) -> None:
    asked = ("rollout", "--pair", files.pair, "--prompts", files.rows, "--out", tmp_path / "rollouts.jsonl", *NEW)
    first = run_here(*asked, "--stop", "w9", "--stop", "w12", "--eos-token-id", "2", "--eos-token-id", "3", "--json")
    assert first.exit_code == 0, first.output
    same = ("--stop", "w12", "--stop", "w9", "--eos-token-id", "3", "--eos-token-id", "2")
    assert json.loads(run_here(*asked, *same, "--json").stdout)["num_kept_from_before"] == 5
    assert_refused(run_here(*asked, *same, "--stop", "w14"), "stop was ('w12', 'w9'), now ('w12', 'w14', 'w9')")


def test_prompts_are_not_taken_for_rollouts(files: Files, tmp_path: Path) -> None:
    out = write_rows(tmp_path / "others.jsonl", ROWS)
    asked = ("rollout", "--pair", files.pair, "--prompts", files.rows, "--out", out, *NEW)
    assert_refused(run_here(*asked), f"{out} holds no rollouts but other rows, such as 'first'")
    out.write_text(json.dumps({"id": 1, "blocks": []}) + "\n")
    assert_refused(run_here(*asked), f"{out}: rollout 1 is not a record of this version")


def test_fields_of_a_row_that_look_like_options_are_said_to_be_none(files: Files, tmp_path: Path) -> None:
    rows = write_rows(
        tmp_path / "rows.jsonl", [{"prompt": "w9", "seed": 3}, {"prompt": "w10", "temperature": 2, "x": 1}]
    )
    asked = ("--pair", files.pair, "--prompts", rows, *NEW)
    for more in (("generate",), ("rollout", "--out", tmp_path / "rollouts.jsonl")):
        result = run_here(*more, *asked)
        assert result.exit_code == 0, result.output
        assert f"{rows}: the rows' temperature, seed do not change how they are decoded" in result.stderr
    assert "rows'" not in run_here("generate", "--pair", files.pair, "--prompts", files.rows, *NEW).stderr


def test_a_prompt_that_is_too_long_is_refused_in_one_line(files: Files, tmp_path: Path) -> None:
    write_model(tmp_path / "draft", seed=1)
    file = tmp_path / "draft" / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": 20}))
    models = ("--draft", tmp_path / "draft", "--target", tmp_path / "draft")
    for more in ((), ("--raw",)):
        result = run_process("generate", *models, *more, " ".join(["w9"] * 300), cwd=tmp_path)
        assert result.returncode == 2
        assert "shorten the prompt" in result.stderr
        assert "Token indices" not in result.stderr


def json_like(row: dict[str, Any]) -> dict[str, Any]:
    return rollout_from_json(json.loads(json.dumps(row))).to_json()


def test_records_of_another_pair_or_written_twice_are_not_taken_for_this_run(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "rollouts.jsonl"
    arguments = ("rollout", "--prompts", files.rows, "--out", out, "--max-new-tokens", "8")
    assert run_here(*arguments, "--pair", files.pair).exit_code == 0
    written = out.read_text()
    other = write_pair(tmp_path / "other", seed=9)
    assert_refused(run_here(*arguments, "--pair", other), "made with another pair")
    assert out.read_text() == written
    out.write_text(written + written)
    assert_refused(run_here(*arguments, "--pair", files.pair), "more than once")


def test_sampled_decisions_need_an_arbiter(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "rollouts.jsonl"
    arguments = ("rollout", "--pair", files.pair, "--prompts", files.rows, "--out", out, "--max-new-tokens", "8")
    assert_refused(run_here(*arguments, "--sampled"), "--sampled", "--arbiter DIR")
    assert not out.exists()
    result = run_here(*arguments, "--sampled", "--arbiter", files.arbiter)
    assert result.exit_code == 0, result.output
    assert all(row["settings"]["sampled_decisions"] for row in read_rows(out.read_text()))
