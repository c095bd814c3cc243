"""JSON Lines: nothing lost, nothing split where it should not be, and every error has its line."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cospec.jsonl import append_jsonl, drop_torn_tail, dumps, read_jsonl, write_json_atomic, write_jsonl_atomic

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(max_size=5), json_values, max_size=3), max_size=4))
def test_rows_survive_a_round_trip(tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]) -> None:
    file = tmp_path_factory.mktemp("jsonl") / "rows.jsonl"
    write_jsonl_atomic(file, rows)
    append_jsonl(file, rows)
    assert list(read_jsonl(file)) == rows + rows


def test_unicode_line_separators_do_not_cut_a_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "a\u2028b\u0085c\u000bd"}\n'.replace("\x0b", "\\u000b"), encoding="utf-8")
    assert list(read_jsonl(file)) == [{"text": "a\u2028b\u0085c\u000bd"}]


def test_one_bom_crlf_and_blank_lines_are_accepted(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \n{"a": 2}')
    assert list(read_jsonl(file)) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n\n{"a": \n', r"rows\.jsonl:3: not JSON .*one JSON object per line"),
        (b'{"a": 1}\n[1]\n', r"rows\.jsonl:2: a JSON list"),
        (b'{"a": 1}\n{"a": "\xff"}\n', r"rows\.jsonl:2: not UTF-8"),
        (b'\xef\xbb\xbf\xef\xbb\xbf{"a": 1}\n', r"rows\.jsonl:1: "),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_jsonl(file))


def test_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist: check the path"):
        list(read_jsonl(tmp_path / "nowhere.jsonl"))


def test_appending_after_a_missing_newline_starts_a_new_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}', encoding="utf-8")
    append_jsonl(file, [{"a": 2}])
    assert list(read_jsonl(file)) == [{"a": 1}, {"a": 2}]


def test_a_torn_last_line_is_dropped_and_a_whole_one_kept(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n{"a": ', encoding="utf-8")
    assert drop_torn_tail(file) == len('{"a": ')
    append_jsonl(file, [{"a": 2}])
    assert list(read_jsonl(file)) == [{"a": 1}, {"a": 2}]
    file.write_text('{"a": 1}\n{"a": 2}', encoding="utf-8")
    assert drop_torn_tail(file) == 0
    assert len(list(read_jsonl(file))) == 2
    assert drop_torn_tail(tmp_path / "nowhere.jsonl") == 0


def test_a_failing_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path) -> None:
    file = tmp_path / "sub" / "summary.json"
    write_json_atomic(file, {"a": 1})
    with pytest.raises(TypeError):
        write_json_atomic(file, {"a": object()})
    with pytest.raises(TypeError):
        write_jsonl_atomic(file, [{"a": {1}}])
    assert json.loads(file.read_text(encoding="utf-8")) == {"a": 1}
    assert os.listdir(file.parent) == ["summary.json"]


def test_a_failing_replace_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_json_atomic(tmp_path / "taken", {"a": 1})
    assert os.listdir(tmp_path) == ["taken"]


def test_written_json_is_strict() -> None:
    assert dumps({"a": float("nan"), "b": [float("inf"), 1.5]}) == '{"a": null, "b": [null, 1.5]}'
    assert dumps({"a": "é"}) == '{"a": "é"}'
    assert json.loads(dumps({"a": "\ud800"})) == {"a": "\ud800"}
    assert dumps({"a": "\ud800"}).isascii()


@pytest.mark.parametrize("text", ['{\n "a": 1\n}', "first line\nsecond", "one line", '{"a": 1}\nnotes'])
def test_a_file_that_no_run_left_is_not_cut(tmp_path: Path, text: str) -> None:
    file = tmp_path / "precious"
    file.write_text(text)
    with pytest.raises(ValueError, match="name another file"):
        drop_torn_tail(file)
    assert file.read_text() == text


@pytest.mark.parametrize("tail", ["{", '{"a": 1', "\0" * 200])
def test_what_a_kill_leaves_is_cut(tmp_path: Path, tail: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n' + tail)
    assert drop_torn_tail(file) == len(tail)
    assert file.read_text() == '{"a": 1}\n'


def test_a_name_that_would_be_read_through_gzip_is_not_written(tmp_path: Path) -> None:
    for write in (append_jsonl, write_jsonl_atomic):
        with pytest.raises(ValueError, match=r"rows\.jsonl\.gz: rows are written uncompressed: leave \.gz out"):
            write(tmp_path / "rows.jsonl.gz", [{"a": 1}])
    assert not list(tmp_path.iterdir())
