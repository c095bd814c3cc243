"""Label a file of rollouts chunk by chunk, so that an interrupted run goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cospec.engine.record import Rollout
from cospec.jsonl import append_jsonl, drop_torn_tail, read_jsonl, write_jsonl_atomic
from cospec.labels.outcome import OutcomeLabeller
from cospec.labels.record import RolloutLabels, digest, labels_from_json, problem_digest
from cospec.prompt_rows import PromptRow

CHUNK = 256
MAX_FAILED_SHARE = 0.05


def read_labels(path: Path) -> list[RolloutLabels]:
    """All label rows of a file; ValueError if there are none."""
    labels = [labels_from_json(row) for row in read_jsonl(path)]
    if not labels:
        raise ValueError(f"{path} holds no labels: write some with `cospec label`")
    return labels


def label_file(
    labeller: OutcomeLabeller,
    rollouts: Sequence[Rollout],
    rows: Sequence[PromptRow],
    out: Path,
    step: Callable[[int], None] = lambda count: None,
    *,
    chunk_size: int = CHUNK,
    max_failed_share: float = MAX_FAILED_SHARE,
) -> list[RolloutLabels]:
    """Label ``rollouts`` into ``out``, skipping those it already holds; all labels, in the order of the file.

    Rollouts on which the scorer failed are labelled again. ``step`` is told how many more rollouts are done. ValueError
    if the file was made in another way, a rollout's prompt row is missing, or the scorer fails on more than
    ``max_failed_share`` of the texts. An interrupt loses the chunk that was being labelled.
    """
    scorer_rows = {row.id: row.scorer_row() for row in rows}
    unknown = [rollout.id for rollout in rollouts if rollout.id not in scorer_rows]
    if unknown:
        raise ValueError(f"rollout {unknown[0]!r} has no row among the prompts: give the file it was decoded from")
    done = _already_done(labeller, rollouts, scorer_rows, out)
    names = {row.id for row in done}
    todo = [rollout for rollout in rollouts if rollout.id not in names]
    step(len(rollouts) - len(todo))
    for first in range(0, len(todo), chunk_size):
        chunk = labeller.label(todo[first : first + chunk_size], scorer_rows)
        # What was done before had no failures; all rollouts have about as many texts as those of this call.
        foreseen = labeller.num_scored * len(rollouts) / (first + len(chunk))
        _stop_on_failures(labeller, max_failed_share * foreseen, out)
        append_jsonl(out, [row.to_json() for row in chunk])
        done += chunk
        step(len(chunk))
    return done


def _stop_on_failures(labeller: OutcomeLabeller, allowed: float, out: Path) -> None:
    """Labels of a scorer that fails often would say that nothing complements anything."""
    num = len(labeller.failures)
    if num > allowed:
        raise ValueError(
            f"the scorer {labeller.scorer_name!r} failed on {num} of {labeller.num_scored} texts; the first time: "
            f"{labeller.failures[0]}. Mend it and give the same command again; labels made before stay in {out}"
        )


def _already_done(
    labeller: OutcomeLabeller, rollouts: Sequence[Rollout], scorer_rows: Mapping[str | int, Any], out: Path
) -> list[RolloutLabels]:
    """What the file holds, without rollouts on which the scorer failed; those leave the file too."""
    if not out.exists():
        return []
    drop_torn_tail(out)
    rows = [labels_from_json(row) for row in read_jsonl(out)]
    digests = {rollout.id: digest(rollout) for rollout in rollouts}
    for row in rows:
        if digests.get(row.id) != row.rollout:
            raise ValueError(f"{out} holds labels of other rollouts (id {row.id!r}): give another --out, or remove it")
        if problem_digest(scorer_rows[row.id]) != row.problem:
            raise ValueError(
                f"{out} was labelled when the prompt row of {row.id!r} was another, its gold answer perhaps: give "
                "another --out, or remove it"
            )
        made = (row.continue_with, row.scope, row.scorer)
        now = (labeller.continue_with, labeller.scope, labeller.scorer_name)
        if made != now:
            before, after = (f"continue_with={c}, label={s}, scorer={n}" for c, s, n in (made, now))
            raise ValueError(
                f"{out} was labelled with {before}, now {after}: give another --out, or the same settings to go on"
            )
    done = [row for row in rows if not row.has_failures]
    if len(done) < len(rows):
        write_jsonl_atomic(out, [row.to_json() for row in done])
    return done
