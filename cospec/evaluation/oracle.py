"""Does an arbiter take the better branch? Its decisions against outcomes (method section 3, labeller `outcome`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cospec.engine.record import Rollout
from cospec.engine.rollout_file import decode_to_file, recorded_rollouts
from cospec.evaluation.comparison import Share, share_of
from cospec.evaluation.method import EvalSettings, Method, requests_of
from cospec.evaluation.sample import SampleKey
from cospec.evaluation.task import EvalTask
from cospec.labels import RolloutLabels
from cospec.labels.outcome import OutcomeLabeller
from cospec.labels.run import MAX_FAILED_SHARE, label_file
from cospec.pair import Pair

#: Who finishes a branch; a branch is right if one of the two gets it right.
CONTINUE_WITH = "either"
LABELS = ".labels.jsonl"


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of the executed decisions after which exactly one branch ends right, the share that took it.

    ``both`` and ``none`` count the decisions with no better branch, ``num_failed`` those whose scorer failed; they are
    in ``num_decisions``. The interval draws problems, as the decisions of one text hang together.
    """

    agreement: Share
    num_problems: int
    num_decisions: int
    both: int
    none: int
    num_failed: int
    continue_with: str = CONTINUE_WITH

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return dataclasses.asdict(self) | {"agreement": self.agreement.to_json()}


def agree_with_oracle(
    pair: Pair,
    method: Method,
    task: EvalTask,
    settings: EvalSettings,
    num: int,
    stem: Path,
    step: Callable[[int], None] = lambda count: None,
    max_failed_share: float = MAX_FAILED_SHARE,
) -> Agreement:
    """Decode the task's first ``num`` problems and continue from both branches of every executed decision.

    Rollouts and labels go to ``stem`` with two suffixes, from which an interrupted call goes on; ``step`` is told how
    many problems are done. ValueError where the scorer fails on more than ``max_failed_share`` of the branches' texts.
    """
    rows = task.rows[:num]
    requests = requests_of(pair, rows, raw=settings.raw)
    engine, records = method.engine(pair, settings), stem.with_name(stem.name + ".rollouts.jsonl")
    done = {rollout.id for rollout in recorded_rollouts(records, requests, engine.settings)}
    decode_to_file(engine, [request for request in requests if request.id not in done], records, lambda rollout: None)
    # In the order of the rows: who is labelled together with whom must not depend on which ended first.
    by_id = {rollout.id: rollout for rollout in recorded_rollouts(records, requests, engine.settings)}
    rollouts = [by_id[request.id] for request in requests]
    labeller = OutcomeLabeller(
        pair,
        task.scorer,
        scorer_name=task.scorer_name,
        continue_with="either",
        scope="executed",
        batch_size=settings.batch_size,
    )
    labels = label_file(
        labeller,
        rollouts,
        rows,
        stem.with_name(stem.name + LABELS),
        step,
        # An interrupt loses no more than one batch of problems; each has branches enough to fill batches.
        chunk_size=settings.batch_size,
        max_failed_share=max_failed_share,
    )
    return agreement_of(task.name, rollouts, labels)


def oracle_stem(directory: Path, task: str, method: str, num: int) -> Path:
    """Where a run directory keeps what was decoded for the oracle."""
    # With the number: labels of more rollouts than are asked for are refused as another file's.
    return directory / "oracle" / quote(f"{task}/{method}/{num}", safe="")


def drop_labels(directory: Path, task: str) -> int:
    """Delete the labels of a task, which hold verdicts without the texts; the rollouts stay. The number of files."""
    prefix = quote(f"{task}/", safe="")
    found = [file for file in (directory / "oracle").glob(f"*{LABELS}") if file.name.startswith(prefix)]
    for file in found:
        file.unlink()
    return len(found)


def agreement_of(task: str, rollouts: Iterable[Rollout], labels: Iterable[RolloutLabels]) -> Agreement:
    """Compare executed decisions with their labels."""
    by_id = {row.id: row for row in labels}
    hits: dict[SampleKey, bool] = {}
    outcomes, num_problems = [], 0
    for rollout in rollouts:
        num_problems += 1
        kept = {(n, d.position): d.kept for n, block in enumerate(rollout.blocks) for d in block.decisions}
        for number, label in enumerate(by_id[rollout.id].labels):
            outcome = (label.draft_right, label.target_right)
            outcomes.append(outcome)
            if outcome in ((True, False), (False, True)):
                # The decision's number stands where repeats do: the problem is the unit all the same.
                key = SampleKey(task, rollout.id, number)
                hits[key] = kept[label.block, label.position] == label.draft_right
    return Agreement(
        agreement=share_of(hits),
        num_problems=num_problems,
        num_decisions=len(outcomes),
        both=outcomes.count((True, True)),
        none=outcomes.count((False, False)),
        num_failed=sum(None in outcome for outcome in outcomes),
    )
