"""Tasks: every benchmark's rows become prompts that say what they are, and rows that score as they should."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from benchmark_data import benchmark

from cospec.jsonl import write_jsonl_atomic
from cospec.prompt_rows import PromptRow, load_prompt_rows
from cospec.scoring import safe_score, scorer_for
from cospec.scoring.registry import scorer_of_task
from cospec.task_set import TaskSet, load_task, prompt_digest
from cospec.tasks.registry import TASKS, is_task, task_named

#: Task, its directory, rows of the default split, a gold answer in the words of a model that got it right.
LOCAL = [
    ("gsm8k", "gsm8k", 1319, "#### {gold}"),
    ("math500", "math500", 500, "\\boxed{{{gold}}}"),
    ("humaneval", "humaneval", 164, None),
    ("mbpp", "mbpp", 257, None),
    ("mbpp:full", "mbpp", 500, None),
    ("mgsm", "mgsm", 2750, "#### {gold}"),
    ("mgsm:te", "mgsm", 250, "#### {gold}"),
    ("triviaqa", "triviaqa", 1000, "{gold}"),
    ("nq_open", "nq_open", 3610, "{gold}"),
    ("svamp", "svamp", 1000, "#### {gold}"),
    ("mt_bench", "mt_bench", 80, None),
]


def write(directory: Path, name: str, *rows: dict[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def gsm(directory: Path, *golds: str, name: str = "test.jsonl") -> Path:
    return write(directory, name, *({"question": f"Q{gold}?", "answer": f"Count.\n#### {gold}"} for gold in golds))


SVAMP_ROW = {"ID": "chal-1", "Body": "Ann has 3 pens", "Question": "How many?", "Answer": 3.0}


def text_of(row: PromptRow) -> str:
    return row.prompt if row.prompt is not None else json.dumps(row.messages, ensure_ascii=False)


@pytest.mark.parametrize(("name", "directory", "num_rows", "answer"), LOCAL)
def test_every_row_of_a_benchmark_is_read(name: str, directory: str, num_rows: int, answer: str | None) -> None:
    loaded = load_task(name, path=benchmark(directory))
    assert loaded.info.num_rows == len(loaded.rows) == num_rows
    assert loaded.info.dropped == ()
    assert len({row.id for row in loaded.rows}) == num_rows
    assert all(row.task == name and row.extra["question"].strip() for row in loaded.rows)
    assert all("\r" not in text_of(row) for row in loaded.rows)
    assert loaded.info.licence
    assert loaded.info.files
    for file, digest in loaded.info.files.items():
        assert hashlib.sha256((benchmark(directory) / file).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize(("name", "directory", "num_rows", "answer"), [case for case in LOCAL if case[3]])
def test_every_gold_answer_is_right_and_the_next_rows_is_not(
    name: str, directory: str, num_rows: int, answer: str
) -> None:
    scorer_name = scorer_of_task(name)
    if scorer_name not in ("open_qa", "choice"):
        pytest.skip(f"{scorer_name}: its own tests go over these files")
    scorer = scorer_for(scorer_name)
    rows = load_task(name, path=benchmark(directory)).rows
    for row, following in zip(rows, [*rows[1:], rows[0]], strict=True):
        own = {answer.casefold().removeprefix("the ") for answer in following.extra["golds"]}
        for gold in row.extra["golds"]:
            assert safe_score(scorer, answer.format(gold=gold), row.scorer_row()).kind == "right", (row.id, gold)
            other = safe_score(scorer, gold, following.scorer_row())
            # "1980s" and "the 1980s" are the one pair of neighbours in these files that are equal when normalised.
            assert other.kind == "wrong" or gold.casefold().removeprefix("the ") in own


@pytest.mark.parametrize(("name", "directory", "num_rows", "answer"), LOCAL)
def test_written_rows_score_like_the_rows_that_were_loaded(
    name: str, directory: str, num_rows: int, answer: str | None, tmp_path: Path
) -> None:
    rows = load_task(name, path=benchmark(directory), num=40).rows
    write_jsonl_atomic(tmp_path / "rows.jsonl", (row.to_json() for row in rows))
    back = load_prompt_rows(tmp_path / "rows.jsonl", require_gold=name != "mt_bench")
    assert back == [dataclasses.replace(row) for row in rows]
    if name == "mt_bench":
        return
    if scorer_of_task(name) == "code":
        return
    try:
        scorer = scorer_for(name)
    except ValueError as reason:
        pytest.skip(str(reason))
    texts = [(answer or "").format(gold=row.gold) for row in rows]
    for row, again, text in zip(rows, back, texts, strict=True):
        assert safe_score(scorer, text, again.scorer_row()) == safe_score(scorer, text, row.scorer_row())
        assert safe_score(scorer, text, again.scorer_row()).is_right, (row.id, text)


def test_the_record_says_what_was_loaded(tmp_path: Path) -> None:
    file = gsm(tmp_path, "1", "2", "3")
    info = load_task("gsm8k", path=tmp_path, num=2, system_prompt="Be brief.", seed=7).info
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert (info.version, info.files) == (f"sha256:{digest}", {"test.jsonl": digest})
    assert (info.name, info.licence, info.split, info.scorer) == ("gsm8k", "MIT", "test", "number")
    assert (info.num_rows, info.num_shots, info.chat, info.seed) == (2, 0, True, 7)
    assert json.loads(json.dumps(info.to_json()))["system_prompt"] == "Be brief."


def test_the_prompt_digest_changes_with_any_prompt_and_with_nothing_else(tmp_path: Path) -> None:
    gsm(tmp_path, *map(str, range(9)))
    gsm(tmp_path, *map(str, range(20, 40)), name="train.jsonl")

    def digest(**options: Any) -> str:
        return load_task("gsm8k", path=tmp_path, **options).info.prompt_sha256

    different: list[dict[str, Any]] = [
        {}, {"num": 3}, {"num_shots": 1}, {"num_shots": 2}, {"num_shots": 2, "seed": 1}, {"chat": False},
        {"system_prompt": "Hm."}, {"system_prompt": "Ha."}, {"split": "train"},
    ]  # fmt: skip
    digests = [digest(**options) for options in different]
    assert len(set(digests)) == len(different)
    assert [digest(**options) for options in different] == digests
    rows = load_task("gsm8k", path=tmp_path).rows
    assert prompt_digest([dataclasses.replace(row, gold="0", id=f"x{row.id}") for row in rows]) == digests[0]


def test_num_takes_the_first_usable_rows_and_drops_are_listed(tmp_path: Path) -> None:
    rows = [{"question": f"Q{n}", "answer": f"#### {n}"} for n in range(5)]
    rows[1]["answer"], rows[3]["answer"] = "no marker", "#### many"
    write(tmp_path, "test.jsonl", *rows)
    loaded = load_task("gsm8k", path=tmp_path, num=2)
    assert [row.gold for row in loaded.rows] == ["0", "2"]
    assert [(drop.id, drop.reason) for drop in loaded.info.dropped] == [
        (f"{tmp_path / 'test.jsonl'}:2", "the answer has no ####")
    ]
    everything = load_task("gsm8k", path=tmp_path, num=100)
    assert [row.gold for row in everything.rows] == ["0", "2", "4"]
    assert [drop.reason for drop in everything.info.dropped][1] == "gold 'many' is not a number"


# --- prompts ---------------------------------------------------------------------------------------------------------


def with_train(directory: Path) -> Path:
    gsm(directory, "1", "2", "25")
    gsm(directory, *map(str, range(20, 40)), name="train.jsonl.gz".removesuffix(".gz"))
    return directory


def roles(row: PromptRow) -> list[str]:
    assert row.messages is not None
    return [message["role"] for message in row.messages]


def test_examples_are_turns_of_a_chat_behind_the_system_turn(tmp_path: Path) -> None:
    row = load_task("gsm8k", path=with_train(tmp_path), num_shots=2, system_prompt="Be brief.").rows[0]
    assert roles(row) == ["system", "user", "assistant", "user", "assistant", "user"]
    assert row.messages is not None
    assert row.messages[0]["content"] == "Be brief."
    assert row.messages[-1]["content"].startswith("Q1?\n\nSolve")
    assert row.messages[2]["content"].startswith("Count.\n#### ")


def test_a_bare_question_is_a_prompt_and_plain_text_is_one_text(tmp_path: Path) -> None:
    bare = load_task("gsm8k", path=with_train(tmp_path)).rows[0]
    assert (bare.messages, bare.prompt is not None) == (None, True)
    plain = load_task("gsm8k", path=tmp_path, num_shots=2, chat=False, system_prompt="Be brief.").rows[0]
    assert plain.prompt is not None
    assert plain.prompt.startswith("Be brief.\n\nQuestion: Q")
    assert plain.prompt.count("Question: ") == 3
    assert plain.prompt.endswith("Question: Q1?\nAnswer:")


def test_examples_are_drawn_by_the_seed_and_fewer_are_the_first_of_more(tmp_path: Path) -> None:
    def examples(num: int, seed: int) -> list[str]:
        row = load_task("gsm8k", path=with_train(tmp_path), num_shots=num, seed=seed, num=1).rows[0]
        assert row.messages is not None
        return [message["content"] for message in row.messages[:-1]]

    assert examples(4, 0) == examples(4, 0)
    assert examples(2, 0) == examples(4, 0)[:4]
    assert examples(4, 0) != examples(4, 1)


@pytest.mark.parametrize("split", ["train", "test"])
def test_no_row_is_among_its_own_examples(tmp_path: Path, split: str) -> None:
    # The question of the test row with gold 25 also stands in the training split.
    rows = load_task("gsm8k", path=with_train(tmp_path), num_shots=10, split=split).rows
    for row in rows:
        assert row.messages is not None
        assert len(row.messages) == 21
        asked = [message["content"] for message in row.messages if message["role"] == "user"]
        assert len(set(asked)) == 11


def test_examples_of_whole_benchmarks_never_hold_the_row(tmp_path: Path) -> None:
    for name, directory, split in (
        ("gsm8k", "gsm8k", "train"),
        ("mbpp:full", "mbpp", "prompt"),
        ("svamp", "svamp", None),
    ):
        rows = load_task(name, path=benchmark(directory), num_shots=5, split=split, num=300).rows
        for row in rows:
            assert row.messages is not None
            shown = [message["content"] for message in row.messages[:-1] if message["role"] == "user"]
            assert len(shown) == 5
            assert not any(example.startswith(row.extra["question"] + "\n") for example in shown)


@pytest.mark.parametrize("name", ["math500", "aime2024", "svamp", "triviaqa", "nq_open", "mgsm:sw"])
def test_examples_written_for_a_task_are_right_themselves(name: str) -> None:
    task = task_named(name)
    assert isinstance(task.shots, tuple)
    assert all(example.worked for example in task.shots)
    try:
        scorer = scorer_for(name)
    except ValueError as reason:
        pytest.skip(str(reason))
    for example in task.shots:
        row = {"id": example.id, "gold": example.gold, "lang": "en", **example.extra}
        assert safe_score(scorer, example.worked or "", row).is_right, example


def test_too_many_examples_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has 20 few-shot examples and 21 are asked for"):
        load_task("gsm8k", path=with_train(tmp_path), num_shots=21)
    with pytest.raises(ValueError, match="has 19 few-shot examples and 20 are asked for"):
        load_task("gsm8k", path=with_train(tmp_path), num_shots=20, split="train")
    with pytest.raises(ValueError, match="'mt_bench' has no few-shot examples"):
        load_task("mt_bench", path=write(tmp_path / "mt", "question.jsonl", {"turns": ["Hi?"]}).parent, num_shots=1)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "dev"}, "task 'gsm8k' has no split 'dev': choose test, train"),
        ({"num": 0}, "num is 0"),
        ({"num_shots": -1}, "num_shots is -1"),
        ({"system_prompt": " "}, "system prompt is empty"),
        ({"revision": "main"}, "a revision names a version on the Hub and the rows are local"),
        ({"split": "train"}, r"no file for split 'train': looked for train with one of \.jsonl"),
        ({"num_shots": 1}, "few-shot examples of 'gsm8k' come from its split 'train'"),
    ],
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    gsm(tmp_path, "1")
    with pytest.raises(ValueError, match=message):
        load_task("gsm8k", path=tmp_path, **options)


def test_a_single_file_is_taken_whole(tmp_path: Path) -> None:
    named, other = gsm(tmp_path, "1", "2"), gsm(tmp_path, "3", name="mine.jsonl")
    assert len(load_task("gsm8k", path=named, split="test").rows) == 2
    mine = load_task("gsm8k", path=other)
    assert [(row.id, row.gold) for row in mine.rows] == [("gsm8k/file/0", "3")]
    assert mine.info.split == "file"
    with pytest.raises(ValueError, match=r"mine\.jsonl: its name is no split's, .* leave the split 'test' out"):
        load_task("gsm8k", path=other, split="test")
    with pytest.raises(ValueError, match=r"test\.jsonl is split test by its name, not 'train'"):
        load_task("gsm8k", path=named, split="train")
    train = load_task("gsm8k", path=gsm(tmp_path, "4", name="train.jsonl"))
    assert (train.rows[0].id, train.info.split) == ("gsm8k/train/0", "train")
    assert load_task("svamp", path=write(tmp_path, "my.jsonl", SVAMP_ROW)).info.split == "test"
    with pytest.raises(ValueError, match=r"mine\.jsonl: which of the files mgsm_en, "):
        load_task("mgsm", path=other)


@pytest.mark.parametrize(
    ("task", "file"),
    [
        ("mgsm:fr", "mgsm_de.tsv"),
        ("gpqa", "gpqa_main.csv"),
        ("mbpp", "mbpp.jsonl"),
        ("mbpp:full", "sanitized-mbpp.jsonl.gz"),
        ("humaneval:plus", "HumanEval.jsonl"),
        ("livecodebench:v1", "test2.jsonl"),
    ],
)
def test_a_file_of_another_variant_is_refused(tmp_path: Path, task: str, file: str) -> None:
    (tmp_path / file).touch()
    with pytest.raises(ValueError, match=r"is of another variant of this task by its name: name that one"):
        load_task(task, path=tmp_path / file)


def test_one_file_is_not_taken_for_a_task_of_several(tmp_path: Path) -> None:
    for task, file in (("mgsm", "mgsm_de.tsv"), ("livecodebench", "test2.jsonl")):
        (tmp_path / file).touch()
        with pytest.raises(ValueError, match=rf"{file} is one of several files of this task: give their directory"):
            load_task(task, path=tmp_path / file)


def test_one_file_of_several_splits_is_cut_by_its_ids() -> None:
    file = benchmark("mbpp") / "mbpp.jsonl.gz"
    assert load_task("mbpp:full", path=file).info.num_rows == 500
    assert load_task("mbpp:full", path=file, split="prompt", num_shots=3).info.num_rows == 10
    assert load_task("mbpp:full", path=file, num_shots=10, num=1).info.num_shots == 10


def test_two_files_for_one_split_are_refused(tmp_path: Path) -> None:
    gsm(tmp_path, "1")
    gsm(tmp_path, "1", name="test.json")
    with pytest.raises(ValueError, match=r"test\.jsonl and test\.json, either of which"):
        load_task("gsm8k", path=tmp_path)


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("gsm8k", {"problem": "x"}, r"test\.jsonl:2: no text in field 'question' \(fields: problem\)"),
        ("triviaqa", {"question": "x"}, r"test\.jsonl:2: neither an 'answer' object nor a list"),
        ("nq_open", {"question": "x", "answer": "y"}, r"dev\.jsonl:2: 'answer' is a str and no list"),
        ("mt_bench", {"turns": []}, r"question\.jsonl:2: neither 'turns' nor 'prompt' is a list"),
        ("mbpp", {"task_id": "Mbpp/1"}, r"sanitized-mbpp\.jsonl:2: field 'task_id' is 'Mbpp/1': it must be a number"),
    ],
)
def test_rows_of_another_format_stop_the_load_with_their_line(
    tmp_path: Path, name: str, row: dict[str, Any], message: str
) -> None:
    files = {"nq_open": "dev.jsonl", "mt_bench": "question.jsonl", "mbpp": "sanitized-mbpp.jsonl"}
    good: dict[str, dict[str, Any]] = {
        "gsm8k": {"question": "a", "answer": "#### 1"},
        "triviaqa": {"question": "a", "golden_answers": ["b"]},
        "nq_open": {"question": "a", "answer": ["b"]},
        "mt_bench": {"turns": ["a"]},
        "mbpp": {"task_id": 11, "prompt": "a", "code": "def f(): pass", "test_list": ["assert not f()"]},
    }
    write(tmp_path, files.get(name, "test.jsonl"), good[name], row)
    with pytest.raises(ValueError, match=message):
        load_task(name, path=tmp_path)


def test_a_file_without_a_usable_row_is_refused(tmp_path: Path) -> None:
    gsm(tmp_path, "many")
    with pytest.raises(ValueError, match=r"gsm8k: no usable row in test\.jsonl \(1 dropped, "):
        load_task("gsm8k", path=tmp_path)


def test_unknown_tasks_and_variants_suggest_known_ones() -> None:
    with pytest.raises(ValueError, match="unknown task 'gsm8': did you mean 'gsm8k'"):
        task_named("gsm8")
    with pytest.raises(ValueError, match=r"task 'mgsm' has no variant 'xx': use mgsm or mgsm:\{en, bn, de"):
        task_named("mgsm:xx")
    with pytest.raises(ValueError, match="task 'gsm8k' has no variants: leave ':de' out"):
        task_named("gsm8k:de")


def test_every_task_has_what_a_result_must_say() -> None:
    for name in TASKS:
        task = task_named(name)
        assert (task.name, bool(task.licence), bool(task.source.splits)) == (name, True, True)
        assert is_task(name)
    assert not is_task("exact")


def test_a_tasks_name_stands_for_its_scorer() -> None:
    assert scorer_for("triviaqa") is scorer_for("open_qa")
    assert scorer_for("gpqa:main") is scorer_for("choice")
    assert scorer_for("reasoning_gym:chain_sum") is scorer_for("reasoning_gym")
    with pytest.raises(ValueError, match="'mt_bench' has no right answers to score: use it for speed and agreement"):
        scorer_for("mt_bench")


# --- single tasks ----------------------------------------------------------------------------------------------------


def loaded(path: Path, name: str, **options: Any) -> TaskSet:
    return load_task(name, path=path, **options)


def test_golds_lose_the_english_thousands_commas(tmp_path: Path) -> None:
    gsm(tmp_path, "1,234", "-5", "2,125,000", "3.50", "0.0", "$7", "−8")
    golds = [row.gold for row in loaded(tmp_path, "gsm8k").rows]
    assert golds == ["1234", "-5", "2125000", "3.5", "0", "7", "-8"]
    gsm(tmp_path, "1,2", "1,23,456", "12,3456", "1.2.3", "")
    with pytest.raises(ValueError, match=r"no usable row in test\.jsonl \(5 dropped, "):
        loaded(tmp_path, "gsm8k")


def test_worked_answers_lose_the_calculators_annotations(tmp_path: Path) -> None:
    write(
        tmp_path, "train.jsonl", *({"question": f"Q{n}", "answer": "So 48/2 = <<48/2=24>>24.\n#### 24"} for n in "ab")
    )
    gsm(tmp_path, "1")
    row = loaded(tmp_path, "gsm8k", num_shots=1).rows[0]
    assert row.messages is not None
    assert row.messages[1]["content"] == "So 48/2 = 24.\n#### 24"


def test_svamp_joins_body_and_question(tmp_path: Path) -> None:
    write(
        tmp_path,
        "SVAMP.jsonl",
        SVAMP_ROW,
        {"ID": "chal-2", "Body": "Ann has 3 pens.", "Question": "How many?", "Answer": "2.5"},
    )
    rows = loaded(tmp_path, "svamp").rows
    assert [row.extra["question"] for row in rows] == ["Ann has 3 pens. How many?"] * 2
    assert [row.gold for row in rows] == ["3", "2.5"]


def test_mgsm_asks_in_the_language_and_hands_it_to_the_scorer(tmp_path: Path) -> None:
    (tmp_path / "mgsm_de.tsv").write_text('Er sagt "5".\t2,125\nWie viele?\t7\n', encoding="utf-8")
    rows = loaded(tmp_path, "mgsm:de").rows
    assert [row.gold for row in rows] == ["2125", "7"]
    assert [row.extra["lang"] for row in rows] == ["de", "de"]
    assert rows[0].prompt is not None
    assert rows[0].prompt.startswith('Er sagt "5".\n\nLöse diese Aufgabe')
    assert rows[0].id == "mgsm/de/0"


def test_triviaqa_reads_both_formats_and_undoes_csv_quoting(tmp_path: Path) -> None:
    answer = {"value": "Mark Twain", "aliases": ["Mark Twain", "Sam Clemens"], "normalized_aliases": ["sam clemens"]}
    write(tmp_path, "validation.jsonl", {"question_id": "tc_1", "question": "Who?", "answer": answer})
    row = loaded(tmp_path, "triviaqa").rows[0]
    assert (row.id, row.gold) == ("triviaqa/tc_1", "Mark Twain")
    assert row.extra["golds"] == ["Mark Twain", "Sam Clemens", "sam clemens"]
    other = write(
        tmp_path / "flash",
        "test.jsonl",
        {"id": "t1", "question": '"Who wrote ""Emma""?"', "golden_answers": ["Jane Austen", "", "Jane Austen"]},
        {"id": "t2", "question": "Who?", "golden_answers": [" "]},
    )
    found = loaded(other, "triviaqa")
    assert found.rows[0].extra == {"question": 'Who wrote "Emma"?', "golds": ["Jane Austen"]}
    assert [drop.reason for drop in found.info.dropped] == ["no gold answer"]


def test_aime_golds_are_whole_numbers_without_leading_zeros(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"id": 60, "problem": "P", "solution": "S", "answer": "025"},
        {"ID": "2024-I-2", "Problem": "P2", "Solution": "S2", "Answer": 204.0},
        {"id": 62, "problem": "P", "answer": "1000"},
        {"id": 63, "problem": "P", "answer": "\\frac12"},
    ]
    found = loaded(write(tmp_path, "train.jsonl", *rows).parent, "aime2024")
    assert [(row.id, row.gold) for row in found.rows] == [("aime2024/60", "25"), ("aime2024/2024-I-2", "204")]
    assert len(found.info.dropped) == 2


def test_maths_golds_that_cannot_be_read_are_dropped(tmp_path: Path) -> None:
    rows = [
        {"problem": "P", "solution": "S", "answer": answer} for answer in ("\\frac{1}{2}", "\\frac{1}{2", "", " 7 ")
    ]
    found = loaded(write(tmp_path, "test.jsonl", *rows).parent, "math500")
    assert [row.gold for row in found.rows] == ["\\frac{1}{2}", "7"]
    assert [drop.reason for drop in found.info.dropped] == [
        "gold '\\\\frac{1}{2' has unbalanced braces",
        "gold '' is no text",
    ]


GPQA_ROW = {
    "Record ID": "rec1",
    "Question": "Which gas do plants take up, roughly speaking?",
    "Correct Answer": "carbon dioxide\n",
    "Incorrect Answer 1": "helium",
    "Incorrect Answer 2": "neon",
    "Incorrect Answer 3": "argon",
}


def test_gpqa_shuffles_the_choices_by_the_seed(tmp_path: Path) -> None:
    lines = ["Record ID,Question,Correct Answer,Incorrect Answer 1,Incorrect Answer 2,Incorrect Answer 3"]
    lines += [f'rec{n},"Which one, {n}?","right ""{n}""",x{n},"y\n{n}",z{n}' for n in range(40)]
    (tmp_path / "gpqa_diamond.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    first, again, other = (loaded(tmp_path, "gpqa", seed=seed).rows for seed in (0, 0, 1))
    assert first == again
    assert [row.gold for row in first] != [row.gold for row in other]
    assert {row.gold for row in first} == set("ABCD")
    for n, row in enumerate(first):
        assert row.gold is not None
        assert row.prompt is not None
        assert row.extra["choices"]["ABCD".index(row.gold)] == f'right "{n}"'
        assert sorted(row.extra["choices"]) == sorted([f'right "{n}"', f"x{n}", f"y\n{n}", f"z{n}"])
        assert f"\n{row.gold}) right" in row.prompt
        assert safe_score(scorer_for("gpqa"), f"Answer: {row.gold}", row.scorer_row()).is_right
        assert safe_score(scorer_for("gpqa"), f'right "{n}"', row.scorer_row()).is_right


def test_mbpp_splits_by_id_and_reads_crlf_as_line_ends() -> None:
    path = benchmark("mbpp")
    sizes = {split: load_task("mbpp:full", path=path, split=split).info.num_rows for split in ("test", "validation")}
    assert sizes == {"test": 500, "validation": 90}
    assert load_task("mbpp:full", path=path, split="train").info.num_rows == 374
    prompts = load_task("mbpp:full", path=path, split="prompt").rows
    assert [row.extra["task_id"] for row in prompts] == list(range(1, 11))
    sanitized = {
        s: load_task("mbpp", path=path, split=s).info.num_rows for s in ("test", "validation", "train", "prompt")
    }
    assert sanitized == {"test": 257, "validation": 43, "train": 120, "prompt": 7}
    row = prompts[0].extra
    assert row["entry_point"] == "min_cost"
    assert "\r" not in f"{prompts[0].gold}{row['tests']}"
    assert row["tests"].count("assert") == len(row["test_list"]) == 3


def test_mt_bench_goes_from_turn_to_turn() -> None:
    from cospec.tasks.mt_bench import next_turn

    row = load_task("mt_bench", path=benchmark("mt_bench"), num=1, system_prompt="Be kind.").rows[0]
    assert (row.gold, row.extra["category"]) == (None, "writing")
    second = next_turn(row, "Aloha!")
    assert second is not None
    assert roles(second) == ["system", "user", "assistant", "user"]
    assert second.messages is not None
    assert second.messages[-1]["content"] == row.extra["turns"][1]
    assert next_turn(second, "Again!") is None


def test_word_problems_are_those_of_the_generator() -> None:
    from cospec.tasks.word_problems import generate

    rows = load_task("word_problems", num=5, seed=3, split="grpo").rows
    made = generate(5, 3, split="grpo")
    assert [(row.id, row.prompt, row.gold) for row in rows] == [(p.id, p.prompt, p.gold) for p in made]
    assert load_task("word_problems").info.num_rows == 200
    assert load_task("word_problems", num=1).info.split == "eval"
    shot = load_task("word_problems", num=1, num_shots=2).rows[0]
    assert roles(shot) == ["user", "assistant", "user", "assistant", "user"]
    with pytest.raises(ValueError, match="the problems of word_problems are generated"):
        load_task("word_problems", path="somewhere")
