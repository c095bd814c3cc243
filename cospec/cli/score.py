"""`cospec score`: verdicts on a file of answers."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import closing, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cospec.cli.isolation import IsolationOption, say_isolation
from cospec.cli.options import on_interrupt
from cospec.cli.stopping import StopSignals
from cospec.jsonl import dumps

if TYPE_CHECKING:
    from cospec.scoring.score_file import AnswerRow, ScoredRow

RowsOption = Annotated[
    Path,
    typer.Option(
        "--rows",
        metavar="FILE.jsonl",
        help='Rows {"id", "text", "gold"}; golds in its place for open questions, lang as well for mgsm, '
        '{"id", "task_id", "completion"} for code tasks.',
    ),
]
TaskOption = Annotated[
    str | None, typer.Option("--task", help="Whose scorer judges, such as gsm8k, mbpp:full, reasoning_gym:chain_sum.")
]
PlainScorerOption = Annotated[
    str | None, typer.Option("--scorer", help="A scorer's name or package.module:function, instead of --task.")
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="PATH", help="A code task's rows: file or directory; else $COSPEC_DATA/TASK, the Hub."
    ),
]
WorkersOption = Annotated[int, typer.Option("--workers", help="Rows that are scored at a time.")]
ConsentOption = Annotated[
    bool,
    typer.Option(
        "--confirm-run-unsafe-code",
        "--confirm_run_unsafe_code",
        help="Agree to run the generated code of a code task on this machine.",
    ),
]

FailedShareOption = Annotated[
    float,
    typer.Option("--max-failed-share", min=0, max=1, help="Exit code 1 where scoring itself fails more often."),
]

# Legal inside a JSON string, and the end of a line to many a reader of this output.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
#: Fewer rows than this say little: one failure among ten is allowed.
_ENOUGH = 20


def command(
    rows: RowsOption,
    task: TaskOption = None,
    scorer: PlainScorerOption = None,
    data: DataOption = None,
    workers: WorkersOption = 1,
    confirm_run_unsafe_code: ConsentOption = False,
    minimum_isolation: IsolationOption = None,
    max_failed_share: FailedShareOption = 0.05,
) -> None:
    """Score a file of answers by a task's rules.

    Prints {"id", "verdict", "extracted", "reason"} for each row, in order; the verdict is right, wrong, no_answer, or,
    where scoring itself failed, timeout or error. The counts go to stderr.
    """
    from cospec.scoring.score_file import score_rows

    if (task is None) == (scorer is None):
        raise ValueError("answers are judged by --task NAME or by --scorer NAME: give one of the two")
    with StopSignals():
        name = _ready_scorer(task, scorer, confirm_run_unsafe_code)
        if name != "code" and minimum_isolation is not None:
            raise ValueError(f"--minimum-isolation is for the scorer 'code' and this is {name!r}: drop it")
        answers = _answers(rows, task, name, data)
        if name == "code":
            say_isolation(minimum_isolation)
        found: list[ScoredRow] = []
        kept = on_interrupt(lambda: f"the verdicts printed, of the first {len(found)} of {len(answers)} rows")
        with kept, closing(score_rows(answers, name, workers)) as scored:
            for row in scored:
                typer.echo(dumps(row.to_json()).translate(_LINE_ENDS))
                found.append(row)
    _print_counts(found)
    _check_failures(found, max_failed_share)


def _ready_scorer(task: str | None, scorer: str | None, consent: bool) -> str:
    """The scorer's own name, once it can be used and, if it runs programs, may do so."""
    from cospec.scoring.code import FLAG, give_consent
    from cospec.scoring.registry import scorer_for, scorer_name, scorer_of_task

    name = scorer_name(scorer) if scorer is not None else scorer_of_task(task or "")
    # A scorer of the user's own may run programs as well.
    if consent and name != "code" and ":" not in name:
        raise ValueError(f"{FLAG} is given and the scorer {name!r} runs no code: drop it")
    if consent:
        give_consent()
    # What a module prints while it is imported must not get among the verdicts.
    with redirect_stdout(sys.stderr):
        scorer_for(name)
    return name


def _answers(rows: Path, task: str | None, scorer: str, data: Path | None) -> list[AnswerRow]:
    from cospec.scoring.score_file import read_answers, read_task_answers

    if task is not None:
        return read_task_answers(rows, task, data)
    if data is not None:
        raise ValueError("--data holds the rows of a code task: name it with --task, or leave --data out")
    return read_answers(rows, scorer)


def _print_counts(found: list[ScoredRow]) -> None:
    from cospec.scoring.verdict import KINDS

    counts = Counter(row.verdict.kind for row in found)
    typer.echo(f"cospec: {len(found)} rows: {', '.join(f'{counts[kind]} {kind}' for kind in KINDS)}", err=True)


def _check_failures(found: list[ScoredRow], allowed_share: float) -> None:
    """Exit code 1 where scoring failed on more than the share of the rows: such verdicts say little of the answers."""
    failed = [row for row in found if row.verdict.is_failure]
    if len(failed) <= allowed_share * max(len(found), _ENOUGH):
        return
    typer.echo(
        f"cospec: error: the scorer failed on {len(failed)} of {len(found)} rows (the first: {failed[0].id!r}: "
        f"{failed[0].verdict.reason}), more than the allowed share of {allowed_share:g}: mend the rows or the scorer, "
        "or allow more with --max-failed-share",
        err=True,
    )
    raise typer.Exit(1)
