"""Prompt rows: checked as a whole before anything is computed."""

from pathlib import Path

import pytest

from cospec.prompt_rows import PromptRow, load_prompt_rows


def rows_file(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return file


def test_the_three_forms_and_extra_fields(tmp_path: Path) -> None:
    file = rows_file(
        tmp_path,
        '{"id": "a", "prompt": " hi ", "gold": 12, "level": 3}',
        '{"id": 7, "messages": [{"role": "user", "content": "hi"}], "task": "sums"}',
        "",
        '{"prompt_ids": [1, 0, 5], "prompt": null}',
    )
    assert load_prompt_rows(file, require_gold=False) == [
        PromptRow(id="a", prompt=" hi ", gold="12", extra={"level": 3}),
        PromptRow(id=7, messages=[{"role": "user", "content": "hi"}], task="sums"),
        PromptRow(id=4, prompt_ids=[1, 0, 5]),
    ]


def test_ids_keep_their_json_type(tmp_path: Path) -> None:
    rows = load_prompt_rows(rows_file(tmp_path, '{"id": 3, "prompt": "a"}', '{"id": "x3", "prompt": "b"}'), False)
    assert [row.id for row in rows] == [3, "x3"]


def test_scorer_row_has_extras_at_the_top_level() -> None:
    row = PromptRow(id=1, prompt="p", gold="g", extra={"level": 3}).scorer_row()
    assert (row["id"], row["prompt"], row["gold"], row["level"]) == (1, "p", "g", 3)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": 1}', "exactly one of prompt, messages, prompt_ids.*none"),
        ('{"id": 1, "prompt": "a", "prompt_ids": [1]}', "exactly one.*prompt and prompt_ids"),
        ('{"id": 1, "prompt": " \\n"}', "prompt is empty"),
        ('{"id": 1, "prompt": 5}', "prompt is a int"),
        ('{"id": 1, "prompt_ids": []}', "non-empty list"),
        ('{"id": 1, "prompt_ids": "12"}', "non-empty list"),
        ('{"id": 1, "prompt_ids": [1, -1]}', r"prompt_ids\[1\] is -1"),
        ('{"id": 1, "prompt_ids": [true]}', r"prompt_ids\[0\] is True"),
        ('{"id": 1, "messages": []}', "non-empty list"),
        ('{"id": 1, "messages": [{"role": "user"}]}', r"messages\[0\]"),
        ('{"id": 1, "messages": [{"role": "user", "content": ""}]}', "last message is empty"),
        ('{"id": true, "prompt": "a"}', "id is True"),
        ('{"id": 1.5, "prompt": "a"}', "id is 1.5"),
        ('{"id": 1, "prompt": "a", "gold": ["b"]}', "gold is a list"),
        ('{"id": 1, "prompt": "a", "task": 3}', "task is a int"),
    ],
)
def test_bad_rows_name_their_line(tmp_path: Path, line: str, message: str) -> None:
    file = rows_file(tmp_path, '{"id": 0, "prompt": "fine"}', line)
    with pytest.raises(ValueError, match=rf"prompts\.jsonl:2: .*{message}"):
        load_prompt_rows(file, require_gold=False)


@pytest.mark.parametrize("gold", ["", ', "gold": null', ', "gold": " "'])
def test_gold_is_required_only_where_asked(tmp_path: Path, gold: str) -> None:
    file = rows_file(tmp_path, f'{{"id": 1, "prompt": "a"{gold}}}')
    assert load_prompt_rows(file, require_gold=False)[0].gold is None
    with pytest.raises(ValueError, match=r"prompts\.jsonl:1: no gold answer"):
        load_prompt_rows(file, require_gold=True)


@pytest.mark.parametrize("second", ['"id": "1", ', '"id": 1, '])
def test_repeated_ids_are_refused(tmp_path: Path, second: str) -> None:
    file = rows_file(tmp_path, '{"id": 1, "prompt": "a"}', f'{{{second}"prompt": "b"}}')
    with pytest.raises(ValueError, match=r"prompts\.jsonl:2: id .*already used on line 1"):
        load_prompt_rows(file, require_gold=False)


def test_a_line_number_that_is_another_rows_id_is_refused(tmp_path: Path) -> None:
    file = rows_file(tmp_path, '{"id": 2, "prompt": "a"}', '{"prompt": "b"}')
    with pytest.raises(ValueError, match="already used on line 1"):
        load_prompt_rows(file, require_gold=False)


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no rows"):
        load_prompt_rows(rows_file(tmp_path, "", " "), require_gold=False)


def test_a_lone_surrogate_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"id": 1, "prompt": "a \\ud800 b"}\n')
    with pytest.raises(ValueError, match=r"rows.jsonl:1: a lone surrogate"):
        load_prompt_rows(tmp_path / "rows.jsonl", require_gold=False)
