"""`cospec score`: verdicts on a file of answers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from cospec.jsonl import dumps

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
WorkersOption = Annotated[int, typer.Option("--workers", help="Processes that share the work.")]
ConsentOption = Annotated[
    bool,
    typer.Option(
        "--confirm-run-unsafe-code",
        "--confirm_run_unsafe_code",
        help="Agree to run the generated code of a code task on this machine.",
    ),
]

# Legal inside a JSON string, and the end of a line to many a reader of this output.
_LINE_ENDS = {0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}


def command(
    rows: RowsOption,
    task: TaskOption = None,
    scorer: PlainScorerOption = None,
    data: DataOption = None,
    workers: WorkersOption = 1,
    confirm_run_unsafe_code: ConsentOption = False,
) -> None:
    """Score a file of answers by a task's rules.

    Prints {"id", "verdict", "extracted", "reason"} for each row, in order; the verdict is right, wrong, no_answer, or,
    where scoring itself failed, timeout or error. The counts go to stderr.
    """
    from cospec.scoring.registry import scorer_for, scorer_of_task
    from cospec.scoring.score_file import read_answers, read_task_answers, score_rows

    if (task is None) == (scorer is None):
        raise ValueError("answers are judged by --task NAME or by --scorer NAME: give one of the two")
    name = scorer if task is None else scorer_of_task(task)
    assert name is not None
    if name == "code":
        from cospec.scoring.code import give_consent, require_consent

        if confirm_run_unsafe_code:
            give_consent()
        require_consent()
    scorer_for(name)
    if task is None:
        if data is not None:
            raise ValueError("--data holds the rows of a code task: name it with --task, or leave --data out")
        answers = read_answers(rows, name)
    else:
        answers = read_task_answers(rows, task, data)
    counts: Counter[str] = Counter()
    for scored in score_rows(answers, name, workers):
        counts[scored.verdict.kind] += 1
        typer.echo(dumps(scored.to_json()).translate(_LINE_ENDS))
    kinds = ("right", "wrong", "no_answer", "timeout", "error")
    listed = ", ".join(f"{counts[kind]} {kind}" for kind in kinds)
    typer.echo(f"cospec: {len(answers)} rows: {listed}", err=True)
