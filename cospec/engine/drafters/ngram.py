"""Prompt lookup: what once followed the text's last few tokens is proposed again; no model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from cospec.engine.cached_model import PromptPart
from cospec.engine.contexts import Contexts
from cospec.engine.drafters.base import Draft, Outcome, RunShape
from cospec.engine.drafters.chain import up_to_eos
from cospec.engine.drafters.spec import drafter_spec
from cospec.engine.parameters import Parameter
from cospec.engine.sampling import Draws
from cospec.pair import Pair

_PLD = "prompt lookup decoding (Saxena 2023)"
PARAMETERS = (
    Parameter("max_match", 3, "the most last tokens to look for", _PLD, "int", low=1, high=64),
    Parameter("min_match", 1, "the fewest last tokens that must be found", _PLD, "int", low=1, high=64),
    Parameter("copy", None, "the most tokens to copy; none: as many as a block holds", "ours", "int", low=1),
    Parameter("match", "first", "which of several places to copy from", _PLD, "choice", choices=("first", "last")),
)


@dataclass(frozen=True, slots=True)
class NgramDrafter:
    """Copies from prompt and text; the longest match goes before the others. ``copy`` None fills the block."""

    max_match: int = 3
    min_match: int = 1
    copy: int | None = None
    match: Literal["first", "last"] = "first"

    def __post_init__(self) -> None:
        check_matches(self.spec, self.min_match, self.max_match)

    @property
    def spec(self) -> str:
        names = [parameter.name for parameter in PARAMETERS]
        return drafter_spec("ngram", None, {name: getattr(self, name) for name in names})

    @property
    def runs_draft_model(self) -> bool:
        return False

    @property
    def one_hot(self) -> bool:
        return True

    @property
    def costs_steps(self) -> bool:
        return False

    @property
    def layers(self) -> tuple[int, ...]:
        return ()

    def load(self, pair: Pair, max_drafts: int) -> None:
        """ValueError for a ``copy`` that no block of this length can hold."""
        check_copy(self.spec, self.copy, max_drafts)

    def bind(self, run: RunShape) -> BoundNgramDrafter:
        return BoundNgramDrafter(self, run)


def check_matches(spec: str, fewest: int, most: int) -> None:
    """ValueError for a shortest match that is longer than the longest."""
    if fewest > most:
        raise ValueError(
            f"drafter {spec!r} has min_match {fewest} above max_match {most}: nothing would be found; lower the one or "
            "raise the other"
        )


def check_copy(spec: str, copy: int | None, max_drafts: int) -> None:
    """ValueError for a number of copied tokens that the length of a block leaves without effect."""
    if copy is not None and copy > max_drafts:
        raise ValueError(
            f"drafter {spec!r} copies up to {copy} tokens and a block holds {max_drafts}: raise num_draft_tokens, or "
            "leave copy out"
        )


class BoundNgramDrafter:
    """Looks anew in every round, so that it has no state."""

    def __init__(self, drafter: NgramDrafter, run: RunShape) -> None:
        self.drafter, self.eos_ids, self.context = drafter, run.eos_ids, run.pair.target_context

    def admit(self, ids: Tensor, lengths: Mapping[int, int], chunk: int) -> None:
        pass

    def read(self, ids: Tensor, part: PromptPart) -> None:
        raise AssertionError("it asks for no layers")

    def propose(self, contexts: Contexts, num_steps: int, draws: Draws) -> Draft:
        own, limits = self.drafter, contexts.limits
        text = contexts.ids[:, : contexts.longest]
        starts = longest_match(text, contexts.lengths, own.max_match, own.min_match, last=own.match == "last")
        num = torch.minimum(contexts.lengths - starts, limits if own.copy is None else limits.clamp_max(own.copy))
        # One wait for the device, so that a pass over nothing but padding is spared.
        width = int(num.max())
        places = starts[:, None] + torch.arange(width, device=text.device)
        proposed = text.gather(1, places.clamp_max(text.shape[1] - 1))
        return Draft(proposed, up_to_eos(proposed, num, self.eos_ids), None, one_hot=True)

    def commit(self, outcome: Outcome) -> None:
        pass

    def select_rows(self, rows: Tensor) -> None:
        pass


def longest_match(text: Tensor, lengths: Tensor, most: int, fewest: int, *, last: bool) -> Tensor:
    """Places (B,) behind the longest earlier occurrence of each row's last tokens, ``fewest`` to ``most`` of them.

    A row has ``lengths`` (B,) tokens of ``text`` (B, C). Of several occurrences of that length it is the first, or the
    ``last`` one; an occurrence may overlap the end it repeats. The row's length where there is none.
    """
    ends = torch.arange(text.shape[1], device=text.device)
    same = ends < lengths[:, None]
    num_same = torch.zeros_like(text)
    for back in range(1, min(most, text.shape[1] - 1) + 1):
        wanted = text.gather(1, (lengths - back).clamp_min(0)[:, None])
        # What rolls in from the row's end lies before `back`.
        same = same & (ends >= back) & (text.roll(back, 1) == wanted)
        num_same += same
    best = num_same.amax(1, keepdim=True)
    found = (num_same == best).int()
    place = text.shape[1] - 1 - found.flip(1).argmax(1) if last else found.argmax(1)
    return torch.where(best[:, 0] >= fewest, place, lengths)
