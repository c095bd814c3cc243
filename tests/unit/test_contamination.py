"""Contamination: against a plain computation, against the known overlaps of the benchmarks, and in time."""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Sequence

import pytest
from benchmark_data import benchmark
from hypothesis import given, settings
from hypothesis import strategies as st

from cospec.evaluation import contamination as module
from cospec.evaluation.contamination import contamination
from cospec.jsonl import read_jsonl
from cospec.prompt_rows import PromptRow
from cospec.task_set import load_task


def rows_of(texts: Sequence[str]) -> list[PromptRow]:
    return [PromptRow(id=index, prompt=text) for index, text in enumerate(texts)]


def plainly(train: Sequence[str], texts: Sequence[str], n: int) -> tuple[list[int], list[int]]:
    """The definition, word for word."""

    def split(text: str) -> list[str]:
        return re.findall(r"\w+", text.lower())

    def runs(text: str, length: int) -> set[tuple[str, ...]]:
        words = split(text)
        return {tuple(words[start : start + length]) for start in range(len(words) - length + 1)}

    def is_shared(text: str) -> bool:
        words = split(text)
        if len(words) < min(n, 4):
            return bool(words) and words in map(split, train)
        length = min(n, len(words))
        return any(runs(text, length) & runs(other, length) for other in train)

    bare = {"".join(text.split()).casefold() for text in train}
    exact = [i for i, text in enumerate(texts) if "".join(text.split()).casefold() in bare]
    return exact, [i for i, text in enumerate(texts) if is_shared(text)]


words = st.lists(st.sampled_from(["a", "b", "C", "c", "dog", "dog.", "-", "ö", "7"]), max_size=12).map(" ".join)


@settings(max_examples=100, deadline=None)
@given(st.lists(words, max_size=6), st.lists(words, max_size=6), st.integers(1, 6))
def test_it_finds_what_the_definition_says(train: list[str], texts: list[str], n: int) -> None:
    found = contamination(rows_of(train), rows_of(texts), n)
    exact, overlap = plainly(train, texts, n)
    assert (list(found.exact_ids), list(found.overlap_ids)) == (exact, overlap)
    assert (found.num_train, found.num_eval, found.n) == (len(train), len(texts), n)


def test_portions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(0)
    train = [" ".join(rng.choices("abcdef", k=rng.randrange(20))) for _ in range(300)]
    texts = [" ".join(rng.choices("abcdef", k=rng.randrange(20))) for _ in range(300)]
    whole = contamination(rows_of(train), rows_of(texts), 5)
    monkeypatch.setattr(module, "_CHUNK_WORDS", 3)
    assert contamination(rows_of(train), rows_of(texts), 5) == whole
    assert 0 < len(whole.overlap_ids) < 300


def test_equal_hashes_of_different_words_are_no_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    # With a base of 0 the hash is that of the last word alone.
    monkeypatch.setattr(module, "_BASE", module.np.uint64(0))
    assert contamination(rows_of(["a d c", "b c", "e b c"]), rows_of(["a b c"]), 3).overlap_ids == ()
    assert contamination(rows_of(["a d c", "a b c"]), rows_of(["a b c"]), 3).overlap_ids == (0,)


def test_the_bare_question_is_compared() -> None:
    instruction = "Think about it step by step and then put the final answer on the last line, please and thank you."
    row = PromptRow(id=1, prompt=f"How many?\n{instruction}", task="gsm8k", extra={"question": "How many?"})
    other = PromptRow(id=2, prompt=f"How few?\n{instruction}", task="gsm8k", extra={"question": "How few?"})
    assert contamination([row], [other]).ids == ()
    bare = [PromptRow(id=row.id, prompt=row.prompt) for row in (row, other)]
    assert contamination(bare[:1], bare[1:]).ids == (2,)
    chat = PromptRow(
        id=3,
        messages=[
            {"role": "system", "content": instruction},
            {"role": "user", "content": instruction},
            {"role": "assistant", "content": instruction},
            {"role": "user", "content": "How few?"},
        ],
    )
    assert contamination([row], [chat]).ids == ()
    assert contamination([other], [chat]).exact_ids == (3,)


def test_white_space_and_case_do_not_hide_a_problem() -> None:
    found = contamination(
        rows_of(["How  many\nEGGS?"]), rows_of(["how many eggs?", "how many egg s?", "how many eggs"])
    )
    assert found.exact_ids == (0, 1)
    # Fewer words than 4: compared as a whole, without punctuation.
    assert found.overlap_ids == (0, 2)
    assert found.ids == (0, 1, 2)
    assert (found.exact_share, found.overlap_share) == (2 / 3, 2 / 3)
    assert contamination([], []).exact_share == 0
    assert found.to_json()["exact_ids"] == [0, 1]


LONG = "A robe takes 2 bolts of blue fiber and half as much white fiber. How many bolts does the café need in total?"
SHORT = "Who wrote the novel Frankenstein?"
JAPANESE = "ローブを1着作るには、青い繊維を2巻分、白い繊維をその半分用いる。全部で何巻必要か？"


@pytest.mark.parametrize("place", ["system", "user", "assistant"])
@pytest.mark.parametrize("problem", [LONG, SHORT, JAPANESE])
def test_a_problem_in_any_turn_of_a_training_row_is_found(place: str, problem: str) -> None:
    chat = [{"role": place, "content": problem}, {"role": "user", "content": "Are you sure?"}]
    found = contamination([PromptRow(id=1, messages=chat)], rows_of([problem, "Why is the sky blue at noon?"]))
    assert (found.exact_ids, found.overlap_ids) == ((0,), (0,))


