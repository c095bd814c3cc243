"""The interface every drafter implements: what an engine is given, and what works for one run of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from cospec.engine.cached_model import AppendPass, PromptPart
from cospec.engine.contexts import Contexts
from cospec.engine.hidden import HiddenStates
from cospec.engine.sampling import Draws
from cospec.pair import Pair


@dataclass(frozen=True, slots=True)
class Draft:
    """One block a row: ``ids`` (B, N), of which the first ``num_positions`` (B,) are real.

    ``q`` (B, N, V) are the rows the tokens were drawn from. None where there is nothing but the token, so that q is
    one-hot at ``ids``: in a greedy batch, and always with a drafter that has no distribution, which says so with
    ``one_hot``. ``logits``, where the run keeps them, are the penalised ones of ``q``. Where the run asks for the row
    behind the block both have N + 1 positions, and the row stands behind the last real one.
    """

    ids: Tensor
    num_positions: Tensor
    q: Tensor | None
    logits: Tensor | None = None
    one_hot: bool = False


@dataclass(frozen=True, slots=True)
class RunShape:
    """The run a drafter is bound to.

    ``longest`` is the most tokens any row may have, prompt included; ``most`` the most that a round drafts; ``eos_ids``
    (E,) end a block behind them; ``run`` takes the passes over all rows, None for plain ones. A drafter with a
    distribution hands its logits over with ``keeps_logits``, and with ``row_behind`` those behind the block too.
    """

    pair: Pair
    num_rows: int
    longest: int
    most: int
    eos_ids: Tensor
    run: AppendPass | None = None
    keeps_logits: bool = False
    row_behind: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a round. ``lengths`` (B,) are the committed tokens before it.

    ``num_drafted``, ``accepted`` and ``num_emitted`` (B,) count the block, its accepted tokens and all that were
    committed, the target's own included. ``hidden``, where the drafter asked for layers, holds (B, T, H) at positions
    ``lengths - 1`` and on: of the last committed token and of the drafts that were fed. The first ``num_emitted`` of a
    row are those of committed tokens; the newest of all has none yet, as it has not been fed.
    """

    lengths: Tensor
    num_drafted: Tensor
    accepted: Tensor
    num_emitted: Tensor
    hidden: HiddenStates | None


class BoundDrafter(Protocol):
    """A drafter at work on the rows of one run; holds all their state.

    In a round it is asked to `propose` and then told of the outcome by `commit`. A block ends behind an EOS, and no row
    gets more than ``contexts.limits`` allows. Nothing but a row's own tokens, hidden states and round key may decide
    what it is proposed.
    """

    @property
    def context(self) -> int:
        """The most tokens a row may have together with what is drafted behind it."""
        ...

    def admit(self, ids: Tensor, lengths: Mapping[int, int], chunk: int) -> None:
        """Rows start anew with the first ``lengths[row]`` tokens of ``ids`` (B, C), read ``chunk`` at a time.

        Rows whose prompts are longer than ``context`` are left out and are never to be drafted for.
        """
        ...

    def read(self, ids: Tensor, part: PromptPart) -> None:
        """The next part of admitted rows' prompts with its hidden states; called only where layers were asked for.

        The parts of a row come in order, behind `admit`, and end before the prompt's last token.
        """
        ...

    def propose(self, contexts: Contexts, num_steps: int, draws: Draws) -> Draft:
        """Up to ``contexts.limits`` tokens behind each context, N <= ``num_steps`` in all; a row may get none."""
        ...

    def commit(self, outcome: Outcome) -> None:
        """The round is over, also for rows that are not drafted for: forget what was not committed."""
        ...

    def select_rows(self, rows: Tensor) -> None:
        """Only these rows (R,) of the batch go on, in this order."""
        ...


class Drafter(Protocol):
    """A kind of drafter with its parameters, as `drafter_named` makes it and an engine is given it.

    It holds nothing of a run, so that one drafter serves many engines of one pair.
    """

    @property
    def spec(self) -> str:
        """Its name with all parameters, from which `drafter_named` makes an equal one; recorded in `Settings`."""
        ...

    @property
    def runs_draft_model(self) -> bool:
        """Whether it drafts with the pair's draft model, which an arbiter shares."""
        ...

    @property
    def one_hot(self) -> bool:
        """True where it has no distribution: a draft is then one-hot, also when texts are sampled."""
        ...

    @property
    def costs_steps(self) -> bool:
        """True where each draft token costs a pass of its own, so that there is a ``cost_ratio``."""
        ...

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's layers whose hidden states it reads (`HiddenStates`); known once it is loaded."""
        ...

    def load(self, pair: Pair, max_drafts: int) -> None:
        """Load what it needs for this pair and blocks of up to ``max_drafts``; ValueError if it does not fit.

        Every engine calls it, so that it must cost nothing the second time.
        """
        ...

    def bind(self, run: RunShape) -> BoundDrafter:
        """Prepare for a run over a pair it was loaded for."""
        ...


def check_use(drafter: Drafter, *, arbiter: bool, cost_ratio: float | None) -> None:
    """ValueError for a drafter that the other settings of an engine do not go with; needs no models."""
    if arbiter and not drafter.runs_draft_model:
        raise ValueError(
            f"rule 'arbiter' judges the draft model's tokens over its cache, and drafter {drafter.spec!r} has neither: "
            "use drafter 'model', or a rule without an arbiter"
        )
    if cost_ratio is not None and not drafter.costs_steps:
        raise ValueError(
            f"cost_ratio is {cost_ratio}, and drafter {drafter.spec!r} has no draft steps whose time could be weighed: "
            "leave it out; num_draft_tokens is the length of a block"
        )
