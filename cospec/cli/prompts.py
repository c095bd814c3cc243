"""`cospec prompts`: a task's problems as a file of prompt rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cospec.cli.options import JsonOption, SeedOption
from cospec.cli.outputs import check_output
from cospec.jsonl import dumps, write_json_atomic, write_jsonl_atomic

TaskOption = Annotated[str, typer.Option("--task", help="Such as gsm8k, mgsm:de, mbpp:full, reasoning_gym:chain_sum.")]
OutOption = Annotated[
    Path, typer.Option("--out", metavar="FILE.jsonl", help="Where the rows go; FILE.info.json says what they are.")
]
NumOption = Annotated[int | None, typer.Option("--num", help="The first rows in the data's order; all if left out.")]
SplitOption = Annotated[str | None, typer.Option("--split", help="The split; the task's evaluation split if left out.")]
ShotsOption = Annotated[int, typer.Option("--shots", help="Worked examples before each question.")]
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="PATH", help="Local rows, a file or a directory, instead of the Hub's.")
]
RevisionOption = Annotated[
    str | None, typer.Option("--revision", help="Of the Hub's data set, instead of the one this release was made with.")
]
PlainOption = Annotated[
    bool, typer.Option("--plain", help="Prompts for a base model: plain text, to be decoded with --raw.")
]
SystemOption = Annotated[str | None, typer.Option("--system-prompt", help="Text of the system turn.")]

# Dropped rows that are named; the record names them all.
_SHOWN = 5


def command(
    task: TaskOption,
    out: OutOption,
    num: NumOption = None,
    split: SplitOption = None,
    shots: ShotsOption = 0,
    seed: SeedOption = 0,
    data: DataOption = None,
    revision: RevisionOption = None,
    plain: PlainOption = False,
    system_prompt: SystemOption = None,
    json: JsonOption = False,
) -> None:
    """Write a task's problems as prompt rows for rollouts, training and evaluation.

    The rows hold all that the task's scorer reads. The seed draws the examples, orders choices, generates problems.
    """
    from cospec.task_set import data_files, load_task

    inputs = data_files(task, data)
    check_output("--out", out, inputs)
    info_file = out.with_name(f"{out.name.removesuffix('.jsonl')}.info.json")
    check_output("--out", info_file, inputs)
    loaded = load_task(
        task,
        path=data,
        split=split,
        num=num,
        num_shots=shots,
        chat=not plain,
        system_prompt=system_prompt,
        seed=seed,
        revision=revision,
    )
    write_jsonl_atomic(out, (row.to_json() for row in loaded.rows))
    for row in loaded.info.dropped[:_SHOWN]:
        typer.echo(f"cospec: dropped {row.id}: {row.reason}", err=True)
    info = loaded.info.to_json()
    write_json_atomic(info_file, info)
    if json:
        typer.echo(dumps(info))
        return
    dropped = f", {len(loaded.info.dropped)} dropped" if loaded.info.dropped else ""
    typer.echo(
        f"{loaded.info.num_rows} rows of {task} ({loaded.info.split}{dropped}; {loaded.info.licence}) in {out}, "
        f"what they are in {info_file}"
    )
