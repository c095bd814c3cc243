"""`cospec tune` on the bundled pair, and what `generate` and `eval` make of its decode config."""

from __future__ import annotations

import dataclasses
import json
import resource
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from model_dirs import assert_refused, run_here, write_arbiter, write_pair, write_rows

from cospec.cli.tune_report import _show_confirm
from cospec.decode_file import DecodeConfig, read_decode_file, write_decode_file
from cospec.engine import packed
from cospec.engine.record import Sampling
from cospec.engine.rules import rule_named
from cospec.evaluation.table import STARVED
from cospec.evaluation.tune import rounds
from cospec.evaluation.tune.rounds import RoundCosts

PROMPT = "Ben has 14 coins. First Ben finds 9 coins. How many coins does Ben have now?"
TUNE = ["tune", "--pair", "tiny", "--task", "word_problems", "--max-new-tokens", "48", "--batch-size", "16"]


def test_tune_end_to_end(tmp_path: Path) -> None:
    file = tmp_path / "decode.yaml"
    asked = [*TUNE, "--num", "96", "--probe", "16", "--num-draft-tokens", "1,3,6", "--temperature", "0.6"]
    asked += ["--budget", "25", "--rule", "always lenience", "--confirm", "16", "--out", str(file), "--json"]
    done = run_here(*asked)
    assert done.exit_code == 0, done.output
    numbers = json.loads(done.stdout)
    lengths = numbers["lengths"]
    assert [row["num_draft_tokens"] for row in lengths["lengths"]] == [1, 3, 6]
    best = max(lengths["lengths"], key=lambda row: row["gain"])
    assert numbers["num_draft_tokens"] == best["num_draft_tokens"]
    # More drafts, more tokens a round, at most one more than drafts; every gain is tokens by cost.
    tokens = [row["tokens_per_round"] for row in lengths["lengths"]]
    assert tokens == sorted(tokens)
    assert all(row["tokens_per_round"] <= row["num_draft_tokens"] + 1 for row in lengths["lengths"])
    assert all(row["gain"] == pytest.approx(row["tokens_per_round"] / row["round_cost"]) for row in lengths["lengths"])
    trial = {row["name"]: row for row in numbers["race"]["candidates"]}
    assert list(trial) == ["always", "lenience:alpha=0.3"]
    assert all(row["num_problems"] <= 64 for row in trial.values())
    assert numbers["num_texts"]["trial"] >= sum(row["num_problems"] for row in trial.values())
    # What pays depends on the machine; the target needs no comparison with itself.
    assert numbers["rule"] in ("target", "strict", *trial)
    assert numbers["confirm"]["num_problems"] == 16 if numbers["rule"] != "target" else numbers["confirm"] is None
    assert numbers["lengths"]["acceptance"]["num_draft_tokens"] == 6
    assert len(numbers["lengths"]["acceptance"]["acceptance_by_position"]) == 6
    assert numbers["num_texts"]["timing"] == 4 * 6 * 16
    assert any("do not transfer between tasks" in line for line in numbers["warnings"])
    config = read_decode_file(file)
    assert config.rule == numbers["rule"]
    assert config.num_draft_tokens == numbers["num_draft_tokens"]
    assert config.sampling == Sampling(0.6)
    assert config.provenance["task"] == "word_problems"
    assert config.provenance["budget_points"] == 25
    written = run_here("generate", "--pair", "tiny", "--decode", file, "--max-new-tokens", "20", "--json", PROMPT)
    assert written.exit_code == 0, written.output
    assert "chosen for another pair" not in written.stderr
    same = ["--rule", config.rule, "--temperature", "0.6"]
    same += ["--num-draft-tokens", str(config.num_draft_tokens)] if config.rule != "target" else []
    spelt = run_here("generate", "--pair", "tiny", *same, "--max-new-tokens", "20", "--json", PROMPT)
    assert written.stdout == spelt.stdout