def test_a_problem_in_an_earlier_user_turn_of_an_evaluation_row_is_found() -> None:
    turns = [("system", "You are a kind helper."), ("user", SHORT), ("assistant", "Mary Shelley"), ("user", "Sure?")]
    chat = PromptRow(id="chat", messages=[{"role": role, "content": text} for role, text in turns])
    assert contamination(rows_of([SHORT]), [chat]).exact_ids == ("chat",)
    # Every evaluation row has the system turn, and many training rows.
    assert contamination(rows_of(["You are a kind helper."]), [chat]).ids == ()


def test_a_field_question_of_the_users_own_does_not_hide_the_prompt() -> None:
    named = PromptRow(id="e", prompt=LONG, extra={"question": "q17"})
    assert contamination([named], rows_of([LONG])).exact_ids == (0,)
    assert contamination(rows_of([LONG]), [named]).exact_ids == ("e",)
    of_ours = PromptRow(id="e", prompt=f"Solve this: {LONG}", task="gsm8k", extra={"question": LONG})
    assert contamination(rows_of([LONG]), [of_ours]).exact_ids == ("e",)


@pytest.mark.parametrize(
    ("instruction", "problem"),
    [
        ("Answer the question in a few words.\n\n", SHORT),
        ("次の問題を解いて。", JAPANESE),
        ("次の問題を解いて。", "青い繊維は全部で何巻か？"),
        ("请解题：", "这件长袍一共需要多少卷布料？"),
        ("Solve: ", "What is 2 + 2?"),
    ],
)
def test_a_short_problem_behind_an_instruction_is_found(instruction: str, problem: str) -> None:
    found = contamination(rows_of([f"{instruction}{problem} Thanks."]), rows_of([problem]))
    assert (found.exact_ids, found.overlap_ids) == ((), (0,))
    assert contamination(rows_of([instruction, problem[: len(problem) // 2]]), rows_of([problem])).ids == ()


def test_unicode_forms_and_invisible_characters_do_not_hide_a_problem() -> None:
    german = (
        "Über grüne Äpfel können Mädchen schöne Lösungen hören, während Jürgen fünf süße Brötchen für Köche röstet."
    )
    for problem in (LONG, german, JAPANESE):
        hidden = [unicodedata.normalize("NFD", problem), problem.replace("o", "o\u200b").replace("の", "の\u200d")]
        for text in (*hidden, problem.replace(" ", "\u00a0"), problem.replace("2", "２")):
            found = contamination(rows_of([text]), rows_of([problem]))
            assert (found.exact_ids, found.overlap_ids) == ((0,), (0,)), text


def test_a_common_japanese_phrase_is_no_overlap() -> None:
    # 13 characters are no 13 words.
    train = rows_of(["答えだけを最後の行に書いてください。東京の人口は？"])
    assert (
        contamination(
            train, rows_of(["答えだけを最後の行に書いてください。富士山はどのくらいの高さがありますか？"])
        ).ids
        == ()
    )


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(ValueError, match="row 5 has token ids and no text"):
        contamination([], [PromptRow(id=5, prompt_ids=[1, 2])])
    with pytest.raises(ValueError, match="n is 0"):
        contamination([], [], 0)


def test_the_known_overlaps_of_the_benchmarks() -> None:
    test, train = (load_task("gsm8k", path=benchmark("gsm8k"), split=split).rows for split in ("test", "train"))
    english = load_task("mgsm:en", path=benchmark("mgsm")).rows
    german = load_task("mgsm:de", path=benchmark("mgsm")).rows
    assert len(contamination(test, english).exact_ids) == 250
    assert contamination(train, english).ids == ()
    assert contamination(test, german).ids == ()
    inside = contamination(train, test)
    assert inside.exact_ids == ()
    # Three test questions open with a sentence that a training question has as well.
    assert len(inside.overlap_ids) == 3
    composite = [
        PromptRow(id=row["question_id"], prompt=row["turns"][0], extra={"category": row["category"]})
        for row in read_jsonl(benchmark("spec_bench") / "question.jsonl.gz")
    ]
    maths = [row for row in composite if row.extra["category"] == "math_reasoning"]
    questions = [row for row in composite if row.extra["category"] == "qa"]
    assert len(contamination(test, maths).exact_ids) == 80
    assert contamination(train, maths).exact_ids == ()
    assert len(contamination(composite, load_task("mt_bench", path=benchmark("mt_bench")).rows).exact_ids) == 80
    assert contamination(load_task("nq_open", path=benchmark("nq_open")).rows, questions).exact_ids == ()


@pytest.mark.slow
def test_a_hundred_thousand_rows() -> None:
    rng = random.Random(0)
    vocabulary = [f"w{index}" for index in range(30_000)]
    train = rows_of([" ".join(rng.choices(vocabulary, k=60)) for _ in range(100_000)])
    leaked = [PromptRow(id=f"leak{index}", prompt=f"x {train[index * 1000].prompt} y") for index in range(100)]
    fresh = rows_of([" ".join(rng.choices(vocabulary, k=60)) for _ in range(2000)])
    found = contamination(train, [*fresh, *leaked])
    assert (found.exact_ids, found.overlap_ids) == ((), tuple(row.id for row in leaked))


@pytest.mark.parametrize("text", ["সমাধান আমার সোনার বাংলা", "సమాధానం చెప్పండి ఒక్కొక్క", "नमस्ते दुनिया आप कैसे हैं", "مَرحَبًا بك"])
def test_words_are_not_cut_at_their_vowel_signs(text: str) -> None:
    assert module._words(module._normal(text)) == text.split()
    # Syllables in common are no words in common.
    shuffled = " ".join(word[::-1] for word in text.split())
    assert not contamination(rows_of([shuffled]), rows_of([text]), 1).overlap_ids
