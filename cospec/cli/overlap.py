"""`cospec overlap`: evaluation problems that stand among training prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cospec.cli.options import JsonOption, PromptsOption
from cospec.jsonl import dumps
from cospec.prompt_rows import PromptRow, load_prompt_rows

if TYPE_CHECKING:
    from cospec.evaluation.contamination import Contamination

_SHOWN = 10


def command(
    train: Annotated[
        list[Path], typer.Option("--train", metavar="FILE.jsonl", help="Prompt rows trained on; repeatable.")
    ],
    prompts: PromptsOption = None,
    task: Annotated[
        str | None, typer.Option("--task", help="Evaluation problems of a task instead of --prompts.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="PATH", help="The task's rows on this machine instead of the Hub's."),
    ] = None,
    split: Annotated[str | None, typer.Option("--split", help="The task's split.")] = None,
    num: Annotated[int | None, typer.Option("--num", help="The task's first rows only.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of a generated task's rows (0).")] = None,
    n: Annotated[int, typer.Option("--n", help="Words in a run that counts as an overlap.")] = 13,
    json: JsonOption = False,
) -> None:
    """Find evaluation problems that stand among training prompts, exactly or in runs of n words.

    Instructions and few-shot examples are left aside where the rows come from `cospec prompts`.
    """
    from cospec.evaluation.contamination import contamination

    if (prompts is None) == (task is None):
        raise ValueError("evaluation problems come from --prompts FILE.jsonl or from --task NAME: give one of the two")
    if task is None and (data, split, num, seed) != (None,) * 4:
        raise ValueError("--data, --split, --num and --seed choose rows of a --task: leave them out with --prompts")
    found = contamination(_train_rows(train), _eval_rows(prompts, task, data, split, num, seed or 0), n)
    if json:
        typer.echo(dumps(found.to_json()))
    else:
        _print(found)


def _train_rows(files: Sequence[Path]) -> Iterator[PromptRow]:
    for file in files:
        yield from load_prompt_rows(file, require_gold=False)


def _eval_rows(
    prompts: Path | None, task: str | None, data: Path | None, split: str | None, num: int | None, seed: int
) -> list[PromptRow]:
    if prompts is not None:
        return load_prompt_rows(prompts, require_gold=False)
    from cospec.task_set import load_task

    assert task is not None
    return load_task(task, path=data, split=split, num=num, seed=seed).rows


def _print(found: Contamination) -> None:
    typer.echo(f"{found.num_eval} evaluation rows against {found.num_train} training rows")
    for what, ids, share in (
        ("equal to a training prompt", found.exact_ids, found.exact_share),
        (f"sharing {found.n} words in a row", found.overlap_ids, found.overlap_share),
    ):
        some = ": " + ", ".join(map(str, ids[:_SHOWN])) + (", ..." if len(ids) > _SHOWN else "") if ids else ""
        typer.echo(f"  {what}: {len(ids)} ({share:.1%}){some}")
