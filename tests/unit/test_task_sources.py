"""Where rows come from: every local format, and the Hub's data sets as they lie in a directory or a cache."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from benchmark_data import benchmark

from cospec.task_set import load_task
from cospec.tasks.base import RowRequest
from cospec.tasks.formats import read_rows
from cospec.tasks.registry import TASKS, task_named
from cospec.tasks.source import Part, Published

ROWS = [{"question": f"Häuser, {n}?\u2028", "answer": f"so\n#### {n}"} for n in range(3)]


@pytest.fixture(autouse=True)
def no_local_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSPEC_DATA", raising=False)


def jsonl() -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def separated(separator: str) -> str:
    lines = [
        separator.join(('"' + row[key].replace('"', '""') + '"') for key in ("question", "answer")) for row in ROWS
    ]
    return "\n".join([f"question{separator}answer", *lines]) + "\n"


def write_parquet(file: Path) -> None:
    table = pytest.importorskip("pyarrow").Table.from_pylist(ROWS)
    pytest.importorskip("pyarrow.parquet").write_table(table, file)


@pytest.mark.parametrize(
    "suffix", ["jsonl", "json", "csv", "tsv", "jsonl.gz", "json.gz", "csv.gz", "tsv.gz", "parquet"]
)
def test_every_format_gives_the_same_rows(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"test.{suffix}"
    contents = {"jsonl": jsonl(), "json": json.dumps(ROWS), "csv": separated(","), "tsv": separated("\t")}
    if suffix == "parquet":
        write_parquet(file)
    elif suffix.endswith(".gz"):
        file.write_bytes(gzip.compress(contents[suffix.removesuffix(".gz")].encode()))
    else:
        file.write_text(contents[suffix], encoding="utf-8", newline="")
    assert [row for _, row in read_rows(file)] == ROWS
    for path in (tmp_path, file):
        loaded = load_task("gsm8k", path=path)
        assert [row.extra["question"] for row in loaded.rows] == [row["question"].strip() for row in ROWS]
        assert [row.gold for row in loaded.rows] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"a": 1}\n[2]\n', r"a\.jsonl:2: a JSON list"),
        ("a.json", b'{"a": 1}', r"a\.json: a JSON dict, not a list"),
        ("a.json", b'[{"a": 1}, 2]', r"a\.json: row 2 is a JSON int"),
        ("a.json", b"[", r"a\.json: not JSON"),
        ("a.csv", b"a,b\n1,2\n3\n", r"a\.csv:3: 1 columns instead of 2 \(a, b\)"),
        ("a.csv", b'a,b\n1,"2\n', r"a\.csv:2: unexpected end of data"),
        ("a.csv", b"a,b\n\xff,1\n", r"a\.csv:.*utf-8"),
        ("a.csv", b"", r"a\.csv: empty"),
        ("a.jsonl.gz", b"plain", r"a\.jsonl\.gz: not a whole gzip file"),
        ("a.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 99, mtime=0)[:-9], r"a\.jsonl\.gz: not a whole gzip file"),
        ("a.parquet", b"plain", r"a\.parquet: not a parquet file"),
        ("a.txt", b"plain", r"a\.txt: unknown kind of file: use one of \.jsonl"),
    ],
)
def test_damaged_files_are_named_with_their_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_rows(tmp_path / name))


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data file .*nowhere does not exist"):
        load_task("gsm8k", path=tmp_path / "nowhere")


# --- the Hub ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def hub_copy(tmp_path: Path) -> Path:
    """A data set repository as the Hub stores it: parquet files, and a card that names configuration and splits."""
    pytest.importorskip("datasets")
    folder = tmp_path / "gsm8k"
    (folder / "main").mkdir(parents=True)
    write_parquet(folder / "main" / "test-00000-of-00001.parquet")
    card = [
        "---",
        "configs:",
        "- config_name: main",
        "  data_files:",
        "  - split: test",
        "    path: main/test-*",
        "---",
    ]
    (folder / "README.md").write_text("\n".join(card), encoding="utf-8")
    return folder


def use_repo(monkeypatch: pytest.MonkeyPatch, repo: str) -> None:
    from cospec.tasks import gsm8k

    source = Published(repo, "0" * 40, {"test": (Part(("test",), "test"),)}, config="main")
    changed = gsm8k.TASK.__class__(
        **{name: getattr(gsm8k.TASK, name) for name in gsm8k.TASK.__slots__} | {"source": source}
    )
    monkeypatch.setattr(gsm8k, "TASK", changed)


def test_rows_of_the_hub_are_those_of_a_file(hub_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    use_repo(monkeypatch, str(hub_copy))
    loaded = load_task("gsm8k")
    assert [row.gold for row in loaded.rows] == ["0", "1", "2"]
    assert loaded.info.version == f"{hub_copy}@{'0' * 40}"
    assert (loaded.info.source, loaded.info.files) == (f"{hub_copy} main test", {})
    assert load_task("gsm8k", revision="v1").info.version == f"{hub_copy}@v1"
    local = load_task("gsm8k", path=hub_copy / "main" / "test-00000-of-00001.parquet")
    assert local.info.prompt_sha256 == loaded.info.prompt_sha256


def test_plain_files_of_the_hub_come_from_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    source = task_named("mgsm:fr").source
    assert isinstance(source, Published)
    snapshot = tmp_path / "datasets--juletxara--mgsm" / "snapshots" / source.revision
    snapshot.mkdir(parents=True)
    (snapshot / "mgsm_fr.tsv").write_text("Combien ?\t1,200\n", encoding="utf-8")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    loaded = load_task("mgsm:fr")
    assert [(row.gold, row.extra["lang"]) for row in loaded.rows] == [("1200", "fr")]
    assert loaded.info.version == f"juletxara/mgsm@{source.revision}"
    with pytest.raises(
        ValueError, match=r"cannot read juletxara/mgsm/mgsm_de\.tsv at revision .* local rows with --data"
    ):
        load_task("mgsm:de")


def test_rows_that_cannot_be_fetched_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("datasets")
    use_repo(monkeypatch, str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"cannot read .*nowhere at revision 0{40} from the Hub .*--data"):
        load_task("gsm8k")


@pytest.mark.parametrize("package", ["datasets", "pyarrow"])
def test_a_missing_package_names_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    write_parquet(tmp_path / "test.parquet")
    monkeypatch.setitem(__import__("sys").modules, package, None)
    options: dict[str, Any] = {"path": tmp_path} if package == "pyarrow" else {}
    with pytest.raises(ValueError, match=r"pip install 'cospec\[eval\]'"):
        load_task("gsm8k", **options)


def test_the_published_revisions_are_commits() -> None:
    published = [task.source for task in map(task_named, TASKS) if isinstance(task.source, Published)]
    assert len(published) == 12
    assert all(len(source.revision) == 40 and int(source.revision, 16) for source in published)


def test_rows_of_all_splits_are_found_for_scoring_by_id(tmp_path: Path) -> None:
    def ids(name: str, path: Path) -> list[object]:
        source = task_named(name).source
        assert isinstance(source, Published)
        return [
            row.fields.get("task_id", row.fields.get("question_id")) for row in source.read_all(RowRequest(path)).rows
        ]

    assert sorted(map(int, map(str, ids("mbpp:full", benchmark("mbpp"))))) == list(range(1, 975))
    assert ids("mbpp:full", benchmark("mbpp") / "mbpp.jsonl.gz") == ids("mbpp:full", benchmark("mbpp"))
    assert len(ids("mbpp", benchmark("mbpp"))) == 427
    for number in (2, 5):
        (tmp_path / f"test{number}.jsonl").write_text(f'{{"question_id": "q{number}"}}\n', encoding="utf-8")
    assert ids("livecodebench", tmp_path) == ["q2", "q5"]
    assert ids("livecodebench", tmp_path / "test5.jsonl") == ["q5"]
    with pytest.raises(ValueError, match="no file for split 'test': looked for HumanEval or test with one of"):
        ids("humaneval", tmp_path)