def test_copies_are_counted_in_runs_at_every_k(tmp_path: Path) -> None:
    asked = ["--pair", "tiny", "--task", "word_problems", "--num", "6", "--max-new-tokens", "48", "--drafter", "ngram"]
    done = run_here("tune", *asked, "--probe", "6", "--num-draft-tokens", "2,6", "--json")
    assert done.exit_code == 0, done.output
    numbers = json.loads(done.stdout)
    assert numbers["num_texts"]["probe"] == 12
    # Six runs of each K and of the target alone, in batches that six problems fill to the eight asked for.
    assert numbers["num_texts"]["timing"] == 6 * 3 * 8
    for row in numbers["lengths"]["lengths"]:
        k = str(row["num_draft_tokens"])
        run = run_here("eval", *asked, "--methods", "strict", "--num-draft-tokens", k, "--out", tmp_path / k, "--json")
        assert run.exit_code == 0, run.output
        exact = json.loads(run.stdout)["methods"]["strict"]["tokens_per_round"]
        assert row["tokens_per_round"] == pytest.approx(exact)


def fixed_costs(monkeypatch: pytest.MonkeyPatch, round_s: float) -> None:
    """Rounds at every K that cost ``round_s`` steps of the target, whatever the machine."""

    def measured(pair: Any, requests: Any, lengths: Sequence[int], *rest: Any, **settings: Any) -> RoundCosts:
        return RoundCosts(1.0, dict.fromkeys(lengths, round_s), 0.1)

    monkeypatch.setattr(rounds, "measure_rounds", measured)


