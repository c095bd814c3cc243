"""`cospec label`: what each mismatch of recorded rollouts is worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cospec.cli.lock import sole_appender
from cospec.cli.options import (
    AttnOption,
    BatchSizeOption,
    DeviceOption,
    DraftOption,
    DtypeOption,
    JsonOption,
    PairOption,
    ScorerOption,
    TargetOption,
    on_interrupt,
)
from cospec.cli.outputs import check_output
from cospec.cli.progress import progress
from cospec.jsonl import dumps, require_file
from cospec.prompt_rows import common_task, load_prompt_rows

if TYPE_CHECKING:
    from cospec.labels import Complementarity

RolloutsOption = Annotated[
    Path, typer.Option("--rollouts", metavar="FILE.jsonl", help="Rollouts to label, from `cospec rollout`.")
]
RowsOption = Annotated[
    Path, typer.Option("--prompts", metavar="FILE.jsonl", help="The rows they were decoded from, with gold answers.")
]
PolicyOption = Annotated[
    Path | None, typer.Option("--arbiter", metavar="DIR", help="The policy that goes on, for --continue-with arbiter.")
]
LabelsOption = Annotated[
    Path, typer.Option("--out", metavar="FILE.jsonl", help="Where the labels go; resumed if begun.")
]


def command(
    rollouts: RolloutsOption,
    prompts: RowsOption,
    out: LabelsOption,
    pair: PairOption = None,
    draft: DraftOption = None,
    target: TargetOption = None,
    scorer: ScorerOption = None,
    continue_with: Annotated[
        Literal["target", "draft", "either", "arbiter"], typer.Option("--continue-with", help="Who finishes a branch.")
    ] = "either",
    label: Annotated[
        Literal["block", "executed"], typer.Option("--label", help="Every mismatch of a block, or the executed ones.")
    ] = "block",
    arbiter: PolicyOption = None,
    batch_size: BatchSizeOption = 64,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    attn: AttnOption = None,
    json: JsonOption = False,
) -> None:
    """Label the mismatches of recorded rollouts by the answers both branches lead to.

    Prints the complementarity report: how often only the draft's branch, only the target's, both or none end right.
    """
    check_output("--out", out, [rollouts, prompts])
    rows = load_prompt_rows(prompts, require_gold=True)
    require_file(rollouts, "rollouts")
    from cospec.cli.loading import load_pair_from_options, read_pair_spec
    from cospec.scoring import scorer_for
    from cospec.scoring.golds import require_readable_golds

    name = scorer or common_task(rows)
    judge = scorer_for(name)
    require_readable_golds((row.scorer_row() for row in rows), name)
    read_pair_spec(pair, draft, target, device, dtype, attn)
    from cospec.arbiter.adapter import load_scorer
    from cospec.cli.made_by import claim
    from cospec.engine.rollout_file import read_rollouts
    from cospec.labels import complementarity
    from cospec.labels.outcome import OutcomeLabeller
    from cospec.labels.run import label_file

    recorded = read_rollouts(rollouts)
    with sole_appender(out):
        loaded = load_pair_from_options(pair, draft, target, device, dtype, attn)
        claim(out, loaded, arbiter)
        labeller = OutcomeLabeller(
            loaded,
            judge,
            scorer_name=name,
            continue_with=continue_with,
            scope=label,
            batch_size=batch_size,
            arbiter=load_scorer(arbiter, loaded) if arbiter else None,
        )
        kept = on_interrupt(lambda: f"the labels made so far in {out}; the same command goes on")
        with kept, progress("label", len(recorded), "rollouts") as step:
            labels = label_file(labeller, recorded, rows, out, step)
    _print_report(complementarity(labels), out, json)


def _print_report(report: Complementarity, out: Path, json: bool) -> None:
    result: dict[str, Any] = {"labels": str(out), "num_mismatches": report.num_mismatches}
    result |= {"num_failed": report.num_failed, "shares": report.shares()}
    if json:
        typer.echo(dumps(result))
        return
    typer.echo(f"{report.num_mismatches} mismatches labelled into {out}; the scorer failed on {report.num_failed}")
    words = {
        "only_draft": "only the draft's branch",
        "only_target": "only the target's",
        "both": "both",
        "none": "none",
    }
    for name, share in report.shares().items():
        typer.echo(f"  {words[name]:>24} ends right: {getattr(report, name):>7}  {share:.1%}")
