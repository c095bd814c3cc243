"""Rating MT-Bench answers by a judge model behind an OpenAI-compatible endpoint of the user's.

    python -m cospec.tasks.mt_bench_judge --rows answers.jsonl --base-url http://localhost:8000/v1 --model NAME

Rows are {"id", "answers": [first, second]}, ids as in the task's prompt rows. Prints {"id", "turn", "rating",
"judgement"} per turn, or appends them to the file --out, whose turns are not judged again; the mean rating goes to
stderr. The key is taken from OPENAI_API_KEY.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TextIO

from cospec.jsonl import dumps, read_numbered_jsonl

if TYPE_CHECKING:
    from openai import OpenAI

_RATING = re.compile(r"\[\[\s*([0-9]{1,2}(?:\.[0-9]{1,3})?)\s*\]\]")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the judge said of one turn (from 1); ``rating`` is 1 to 10, None if none could be read from the text."""

    id: str | int
    turn: int
    rating: float | None
    judgement: str


def judge_prompt(turns: Sequence[str], answers: Sequence[str], references: Sequence[str] = ()) -> str:
    """What the judge is asked about the last of ``answers``, the turns before it being shown too.

    ``references`` are the data's own answers, shown turn by turn where there are any (maths, reasoning, code).
    """
    if not 0 < len(answers) <= len(turns):
        raise ValueError(f"{len(answers)} answers to {len(turns)} turns: give one answer for each turn that was asked")
    last = len(answers) - 1
    shown: list[str] = []
    for index, answer in enumerate(answers):
        shown.append(f"<user turn {index + 1}>\n{turns[index]}\n</user turn {index + 1}>")
        if index < len(references):
            shown.append(f"<reference {index + 1}>\n{references[index]}\n</reference {index + 1}>")
        shown.append(f"<answer {index + 1}>\n{answer}\n</answer {index + 1}>")
    about = "the reference answers are known to be right; " if len(references) > last else ""
    return (
        f"You grade what an assistant wrote. Grade answer {last + 1} alone; {about}earlier turns are there as context. "
        "Ask whether it does what the user wants, whether it is true, complete, clear and no longer than needed. "
        "Do not let length, style or order sway you.\n\n"
        + "\n\n".join(shown)
        + "\n\nExplain your judgement in a few sentences. Then give a whole number from 1 (useless) to 10 (could not "
        "be better) on a line of its own, in this form: Rating: [[5]]"
    )


def parse_rating(text: str) -> float | None:
    """The last number in double brackets, if it is one of 1 to 10."""
    found = _RATING.findall(text)
    rating = float(found[-1]) if found else 0.0
    return rating if 1 <= rating <= 10 else None


def judge_answers(
    client: OpenAI,
    model: str,
    id: str | int,
    turns: Sequence[str],
    answers: Sequence[str],
    references: Sequence[str],
    judged: Collection[int] = (),
) -> Iterator[Judgement]:
    """One judgement per answer, asked for at temperature 0; turns that are ``judged`` are left out."""
    for turn in range(1, len(answers) + 1):
        if turn in judged:
            continue
        content = judge_prompt(turns, answers[:turn], references)
        reply = client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": content}], temperature=0.0
        )
        text = reply.choices[0].message.content or ""
        yield Judgement(id, turn, parse_rating(text), text)


def connect(base_url: str, timeout_s: float = 120.0) -> OpenAI:
    """A client of the endpoint; ValueError where the package is missing."""
    try:
        from openai import OpenAI
    except ImportError as error:
        raise ValueError("the judge needs the package openai: pip install 'cospec[eval]'") from error
    return OpenAI(base_url=base_url, api_key=os.environ.get("OPENAI_API_KEY", "none"), timeout=timeout_s)


def mean_rating(judgements: Iterable[Judgement]) -> float | None:
    """Over the turns whose rating could be read, None if there are none."""
    ratings = [judgement.rating for judgement in judgements if judgement.rating is not None]
    return sum(ratings) / len(ratings) if ratings else None


def _checked(path: str, questions: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, row in read_numbered_jsonl(path):
        where, answers = f"{path}:{number}", row.get("answers")
        if str(row.get("id")) not in questions:
            raise ValueError(f"{where}: no question {row.get('id')!r}: ids are those of the task, such as mt_bench/81")
        if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
            raise ValueError(f"{where}: 'answers' must be a list of texts, one for each turn")
        if not 0 < len(answers) <= len(questions[str(row["id"])]["turns"]):
            raise ValueError(f"{where}: {len(answers)} answers, which are more than the turns or none")
        if str(row["id"]) in {str(other["id"]) for other in rows}:
            raise ValueError(f"{where}: the id {row['id']!r} is there twice: give each question one row")
        rows.append(row)
    if not rows:
        raise ValueError(f"{path}: no rows: write one object per line, the answers that are to be rated")
    return rows


def main() -> None:
    """Rate a file of answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, help='JSON lines {"id", "answers"}')
    parser.add_argument("--base-url", required=True, help="the OpenAI-compatible endpoint, such as http://host:8000/v1")
    parser.add_argument("--model", required=True, help="the judge's name at the endpoint")
    parser.add_argument("--data", help="local rows of MT-Bench instead of the Hub's")
    parser.add_argument("--out", help="append judgements to this file, and leave out the turns that it has")
    options = parser.parse_args()
    from cospec.task_set import load_task

    try:
        questions = {str(row.id): row.extra for row in load_task("mt_bench", path=options.data).rows}
        rows = _checked(options.rows, questions)
        kept = _kept(options.out)
        client = connect(options.base_url)
    except ValueError as error:
        print(f"cospec: error: {error}", file=sys.stderr)
        sys.exit(2)
    with open(options.out, "a", encoding="utf-8") if options.out else nullcontext(sys.stdout) as out:
        sys.exit(_judge_all(client, options.model, rows, questions, kept, out))


def _kept(path: str | None) -> list[Judgement]:
    """The judgements of an earlier run."""
    if path is None or not os.path.exists(path):
        return []
    try:
        return [Judgement(**row) for _, row in read_numbered_jsonl(path)]
    except TypeError as error:
        raise ValueError(f"{path} holds something other than judgements ({error}): give --out another file") from error


def _judge_all(
    client: OpenAI,
    model: str,
    rows: Sequence[Mapping[str, Any]],
    questions: Mapping[str, Mapping[str, Any]],
    kept: Sequence[Judgement],
    out: TextIO,
) -> int:
    """Write the judgements as they come; the exit status, 1 where the endpoint failed for a row."""
    from openai import OpenAIError

    judgements = list(kept)
    failed = 0
    for row in rows:
        turns, references = questions[str(row["id"])]["turns"], questions[str(row["id"])]["reference"]
        judged = [one.turn for one in kept if str(one.id) == str(row["id"])]
        try:
            for judgement in judge_answers(client, model, row["id"], turns, row["answers"], references, judged):
                judgements.append(judgement)
                print(dumps(asdict(judgement)), file=out, flush=True)
        # The other rows may fare better, and what was judged is kept.
        except OpenAIError as error:
            failed += 1
            print(f"cospec: error: {row['id']}: {error}", file=sys.stderr)
    unread = sum(judgement.rating is None for judgement in judgements)
    mean, counts = mean_rating(judgements), f"{len(judgements)} turns, {unread} unreadable, {failed} rows failed"
    print(f"mean rating {mean} over {counts}" if judgements else f"nothing was rated: {counts}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    main()
