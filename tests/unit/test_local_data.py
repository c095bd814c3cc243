"""Benchmarks found in the directory that COSPEC_DATA names."""

from __future__ import annotations

from pathlib import Path

import pytest

from cospec.task_set import load_task
from cospec.tasks.local_data import VARIABLE, local_copy


def test_the_folder_of_a_task_and_of_its_variants_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert local_copy("mgsm") is None
    (tmp_path / "mgsm").mkdir()
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert local_copy("mgsm") == local_copy("mgsm:de") == tmp_path / "mgsm"
    assert local_copy("gsm8k") is None


def test_rows_are_read_from_it_unless_a_path_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place, gold in (("gsm8k", 3), ("other", 4)):
        (tmp_path / place).mkdir()
        (tmp_path / place / "test.jsonl").write_text(
            f'{{"question": "How many?", "answer": "So many.\\n#### {gold}"}}\n'
        )
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert load_task("gsm8k").rows[0].gold == "3"
    assert load_task("gsm8k", path=tmp_path / "other").rows[0].gold == "4"


def test_a_mistyped_directory_is_refused_and_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nope"))
    with pytest.raises(ValueError, match=r"COSPEC_DATA is .*nope', which is no directory"):
        local_copy("gsm8k")
