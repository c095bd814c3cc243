"""The judge: what it is shown, which rating is read, and a real client against a real endpoint on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cospec.tasks.mt_bench_judge import Judgement, connect, judge_answers, judge_prompt, mean_rating, parse_rating

ROOT = Path(__file__).parents[2]
TURNS = ["Name a prime.", "Name another."]


class Endpoint(NamedTuple):
    url: str
    asked: list[dict[str, Any]]
    replies: list[str]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    """An OpenAI-compatible server that answers with the given replies in turn."""
    asked: list[dict[str, Any]] = []
    replies: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))) | {"path": self.path})
            message = {"role": "assistant", "content": replies[len(asked) - 1]}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            body = json.dumps({"id": "1", "object": "chat.completion", "created": 0, "model": "j", "choices": [choice]})
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Endpoint(f"http://127.0.0.1:{server.server_port}/v1", asked, replies)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("Good. Rating: [[8]]", 8),
        ("[[3]] at first sight, but then Rating: [[7.5]]", 7.5),
        ("Rating: [[ 10 ]]", 10),
        ("Rating: 8", None),
        ("Rating: [8]", None),
        ("Rating: [[0]]", None),
        ("Rating: [[11]]", None),
        ("Rating: [[eight]]", None),
        ("Rating: [[8/10]]", None),
        ("", None),
    ],
)
def test_the_last_rating_in_double_brackets_is_read(text: str, rating: float | None) -> None:
    assert parse_rating(text) == rating


def test_the_judge_sees_the_turns_up_to_the_one_it_rates() -> None:
    first, second = judge_prompt(TURNS, ["7"]), judge_prompt(TURNS, ["7", "11"], ["2, 3, ...", "5"])
    assert "Name a prime." in first
    assert "Name another." not in first
    assert "Grade answer 1" in first
    assert "reference" not in first
    assert all(
        part in second
        for part in ("Name a prime.", "Name another.", ">\n7\n<", ">\n11\n<", "2, 3, ...", "Grade answer 2")
    )
    assert "known to be right" in second
    # What the judge is told to write must not be read as its rating of something it quotes.
    assert parse_rating(f"{second}\nRating: [[9]]") == 9


@pytest.mark.parametrize("answers", [[], ["a", "b", "c"]])
def test_answers_must_fit_the_turns(answers: list[str]) -> None:
    with pytest.raises(ValueError, match=f"{len(answers)} answers to 2 turns"):
        judge_prompt(TURNS, answers)


def test_a_real_client_asks_once_a_turn(endpoint: Endpoint) -> None:
    pytest.importorskip("openai")
    endpoint.replies[:] = ["Fine. Rating: [[9]]", "no idea"]
    found = list(judge_answers(connect(endpoint.url), "judge-1", "mt_bench/81", TURNS, ["7", "11"], []))
    assert found == [
        Judgement("mt_bench/81", 1, 9.0, "Fine. Rating: [[9]]"),
        Judgement("mt_bench/81", 2, None, "no idea"),
    ]
    assert mean_rating(found) == 9
    assert mean_rating(found[1:]) is None
    assert [(asked["model"], asked["temperature"], asked["path"]) for asked in endpoint.asked] == [
        ("judge-1", 0.0, "/v1/chat/completions")
    ] * 2
    assert "Name another." in endpoint.asked[1]["messages"][0]["content"]


def run(tmp_path: Path, url: str, *rows: dict[str, Any], out: Path | None = None) -> subprocess.CompletedProcess[str]:
    (tmp_path / "question.jsonl").write_text(
        '{"question_id": 81, "category": "x", "turns": ["Name a prime.", "Another."]}\n'
    )
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "cospec.tasks.mt_bench_judge", "--rows", str(tmp_path / "answers.jsonl")]
    command += ["--base-url", url, "--model", "judge-1", "--data", str(tmp_path)]
    command += ["--out", str(out)] if out else []
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def test_a_file_of_answers_is_rated(endpoint: Endpoint, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    endpoint.replies[:] = ["Rating: [[6]]", "Rating: [[9]]"]
    done = run(tmp_path, endpoint.url, {"id": "mt_bench/81", "answers": ["7", "11"]})
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["rating"] for line in done.stdout.splitlines()] == [6, 9]
    assert "mean rating 7.5 over 2 turns, 0 unreadable" in done.stderr


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "mt_bench/82", "answers": ["7"]}, "answers.jsonl:1: no question 'mt_bench/82'"),
        ({"id": "mt_bench/81", "answers": "7"}, "answers.jsonl:1: 'answers' must be a list of texts"),
        ({"id": "mt_bench/81", "answers": ["7", "8", "9"]}, "answers.jsonl:1: 3 answers"),
    ],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    done = run(tmp_path, "http://127.0.0.1:9/v1", row)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_file_and_a_repeated_id_are_refused(tmp_path: Path) -> None:
    row = {"id": "mt_bench/81", "answers": ["7"]}
    for rows, message in (([], "answers.jsonl: no rows"), ([row, row], "answers.jsonl:2: the id 'mt_bench/81'")):
        done = run(tmp_path, "http://127.0.0.1:9/v1", *rows)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "127.0.0.1:9/v1"])
def test_an_endpoint_that_fails_is_told_without_a_traceback(tmp_path: Path, url: str) -> None:
    pytest.importorskip("openai")
    done = run(tmp_path, url, {"id": "mt_bench/81", "answers": ["7"]})
    assert (done.returncode, done.stdout) == (1, "")
    assert "mt_bench/81: Connection error." in done.stderr
    assert "nothing was rated: 0 turns, 0 unreadable, 1 rows failed" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_rerun_asks_only_for_what_is_not_there(endpoint: Endpoint, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    endpoint.replies[:] = ["Rating: [[6]]", "Rating: [[9]]"]
    out = tmp_path / "judged.jsonl"
    for answers in (["7"], ["7", "11"], ["7", "11"]):
        done = run(tmp_path, endpoint.url, {"id": "mt_bench/81", "answers": answers}, out=out)
        assert done.returncode == 0, done.stderr
    assert [json.loads(line)["turn"] for line in out.read_text().splitlines()] == [1, 2]
    assert "mean rating 7.5 over 2 turns" in done.stderr
    assert len(endpoint.asked) == 2
