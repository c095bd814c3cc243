"""`cospec prompts`, `cospec score` and `cospec overlap` as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmark_data import benchmark
from model_dirs import assert_refused, read_rows, run_here, run_process, write_rows

from cospec.prompt_rows import load_prompt_rows
from cospec.scoring import safe_score, scorer_for
from cospec.scoring.code import isolation_here
from cospec.task_set import load_task


def require_scorer(name: str) -> None:
    try:
        scorer_for(name)
    except ValueError as reason:
        pytest.skip(f"scorer {name!r} not registered: {reason}")


# --- prompts ---------------------------------------------------------------------------------------------------------


def test_prompts_writes_rows_and_what_they_are(tmp_path: Path) -> None:
    data, out = benchmark("gsm8k"), tmp_path / "rows" / "train.jsonl"
    options = ("--split", "train", "--num", "5", "--shots", "2", "--seed", "3", "--data", data)
    done = run_process("prompts", "--task", "gsm8k", "--out", out, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("5 rows of gsm8k (train; MIT) in ")
    loaded = load_task("gsm8k", path=data, split="train", num=5, num_shots=2, seed=3)
    assert load_prompt_rows(out, require_gold=True) == loaded.rows
    assert json.loads((out.parent / "train.info.json").read_text()) == json.loads(json.dumps(loaded.info.to_json()))


def test_prompts_in_plain_text_with_a_system_prompt(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    data = benchmark("mgsm")
    result = run_here(
        "prompts",
        "--task",
        "mgsm:ja",
        "--out",
        out,
        "--data",
        data,
        "--num",
        "2",
        "--plain",
        "--system-prompt",
        "Hm.",
        "--json",
    )
    assert result.exit_code == 0, result.output
    info = json.loads(result.stdout)
    assert (info["chat"], info["system_prompt"], info["num_rows"], info["name"]) == (False, "Hm.", 2, "mgsm:ja")
    assert [row.prompt.startswith("Hm.\n\nQuestion: ") for row in load_prompt_rows(out, True) if row.prompt] == [
        True
    ] * 2


def test_written_prompts_train_with_the_tasks_scorer(tmp_path: Path) -> None:
    """What GRPO does with them: rows from the file, scorer by name, texts scored with the row."""
    cases = {"triviaqa": "open_qa", "nq_open": "open_qa"}
    for task, scorer in cases.items():
        out = tmp_path / f"{task}.jsonl"
        assert (
            run_here("prompts", "--task", task, "--out", out, "--data", benchmark(task), "--num", "20").exit_code == 0
        )
        for row in load_prompt_rows(out, require_gold=True):
            assert safe_score(scorer_for(scorer), row.gold or "", row.scorer_row()).is_right


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--task", "gsm8kk"], ["unknown task 'gsm8kk'", "did you mean 'gsm8k'"]),
        (["--task", "gsm8k", "--split", "dev", "--data", "."], ["no split 'dev'", "test, train"]),
        (["--task", "gsm8k", "--data", "nowhere"], ["nowhere does not exist"]),
        (["--task", "word_problems", "--data", "."], ["are generated"]),
        (["--task", "word_problems", "--num", "0"], ["num is 0"]),
    ],
)
def test_prompts_refuses_what_does_not_fit(tmp_path: Path, options: list[str], parts: list[str]) -> None:
    assert_refused(run_here("prompts", "--out", tmp_path / "rows.jsonl", *options), *parts)
    assert not list(tmp_path.iterdir())


def test_prompts_needs_a_file_to_write(tmp_path: Path) -> None:
    for out in (tmp_path, ""):
        assert_refused(run_here("prompts", "--task", "word_problems", "--out", out), "is a directory")


GSM8K = [{"question": f"Q{n}?", "answer": f"#### {n}"} for n in range(3)]


@pytest.mark.parametrize(
    ("data", "out"),
    [("mine.jsonl", "mine.jsonl"), ("mine.jsonl", "link.jsonl"), (".", "test.jsonl"), (".", "train.jsonl")],
)
def test_prompts_never_overwrites_the_data_it_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str, out: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine.jsonl", "test.jsonl", "train.jsonl"):
        write_rows(tmp_path / name, GSM8K)
    (tmp_path / "link.jsonl").symlink_to("mine.jsonl")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert_refused(run_here("prompts", "--task", "gsm8k", "--data", data, "--out", out), f"--out {out}", "overwritten")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    assert run_here("prompts", "--task", "gsm8k", "--data", data, "--out", "rows.jsonl").exit_code == 0


def test_prompts_says_which_rows_it_drops(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "mine.jsonl", [*GSM8K, {"question": "Q?", "answer": "#### many"}])
    result = run_here("prompts", "--task", "gsm8k", "--data", file, "--out", tmp_path / "rows.jsonl")
    assert result.stderr == f"cospec: dropped {file}:4: gold 'many' is not a number\n"
    assert result.stdout.startswith("3 rows of gsm8k (file, 1 dropped; MIT)")


@pytest.mark.parametrize(
    "command",
    [
        ["rollout", "--prompts", "rows.jsonl", "--out", "rows.jsonl"],
        ["label", "--prompts", "rows.jsonl", "--rollouts", "others.jsonl", "--out", "rows.jsonl"],
        ["label", "--prompts", "others.jsonl", "--rollouts", "rows.jsonl", "--out", "rows.jsonl"],
        ["eval", "--prompts", "rows.jsonl", "--plot", "rows.jsonl"],
    ],
)
def test_no_command_writes_into_its_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rows.jsonl", "others.jsonl"):
        write_rows(tmp_path / name, [{"id": 1, "prompt": "p", "gold": "5", "task": "gsm8k"}])
    before = (tmp_path / "rows.jsonl").read_bytes()
    assert_refused(run_here(*command), "rows.jsonl is the file that is read")
    assert (tmp_path / "rows.jsonl").read_bytes() == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["others.jsonl", "rows.jsonl"]


@pytest.mark.parametrize("command", [["prompts", "--task", "word_problems"], ["rollout", "--prompts", "rows.jsonl"]])
def test_plain_rows_are_not_written_under_a_compressed_name(tmp_path: Path, command: list[str]) -> None:
    assert_refused(run_here(*command, "--out", tmp_path / "o.jsonl.gz"), "o.jsonl.gz: rows are written uncompressed")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "command", [["eval"], ["label", "--rollouts", "rows.jsonl", "--out", "labels.jsonl"]], ids=["eval", "label"]
)
def test_rows_with_unreadable_golds_are_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    golds = ["5", "Janet has #### 18", "6"]
    write_rows(tmp_path / "rows.jsonl", [{"id": n, "prompt": "p", "gold": gold} for n, gold in enumerate(golds)])
    result = run_here(*command, "--prompts", "rows.jsonl", "--scorer", "number")
    assert_refused(result, "scorer 'number' cannot judge by these rows: 1 (the gold answer 'Janet has #### 18'")


# --- score -----------------------------------------------------------------------------------------------------------

TRIVIA = [
    {"id": 1, "golds": ["Mark Twain", "Samuel Clemens"], "text": "The answer is Samuel Clemens."},
    {"id": "two", "golds": ["Mark Twain"], "text": "not Mark Twain"},
    {"id": 3, "golds": ["Mark Twain"], "text": ""},
    {"id": 4, "gold": "Paris", "text": "Paris"},
]
VERDICTS = ["right", "wrong", "no_answer", "right"]


def test_a_line_is_a_line_whatever_the_text_holds(tmp_path: Path) -> None:
    text = "Paris\u2028or\u0085Rome\u2029or\x0bnot\nso"
    file = write_rows(tmp_path / "rows.jsonl", [{"id": text, "gold": "x", "text": f"Answer: {text}"}])
    printed = run_here("score", "--scorer", "open_qa", "--rows", file).stdout
    assert [json.loads(line)["id"] for line in printed.splitlines()] == [text]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_score_prints_a_line_a_row_in_their_order(tmp_path: Path, workers: str) -> None:
    rows = [row | {"id": f"{copy}/{row['id']}"} for copy in range(30) for row in TRIVIA]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    done = run_process("score", "--task", "triviaqa", "--rows", file, "--workers", workers, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = read_rows(done.stdout)
    assert found[3]["extracted"] == "Paris"
    assert [row["id"] for row in found] == [row["id"] for row in rows]
    assert [row["verdict"] for row in found] == VERDICTS * 30
    assert all(set(row) == {"id", "verdict", "extracted", "reason"} for row in found)
    assert done.stderr == "cospec: 120 rows: 60 right, 30 wrong, 30 no_answer, 0 timeout, 0 error\n"


def test_ids_keep_their_type_and_a_missing_one_is_the_line(tmp_path: Path) -> None:
    rows = [*TRIVIA, {"golds": ["x"], "text": "x"}]
    result = run_here("score", "--scorer", "open_qa", "--rows", write_rows(tmp_path / "rows.jsonl", rows))
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["id"] for line in result.stdout.split("\n")[:-1]] == [1, "two", 3, 4, 5]


def test_a_custom_scorer_runs_in_every_worker(tmp_path: Path) -> None:
    (tmp_path / "my_judge.py").write_text("def score(text, row):\n    return len(text) == row['length']\n")
    rows = [{"id": n, "text": "x" * n, "length": n if n % 2 else -1} for n in range(40)]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    done = run_process("score", "--scorer", "my_judge:score", "--rows", file, "--workers", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [row["verdict"] for row in read_rows(done.stdout)] == ["wrong", "right"] * 20


def test_choice_rows(tmp_path: Path) -> None:
    rows = [{"id": 1, "gold": "C", "text": "Answer: (C)"}, {"id": 2, "gold": "C", "text": "A or C"}]
    result = run_here("score", "--task", "gpqa", "--rows", write_rows(tmp_path / "rows.jsonl", rows))
    assert [json.loads(line)["verdict"] for line in result.stdout.splitlines()] == ["right", "wrong"]


def test_generated_problems_are_scored_from_their_rows(tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym")
    pytest.importorskip("cospec.scoring.process")
    task, prompts = "reasoning_gym:chain_sum", tmp_path / "prompts.jsonl"
    assert run_here("prompts", "--task", task, "--out", prompts, "--num", "3").exit_code == 0
    rows = [
        {"id": row.id, "text": f"<answer>{row.gold}</answer>", **row.extra} for row in load_prompt_rows(prompts, True)
    ]
    result = run_here("score", "--task", task, "--rows", write_rows(tmp_path / "rows.jsonl", rows))
    assert [json.loads(line)["verdict"] for line in result.stdout.splitlines()] == ["right"] * 3


@pytest.mark.parametrize(
    ("task", "row", "message"),
    [
        ("triviaqa", {"id": 2, "text": "x"}, "rows.jsonl:2: no golds or gold, which the scorer 'open_qa' reads"),
        ("triviaqa", {"id": 2, "text": "x", "golds": []}, "rows.jsonl:2: no golds or gold"),
        ("triviaqa", {"id": 2, "text": "x", "golds": "y"}, "rows.jsonl:2: golds is 'y': it must be a list"),
        ("triviaqa", {"id": 2, "golds": ["x"]}, "rows.jsonl:2: 'text' is missing"),
        ("triviaqa", {"id": 2, "golds": ["x"], "text": 5}, "rows.jsonl:2: 'text' is a int"),
        ("triviaqa", {"id": 2.5, "golds": ["x"], "text": "x"}, "rows.jsonl:2: id is 2.5"),
        ("gpqa", {"id": 2, "text": "x", "gold": " "}, "rows.jsonl:2: no gold, which the scorer 'choice' reads"),
        ("reasoning_gym:chain_sum", {"id": 2, "text": "x", "gold": "1"}, "rows.jsonl:2: no dataset"),
    ],
)
def test_rows_that_do_not_fit_are_named_before_anything_is_scored(
    tmp_path: Path, task: str, row: dict[str, Any], message: str
) -> None:
    good = {"id": 1, "text": "x", "golds": ["A"], "gold": "A", "dataset": "chain_sum", "entry": {"a": 1}}
    file = write_rows(tmp_path / "rows.jsonl", [good, row])
    assert_refused(run_here("score", "--task", task, "--rows", file), message)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--task", "triviqa"], ["unknown task 'triviqa'", "'triviaqa'"]),
        (["--scorer", "opn_qa"], ["unknown scorer 'opn_qa'", "'open_qa'"]),
        ([], ["--task NAME or by --scorer NAME"]),
        (["--task", "triviaqa", "--scorer", "open_qa"], ["give one of the two"]),
        (["--task", "triviaqa", "--data", "."], ["leave the data"]),
        (["--scorer", "open_qa", "--data", "."], ["--data holds the rows of a code task"]),
        (["--task", "humaneval"], ["--confirm-run-unsafe-code"]),
        (["--scorer", "code"], ["--confirm-run-unsafe-code"]),
        (["--scorer", "mbpp:full"], ["--confirm-run-unsafe-code"]),
        (["--scorer", "triviaqa", "--confirm-run-unsafe-code"], ["'open_qa' runs no code"]),
        (["--task", "triviaqa", "--minimum-isolation", "limits"], ["'code'", "'open_qa'", "drop it"]),
        (["--task", "mt_bench"], ["no right answers", "python -m cospec.tasks.mt_bench_judge"]),
        (["--task", "triviaqa", "--workers", "0"], ["0 workers"]),
    ],
)
def test_score_refuses_what_does_not_fit(tmp_path: Path, options: list[str], parts: list[str]) -> None:
    file = write_rows(tmp_path / "rows.jsonl", TRIVIA)
    assert_refused(run_here("score", "--rows", file, *options), *parts)


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [])
    assert_refused(run_here("score", "--task", "triviaqa", "--rows", file), "rows.jsonl: no rows")


def test_two_rows_with_one_id_are_named(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "rows.jsonl", [*TRIVIA, TRIVIA[1]])
    assert_refused(run_here("score", "--task", "triviaqa", "--rows", file), "lines 2 and 5 have the same id 'two'")


def test_a_scorer_that_fails_on_many_rows_ends_in_exit_code_one_with_all_rows_printed(tmp_path: Path) -> None:
    rows = [{"id": n, "gold": r"\notacommand{" if n < 2 else "5", "text": "5"} for n in range(30)]
    asked = ("score", "--scorer", "maths", "--rows", write_rows(tmp_path / "rows.jsonl", rows))
    result = run_here(*asked)
    assert result.exit_code == 1
    assert [json.loads(line)["verdict"] for line in result.stdout.splitlines()] == ["error"] * 2 + ["right"] * 28
    assert "the scorer failed on 2 of 30 rows (the first: 0: " in result.stderr
    assert "the allowed share of 0.05" in result.stderr
    assert run_here(*asked, "--max-failed-share", "0.1").exit_code == 0


def test_a_task_as_scorer_is_asked_for_consent_and_says_how_programs_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Set, so that what the command does to it is undone.
    monkeypatch.setenv("COSPEC_ALLOW_CODE_EXECUTION", "0")
    row = {"id": 1, "text": "def f(x): return x", "tests": "assert f(1) == 1"}
    asked = ("score", "--scorer", "humaneval", "--rows", write_rows(tmp_path / "rows.jsonl", [row]))
    result = run_here(*asked, "--confirm-run-unsafe-code", "--minimum-isolation", "limits")
    assert [json.loads(line)["verdict"] for line in result.stdout.splitlines()] == ["right"]
    here = isolation_here()
    assert f"cospec: generated programs run under {here}\n" in result.stderr
    # A lower one than needed, where this machine has the highest.
    monkeypatch.setattr("cospec.scoring.code.isolation_here", lambda: isolation_here(()))
    refused = run_here(*asked, "--confirm-run-unsafe-code", "--minimum-isolation", "contained")
    assert refused.exit_code == 2
    assert "isolation level 'contained' is asked for" in refused.stderr
    assert refused.stdout == ""
    no_tests = write_rows(tmp_path / "bare.jsonl", [{"id": 1, "text": "x"}])
    asked = ("score", "--scorer", "humaneval", "--rows", no_tests, "--confirm-run-unsafe-code")
    assert "no tests or stdin_tests, which the scorer 'code' reads" in run_here(*asked).stderr


def test_mgsm_rows_need_their_language(tmp_path: Path) -> None:
    require_scorer("number")
    file = write_rows(tmp_path / "rows.jsonl", [{"id": 1, "gold": "5", "text": "#### 5"}])
    assert_refused(run_here("score", "--task", "mgsm", "--rows", file), "rows.jsonl:1", "'lang'")


@pytest.mark.parametrize(("task", "form"), [("gsm8k", "#### {}"), ("math500", "\\boxed{{{}}}"), ("svamp", "#### {}")])
def test_gold_answers_of_number_and_maths_tasks_are_right(tmp_path: Path, task: str, form: str) -> None:
    require_scorer(task)
    golds = [row.gold for row in load_task(task, path=benchmark(task), num=20).rows]
    rows = [{"id": n, "gold": gold, "text": form.format(gold)} for n, gold in enumerate(golds)]
    result = run_here("score", "--task", task, "--rows", write_rows(tmp_path / "rows.jsonl", rows))
    assert [json.loads(line)["verdict"] for line in result.stdout.splitlines()] == ["right"] * 20


def test_code_rows_are_tested_by_the_tasks_data(tmp_path: Path) -> None:
    problems = load_task("mbpp:full", path=benchmark("mbpp"), split="prompt", num=3).rows
    rows = [
        {"id": f"{row.id}/{number}", "task_id": row.extra["task_id"], "completion": completion}
        for row in problems
        for number, completion in enumerate((row.gold, "def nothing(): pass", f"```python\n{row.gold}```"))
    ]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    options = ("--data", benchmark("mbpp"), "--confirm-run-unsafe-code", "--workers", "2")
    done = run_process("score", "--task", "mbpp:full", "--rows", file, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [row["verdict"] for row in read_rows(done.stdout)] == ["right", "wrong", "right"] * 3


def test_code_rows_must_name_a_problem_of_the_data(tmp_path: Path) -> None:
    options = ("--task", "humaneval", "--data", benchmark("humaneval"), "--confirm-run-unsafe-code")
    for row, message in (
        ({"id": 1, "completion": ""}, "rows.jsonl:1: no task_id"),
        ({"id": 1, "task_id": "HumanEval/999", "completion": ""}, "has no task_id 'HumanEval/999': did you mean"),
        ({"id": 1, "task_id": "HumanEval/0", "text": ""}, "'completion' is missing"),
    ):
        assert_refused(run_here("score", "--rows", write_rows(tmp_path / "rows.jsonl", [row]), *options), message)


# --- overlap ---------------------------------------------------------------------------------------------------------


def test_overlap_of_training_files_with_a_task(tmp_path: Path) -> None:
    for split in ("test", "train"):
        out = tmp_path / f"{split}.jsonl"
        options = ("--split", split, "--data", benchmark("gsm8k"), "--num", "400")
        assert run_here("prompts", "--task", "gsm8k", "--out", out, *options).exit_code == 0
    trains = ("--train", tmp_path / "train.jsonl", "--train", tmp_path / "test.jsonl")
    asked = ("--task", "mgsm:en", "--data", benchmark("mgsm"))
    found = json.loads(run_here("overlap", *trains, *asked, "--json").stdout)
    assert (found["num_train"], found["num_eval"], found["num_exact"], found["exact_share"]) == (800, 250, 250, 1.0)
    clean = run_here("overlap", *trains[:2], *asked)
    assert clean.exit_code == 0
    assert "250 evaluation rows against 400 training rows" in clean.stdout
    assert "equal to a training prompt: 0 (0.0%)\n" in clean.stdout


def test_overlap_of_two_files(tmp_path: Path) -> None:
    train = write_rows(tmp_path / "train.jsonl", [{"id": 1, "prompt": "a b c d"}, {"id": 2, "prompt": "e"}])
    evaluated = write_rows(tmp_path / "eval.jsonl", [{"id": "x", "prompt": "z b c d"}, {"id": "y", "prompt": "E"}])
    result = run_here("overlap", "--train", train, "--prompts", evaluated, "--n", "3")
    assert "sharing 3 words in a row: 2 (100.0%): x, y" in result.stdout
    assert "equal to a training prompt: 1 (50.0%): y" in result.stdout
    for options, message in (
        ((), "give one of the two"),
        (("--prompts", evaluated, "--num", "3"), "leave them out with --prompts"),
        (("--prompts", evaluated, "--seed", "7"), "leave them out with --prompts"),
        (("--prompts", evaluated, "--n", "0"), "n is 0"),
    ):
        assert_refused(run_here("overlap", "--train", train, *options), message)