def with_scorer(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> list[str | Path]:
    """Options of a trial of `always` on prompts that a scorer with this ``body`` judges; it counts in ``num``."""
    (folder / f"{folder.name}_scorer.py").write_text(
        "import itertools\nfrom cospec.scoring import Verdict\ncount = itertools.count(1)\n\n"
        f"def score(text, row):\n    num = next(count)\n    {body}\n    return Verdict('right', None, '')\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    rows = write_rows(folder / "rows.jsonl", [{"id": i, "prompt": PROMPT, "gold": "23"} for i in range(28)])
    asked: list[str | Path] = ["tune", "--pair", "tiny", "--prompts", rows, "--scorer", f"{folder.name}_scorer:score"]
    asked += ["--max-new-tokens", "16", "--batch-size", "16", "--probe", "4", "--num-draft-tokens", "3"]
    # No draft step for the bonus: by the clock, one more may cost what `always` gains.
    return [*asked, "--budget", "60", "--rule", "always", "--bonus", "target", "--out", folder / "decode.yaml"]


def test_where_drafting_does_not_pay_the_target_alone_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed_costs(monkeypatch, 50.0)
    file = tmp_path / "decode.yaml"
    done = run_here(*TUNE, "--num", "6", "--probe", "6", "--num-draft-tokens", "2,3", "--out", file)
    assert done.exit_code == 0, done.output
    assert "no K pays here" in done.stderr
    assert f"chosen in {file}: target, as nothing is faster" in done.stdout
    config = read_decode_file(file)
    assert (config.rule, config.num_draft_tokens) == ("target", 3)
    written = run_here("generate", "--pair", "tiny", "--decode", file, "--max-new-tokens", "8", PROMPT)
    assert written.exit_code == 0, written.output
    asked = ["eval", "--pair", "tiny", "--task", "word_problems", "--num", "2", "--max-new-tokens", "8"]
    assert run_here(*asked, "--methods", "strict", "--decode", file).exit_code == 0
    copies = ["--num", "2", "--probe", "2", "--num-draft-tokens", "2", "--drafter", "ngram", "--out", file]
    assert run_here(*TUNE, *copies).exit_code == 0
    config = read_decode_file(file)
    # K is this drafter's, so methods beside the choice draft with it too; the choice itself needs none.
    assert (config.rule, config.drafter) == ("target", "ngram")
    for methods in ("draft", "target", "strict"):
        judged = run_here(*asked, "--methods", methods, "--decode", file, "--json")
        assert (judged.exit_code, "another pair" in judged.stderr) == (0, False), judged.output
        assert json.loads(judged.stdout)["settings"]["drafter"].startswith("ngram")
    same = run_here("generate", "--pair", "tiny", "--decode", file, "--max-new-tokens", "8", PROMPT)
    assert (same.exit_code, same.stdout) == (0, written.stdout), same.output
    # A rule that is not fast enough to make up for it is not chosen either.
    done = run_here(*with_scorer(tmp_path, monkeypatch, "pass"), "--json")
    assert done.exit_code == 0, done.output
    numbers = json.loads(done.stdout)
    assert numbers["rule"] == read_decode_file(file).rule == "target"
    assert numbers["race"]["candidates"][0]["outcome"] in ("slower", "kept")


def test_the_file_of_the_target_alone_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_costs(monkeypatch, 50.0)
    done = run_here(*with_scorer(tmp_path, monkeypatch, "pass"), "--confirm", "4", "--json")
    assert done.exit_code == 0, done.output
    assert "--confirm was not run: the choice is the target itself" in done.stderr
    found = read_decode_file(tmp_path / "decode.yaml").provenance
    (told,), (tried,) = found["candidates"], json.loads(done.stdout)["race"]["candidates"]
    assert told == {key: tried[key] for key in told}
    assert {"name", "outcome", "num_problems", "difference", "speedup"} <= set(told)
    assert (found["trial"], found["confirm"]) == (None, None)
    assert any("--confirm was not run" in line for line in found["warnings"])


def test_a_choice_that_pays_where_strict_does_not_says_by_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Strict writes 3.2 tokens a round here, always 4.
    fixed_costs(monkeypatch, 3.4)
    done = run_here(*with_scorer(tmp_path, monkeypatch, "pass"))
    assert done.exit_code == 0, done.output
    assert "no K pays here for strict: with the best, 3, it is 0.94 times as fast" in done.stderr
    found = read_decode_file(tmp_path / "decode.yaml").provenance
    gain = found["gain_of_strict"] * found["trial"]["speedup"]
    assert found["gain_of_choice"] == pytest.approx(gain, abs=1e-3)
    assert f"always, K = 3, {found['gain_of_choice']:.2f} times as fast as the target alone" in done.stdout
    assert found["gain_of_strict"] < 1 < found["gain_of_choice"]
    assert "minus strict" in done.stdout


@pytest.mark.parametrize(("p", "verdict"), [(0.024, "is ruled out"), (0.03, "cannot be ruled out")])
def test_a_loss_is_ruled_out_at_the_level_of_an_evaluation(
    p: float, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # An interval by another method may say otherwise.
    _show_confirm({"num_problems": 12, "difference": 0.0, "ci95": (-0.2, 0.2), "margin": 0.3, "p_inferior": p})
    assert f"a loss of 30 points {verdict} (p 0.0" in capsys.readouterr().out


def test_a_rule_that_decides_as_strict_does_at_this_k_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed_costs(monkeypatch, 0.5)
    asked = [*with_scorer(tmp_path, monkeypatch, "pass"), "--json"]
    done = run_here(*asked, "--rule", "cactus:delta=1 fly:window=3,theta=0.1 fly:window=2,theta=0.1")
    assert done.exit_code == 0, done.output
    assert "not tried: rule 'cactus:delta=1' decides exactly as strict" in done.stderr
    assert "has a window of 3 behind it" in done.stderr
    tried = [row["name"] for row in json.loads(done.stdout)["race"]["candidates"]]
    assert tried == ["always", rule_named("fly:window=2,theta=0.1").spec]


def test_without_a_rule_worth_trying_strict_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_costs(monkeypatch, 0.5)
    asked = [*TUNE, "--num", "8", "--probe", "4", "--num-draft-tokens", "2", "--budget", "50", "--rule", "cactus"]
    done = run_here(*asked, "--out", tmp_path / "decode.yaml", "--json")
    assert done.exit_code == 0, done.output
    assert "not tried: rule 'cactus" in done.stderr
    assert (json.loads(done.stdout)["rule"], json.loads(done.stdout)["race"]) == ("strict", None)
    assert read_decode_file(tmp_path / "decode.yaml").provenance["candidates"] == []


def test_what_was_chosen_outlives_an_interrupt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_costs(monkeypatch, 0.5)
    file = tmp_path / "decode.yaml"
    done = run_here(*with_scorer(tmp_path, monkeypatch, "if num == 20: raise KeyboardInterrupt"))
    assert done.exit_code == 130
    assert f"kept: the choice so far in {file}: strict, K = 3" in done.stderr
    config = read_decode_file(file)
    # The bonus asked for is the candidates'.
    assert (config.rule, config.num_draft_tokens, config.bonus) == ("strict", 3, None)


def test_an_interrupt_before_k_is_known_says_that_the_file_is_an_earlier_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*given: Any, **settings: Any) -> RoundCosts:
        raise KeyboardInterrupt

    monkeypatch.setattr(rounds, "measure_rounds", stopped)
    asked, file = with_scorer(tmp_path, monkeypatch, "pass"), tmp_path / "decode.yaml"
    assert run_here(*asked).stderr.endswith("kept: nothing yet\n")
    write_decode_file(file, DecodeConfig())
    done = run_here(*asked)
    assert done.exit_code == 130
    assert f"kept: nothing yet; {file} is an earlier run's" in done.stderr


def test_a_confirmation_that_fails_leaves_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_costs(monkeypatch, 0.5)
    asked = with_scorer(tmp_path, monkeypatch, "assert num <= 32, 'broken'")
    done = run_here(*asked, "--confirm", "8", "--json")
    assert done.exit_code == 0, done.output
    assert "could not be confirmed: the scorer of task" in done.stderr
    numbers = json.loads(done.stdout)
    assert (numbers["rule"], numbers["confirm"]) == ("always", None)
    config = read_decode_file(tmp_path / "decode.yaml")
    assert (config.rule, config.bonus) == ("always", "target")


def test_a_bonus_that_strict_has_not_is_the_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_costs(monkeypatch, 0.5)
    asked = [*TUNE, "--num", "24", "--probe", "4", "--num-draft-tokens", "2", "--temperature", "1", "--budget", "90"]
    done = run_here(*asked, "--rule", "ensemble", "--bonus", "rule", "--out", tmp_path / "decode.yaml", "--json")
    assert done.exit_code == 0, done.output
    config = read_decode_file(tmp_path / "decode.yaml")
    assert config.bonus == ("rule" if config.rule.startswith("ensemble") else None)
    assert_refused(run_here(*TUNE, "--num", "4", "--bonus", "rule"), "--bonus is for choosing a rule: add --budget")


def test_an_arbiters_threshold_is_tuned_and_decoded_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_costs(monkeypatch, 0.5)
    pair, file, text = write_pair(tmp_path), tmp_path / "decode.yaml", "w7 w8 w9"
    directory = write_arbiter(tmp_path / "mine", pair)
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": i, "prompt": f"w{7 + i} w9", "gold": "w8"} for i in range(36)])
    asked = ["tune", "--pair", pair, "--prompts", rows, "--scorer", "cospec.scoring.open_qa:score_open_qa"]
    asked += ["--max-new-tokens", "16", "--probe", "4", "--num-draft-tokens", "4", "--budget", "60"]
    asked += ["--arbiter", directory, "--values", "arbiter:threshold=0,0.9", "--out", file, "--json"]
    done = run_here(*asked)
    assert done.exit_code == 0, done.output
    numbers = json.loads(done.stdout)
    assert [row["name"] for row in numbers["race"]["candidates"]] == ["mine:threshold=0", "mine:threshold=0.9"]
    # One that keeps every draft is by far the fastest, and the budget is a wide one.
    assert numbers["rule"] == "mine:threshold=0"
    config = read_decode_file(file)
    assert (config.rule, config.arbiter, config.threshold) == ("arbiter", str(directory.resolve()), 0.0)
    assert config.provenance["trial"]["name"] == "mine:threshold=0"
    generate, cap = ["generate", "--pair", pair, "--max-new-tokens", "12", "--json"], ["--num-draft-tokens", "4"]
    written = run_here(*generate, "--decode", file, text)
    spelt = run_here(*generate, "--arbiter", directory, "--threshold", "0", *cap, text)
    assert written.exit_code == 0, written.output
    assert written.stdout == spelt.stdout != run_here(*generate, *cap, text).stdout
    evaluate = ["eval", "--pair", pair, "--prompts", rows, "--scorer", "exact", "--methods", "strict", "--json"]
    judged = run_here(*evaluate, "--max-new-tokens", "8", "--decode", file, "--out", tmp_path / "run")
    assert judged.exit_code == 0, judged.output
    described = json.loads(judged.stdout)["settings"]["methods"]["mine"]
    assert (described["rule"], described["threshold"]) == ("arbiter", 0.0)
    (directory / "adapter_config.json").write_text("{}")
    assert_refused(run_here(*generate, "--decode", file, text), "is not the one that", "was made with: tune again")


def test_packed_weights_are_measured_and_the_pair_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_FEWEST_WEIGHTS", 1)
    calls: list[int] = []
    forward = packed._PackedLinear.forward
    monkeypatch.setattr(packed._PackedLinear, "forward", lambda own, x: calls.append(1) or forward(own, x))
    found = []
    for flag in ([], ["--packed"]):
        file = tmp_path / f"decode{len(flag)}.yaml"
        done = run_here(*TUNE, *flag, "--num", "4", "--probe", "2", "--num-draft-tokens", "2", "--out", file)
        assert done.exit_code == 0, done.output
        assert bool(calls) == bool(flag)
        found.append(read_decode_file(file))
    assert [config.provenance["packed"] for config in found] == [False, True]
    assert found[0].provenance["pair_digest"] == found[1].provenance["pair_digest"]


def test_a_decode_config_is_a_method_of_an_evaluation(tmp_path: Path) -> None:
    file = tmp_path / "decode.yaml"
    config = DecodeConfig(rule="cactus:delta=0.5", num_draft_tokens=4, sampling=Sampling(0.7), provenance={"x": [1]})
    write_decode_file(file, config)
    assert read_decode_file(file) == config
    asked = ["eval", "--pair", "tiny", "--task", "word_problems", "--num", "4", "--max-new-tokens", "16", "--methods"]
    done = run_here(*asked, "strict", "--decode", file, "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.output
    numbers = json.loads(done.stdout)
    assert list(numbers["methods"]) == ["target", "strict", "cactus:delta=0.5"]
    assert (numbers["k"], numbers["settings"]["sampling"]["temperature"]) == (4, 0.7)
    model = numbers["methods"]["cactus:delta=0.5"]["timing"]["model"]
    assert model["speedup"] == pytest.approx(model["length_factor"] * model["round_factor"])


def test_a_digest_without_files_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "decode.yaml"
    file.write_text("rule: cactus:delta=1.0\njudge_digest: abc\nsampling: {temperature: 1.0}\n")
    told = ("cactus:delta=1.0 has no files here", "drop judge_digest")
    assert_refused(run_here("generate", "--pair", "tiny", "--decode", file, PROMPT), *told)
    assert_refused(run_here(*TUNE, "--num", "2", "--num-draft-tokens", "600"), "--num-draft-tokens offers 600")


def test_any_text_in_a_decode_config_is_read_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "decode.yaml"
    for text in ("${x}", "${", "???", "\\${oc.env:HOME}"):
        tune = [*TUNE, "--num", "2", "--probe", "2", "--num-draft-tokens", "2", "--out", file, "--stop", text]
        done = run_here(*tune)
        assert done.exit_code == 0, done.output
        assert json.loads(read_decode_file(file).provenance["stop"]) == [text]
    written = run_here("generate", "--pair", "tiny", "--decode", file, "--max-new-tokens", "4", PROMPT)
    assert written.exit_code == 0, written.output
    file.write_text("rule: strict\nprovenance: {note: '${'}\n")
    assert_refused(run_here("generate", "--pair", "tiny", "--decode", file, PROMPT), "decode config", "for a plain ${")


def test_a_decode_config_decides_its_own_method_alone(tmp_path: Path) -> None:
    pair = write_pair(tmp_path / "pair")
    write_arbiter(tmp_path / "mine", pair)
    write_rows(tmp_path / "rows.jsonl", [{"id": 1, "prompt": "w9 w10", "gold": "w9", "task": "exact"}])
    file = tmp_path / "decode.yaml"
    asked = ["eval", "--pair", pair, "--prompts", tmp_path / "rows.jsonl", "--max-new-tokens", "4", "--decode", file]

    def methods(*options: str | Path) -> dict[str, dict[str, object]]:
        done = run_here(*asked, "--json", *options)
        assert done.exit_code == 0, done.output
        found: dict[str, dict[str, object]] = json.loads(done.stdout)["settings"]["methods"]
        return found

    write_decode_file(file, DecodeConfig(rule="ensemble:weight=0.5", bonus="rule"))
    found = methods("--methods", "strict,draft", "--arbiter", f"other={tmp_path / 'mine'}", "--threshold", "0.3")
    bonuses = {name: method["bonus"] for name, method in found.items()}
    assert bonuses.pop("ensemble:weight=0.5") == "rule"
    assert bonuses == {"target": None, "strict": "target", "draft": None, "other": "arbitrated"}
    config = DecodeConfig(rule="arbiter", arbiter=str(tmp_path / "mine"), threshold=0.9, bonus="target")
    write_decode_file(file, config)
    found = methods("--methods", "strict", "--arbiter", f"other={tmp_path / 'mine'}", "--oracle-branch", "1")
    told = {name: (found[name]["threshold"], found[name]["bonus"]) for name in ("mine", "other")}
    assert told == {"mine": (0.9, "target"), "other": (0.5, "arbitrated")}
    assert_refused(run_here(*asked, "--arbiter", tmp_path / "mine"), "'mine' is there already", "NAME=DIR")
    # One of the methods, spelt in another way; nothing else drafts by --bonus.
    write_decode_file(file, DecodeConfig(rule="fly:theta=0.3,window=2"))
    assert list(methods("--methods", "fly:window=2,theta=0.30")) == ["target", "fly:window=2,theta=0.30"]
    assert_refused(run_here(*asked, "--methods", "draft", "--bonus", "target"), "--bonus is given")
    assert_refused(run_here(*asked, "--oracle-branch", "1"), "--oracle-branch checks an arbiter's decisions")


def test_only_another_pair_is_warned_of(tmp_path: Path) -> None:
    file, pair = tmp_path / "decode.yaml", write_pair(tmp_path / "pair")
    rows = write_rows(tmp_path / "rows.jsonl", [{"id": i, "prompt": "w9 w10", "gold": "w9"} for i in range(2)])
    common = ["--prompts", rows, "--scorer", "exact", "--max-new-tokens", "4"]
    tune = ["tune", "--pair", pair, *common, "--probe", "2", "--num-draft-tokens", "2", "--out", file]
    done = run_here(*tune, "--drafter", "ngram:max_match=2")
    assert done.exit_code == 0, done.output
    # The draft model is there for a method of its own, and does not draft.
    same = run_here("eval", "--pair", pair, *common, "--decode", file, "--methods", "draft")
    assert (same.exit_code, "another pair" in same.stderr) == (0, False), same.output
    other = write_pair(tmp_path / "other", seed=5)
    warned = run_here("eval", "--pair", other, *common, "--decode", file, "--methods", "draft")
    assert (warned.exit_code, "another pair" in warned.stderr) == (0, True), warned.output


def test_what_option_and_file_both_say_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "decode.yaml"
    write_decode_file(file, DecodeConfig(rule="strict", num_draft_tokens=4, sampling=Sampling(0.7)))
    generate = ["generate", "--pair", "tiny", "--decode", file, PROMPT]
    # Also where the value is the option's default.
    assert_refused(run_here(*generate, "--num-draft-tokens", "5"), "--num-draft-tokens is given", "`num_draft_tokens`")
    assert_refused(run_here(*generate, "--temperature", "0"), "--temperature is given", "`sampling`")
    assert_refused(run_here(*generate, "--rule", "always"), "--rule is given", "`rule`")
    file.write_text("rule: strict\nnum_drafts: 3\n")
    assert_refused(run_here(*generate), "unknown config key 'num_drafts'", "num_draft_tokens")
    file.write_text("rule: strict\narbiter: somewhere\n")
    assert_refused(run_here(*generate), "belong together")
    for stump in ("# cut behind this line\n", "num_draft_tokens: 9\n"):
        file.write_text(stump)
        assert_refused(run_here(*generate), "names no rule")
    file.write_text("rule: nonsense\n")
    assert_refused(run_here(*generate), "no rule 'nonsense'")


def test_what_tune_cannot_do_is_refused_before_models_are_loaded(tmp_path: Path) -> None:
    assert_refused(run_here(*TUNE, "--num", "20", "--rule", "always"), "--rule is for choosing a rule: add --budget")
    assert_refused(run_here(*TUNE, "--num", "20", "--budget", "0"), "--budget is 0.0: it is in points")
    assert_refused(run_here(*TUNE, "--num", "20", "--budget", "1", "--rule", "strict"), "leave it out of --rule")
    assert_refused(run_here(*TUNE, "--num", "20", "--budget", "1", "--confirm", "5"), "there are 20 problems")
    assert_refused(run_here(*TUNE, "--task", "gsm8k"), "tune each")
    assert_refused(run_here(*TUNE, "--num-draft-tokens", "0"), "write whole numbers from 1 on")


def test_a_choice_outlives_a_write_that_fails(tmp_path: Path) -> None:
    file = tmp_path / "decode.yaml"
    config = DecodeConfig(rule="cactus:delta=0.25", num_draft_tokens=9)
    write_decode_file(file, config)
    # No file may grow beyond this: what a full disk looks like to a writer.
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_decode_file(file, dataclasses.replace(config, provenance={"task": "x" * 300}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert read_decode_file(file) == config
    assert [entry.name for entry in tmp_path.iterdir()] == ["decode.yaml"]


@pytest.mark.slow
def test_tune_finds_the_k_of_a_full_sweep_with_half_of_its_tokens(tmp_path: Path) -> None:
    lengths = "1,2,3,5,8"
    common = ["--pair", "tiny", "--task", "word_problems", "--max-new-tokens", "128", "--batch-size", "32"]
    common += ["--num-draft-tokens", lengths, "--json"]
    swept = run_here("sweep", *common, "--num", "200", "--rule", "strict", "--out", tmp_path / "sweep")
    assert swept.exit_code == 0, swept.output
    cells = [row for row in json.loads(swept.stdout)["cells"] if row["rule"] == "strict"]
    tuned = run_here("tune", *common, "--num", "60", "--probe", "32")
    assert tuned.exit_code == 0, tuned.output
    numbers = json.loads(tuned.stdout)
    # Few texts are finished; most tokens are those of the timed runs.
    assert numbers["num_texts"]["probe"] <= sum(row["num"] for row in cells) / 10
    assert sum(numbers["num_tokens"].values()) <= sum(row["num_tokens"] for row in cells) / 2
    exact = {row["num_draft_tokens"]: row["tokens_per_round"] for row in cells}
    found = {row["num_draft_tokens"]: row for row in numbers["lengths"]["lengths"]}
    assert {k: row["tokens_per_round"] for k, row in found.items()} == pytest.approx(exact, rel=0.06)
    gains = {k: exact[k] / row["round_cost"] for k, row in found.items()}
    assert gains[numbers["num_draft_tokens"]] >= 0.97 * max(gains.values())
    clock = {row["num_draft_tokens"]: row["timing"]["clock_speedup"] for row in cells}
    if min(numbers["lengths"]["cpu_share"], *(row["timing"]["cpu_share"] for row in cells)) < STARVED:
        pytest.skip("other programs had the core: the clock cannot tell which K is best")
    # It does not tell neighbours apart that are within a few percent; the worst K is further away.
    assert min(clock.values()) < 0.93 * max(clock.values()) <= clock[numbers["num_draft_tokens"]]
