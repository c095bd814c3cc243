"""Labels as they lie on disk: one row per rollout, beside the rollouts."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cospec.engine.record import Rollout
from cospec.jsonl import dumps

ContinueWith = Literal["target", "draft", "either", "arbiter"]
LabelScope = Literal["block", "executed"]


@dataclass(frozen=True, slots=True)
class MismatchLabel:
    """One mismatch: ``block`` counts the rollout's blocks, ``position`` is 0-based in it.

    ``draft_right`` and ``target_right`` say whether each branch ended right, None where the scorer failed. ``label`` in
    [0, 1] is what keeping is worth, None where the mismatch teaches nothing (method section 3).
    """

    block: int
    position: int
    draft_right: bool | None
    target_right: bool | None
    label: float | None


@dataclass(frozen=True, slots=True)
class RolloutLabels:
    """All labels of one rollout and how they were made.

    ``rollout`` is the `digest` of the rollout they belong to, ``problem`` the `problem_digest` of its prompt row.
    """

    id: str | int
    rollout: str
    problem: str
    continue_with: ContinueWith
    scope: LabelScope
    scorer: str
    labels: tuple[MismatchLabel, ...]

    @property
    def has_failures(self) -> bool:
        """Whether the scorer failed on a branch."""
        return any(label.draft_right is None or label.target_right is None for label in self.labels)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def digest(rollout: Rollout) -> str:
    """What ties labels to a rollout: its tokens and its blocks. Another K gives other blocks under the same id."""
    blocks = [(block.start, block.draft_ids, block.target_ids) for block in rollout.blocks]
    return hashlib.blake2b(repr((rollout.prompt_ids, rollout.output_ids, blocks)).encode(), digest_size=8).hexdigest()


def problem_digest(row: Mapping[str, Any]) -> str:
    """What ties labels to what they were scored against: the prompt row as the scorer is given it."""
    return hashlib.blake2b(dumps(row).encode(), digest_size=8).hexdigest()


def labels_from_json(row: Mapping[str, Any]) -> RolloutLabels:
    """Rebuild a row; ValueError names the row that does not fit."""
    try:
        labels = tuple(MismatchLabel(**label) for label in row["labels"])
        return RolloutLabels(**{**row, "labels": labels})
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"label row {row.get('id')!r} cannot be read ({error}): make it again with `cospec label`"
        ) from error
