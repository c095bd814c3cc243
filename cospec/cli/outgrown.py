"""Texts that outgrow the draft's context: the target goes on alone, and a line says how many did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

import typer

if TYPE_CHECKING:
    from cospec.engine.record import Rollout
    from cospec.pair import Pair

_Event = TypeVar("_Event", bound="str | Rollout")


class Outgrown:
    """Counts the texts of a run that went on without a draft because its context was full."""

    def __init__(self, pair: Pair) -> None:
        self._context, self._num, self._whole = pair.draft_context, 0, 0

    def seen(self, events: Iterable[tuple[int, _Event]]) -> Iterator[tuple[int, _Event]]:
        """The events of an engine as they are, its finished texts counted."""
        for index, event in events:
            if not isinstance(event, str):
                self._add(event)
            yield index, event

    def say_of(self, rollouts: Iterable[Rollout]) -> None:
        """The line about texts that are finished."""
        for rollout in rollouts:
            self._add(rollout)
        self.say()

    def _add(self, rollout: Rollout) -> None:
        behind = [block for block in rollout.blocks if block.start >= self._context]
        alone = bool(behind) and rollout.settings.rule != "target" and not any(block.draft_ids for block in behind)
        self._num, self._whole = self._num + alone, self._whole + 1

    def say(self) -> None:
        """One line on stderr, if there is anything to say."""
        if self._num:
            typer.echo(
                f"cospec: {self._num} of {self._whole} texts outgrew the draft's context of {self._context} tokens: "
                "from there on the target wrote alone",
                err=True,
            )
