"""The interface every verification rule implements, what it is shown, and what it answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from cospec.engine.hidden import HiddenStates
from cospec.engine.record import Bonus, Sampling
from cospec.engine.rules.rows import Rows
from cospec.engine.sampling import Draws
from cospec.pair import Pair

#: What a rule does at temperature 0, where every processed row is one-hot.
#: "own": it knows nothing of rows; "strict": its formula makes it strict decoding; "gate": it looks at the models'
#: probabilities at temperature 1; "random": it still draws; "refused": it would make no sense and says so.
Greedy = Literal["own", "strict", "gate", "random", "refused"]


@dataclass(frozen=True, slots=True)
class Regions:
    """The blocks of one round as an arbiter sees them.

    ``draft_ids`` and ``target_ids`` are (B, N), of which the first ``num_positions`` (B,) are real. A row's context is
    its first ``lengths`` (B,) entries of ``ids`` (B, C).
    """

    ids: Tensor
    lengths: Tensor
    draft_ids: Tensor
    target_ids: Tensor
    num_positions: Tensor


@dataclass(frozen=True, slots=True)
class RoundView:
    """One round before the decision.

    ``match`` and ``valid`` are (B, N): where the draft's token is the target's coupled one, and which positions are
    real; no block of the run has more than ``max_drafts``. ``rows`` are both models' distributions, each made when a
    rule asks for it. ``own_bonus``: the rule is to draw the bonus token too, and the drafter's row behind the block is
    there. ``hidden`` are the target's states at the last committed token and behind it at the drafts that were fed,
    None where nobody asked for any.
    """

    regions: Regions
    valid: Tensor
    match: Tensor
    rows: Rows
    keys: Tensor
    draws: Draws
    max_drafts: int
    own_bonus: bool = False
    hidden: HiddenStates | None = None

    @property
    def mismatch(self) -> Tensor:
        return self.valid & ~self.match

    def num_accepted(self, accept: Tensor) -> Tensor:
        """(B,): how long the block is up to the first position that ``accept`` (B, N) rejects."""
        return (accept & self.valid).long().cumprod(1).sum(1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a rule decides.

    ``accept`` (B, N) per position, had all before it been accepted, and ``keep_probs`` (B, N), how likely that was.
    ``written_ids`` (B,) are written where a block is rejected, and behind a fully accepted one where the rule is to
    draw the bonus; None: the target's own coupled tokens.
    """

    accept: Tensor
    keep_probs: Tensor
    written_ids: Tensor | None = None


class Rule(ABC):
    """Decides which draft tokens stay. ``default_bonus`` is the bonus form the rule uses unless told otherwise."""

    name: str
    default_bonus: Bonus
    #: False only for plain target decoding, where nothing is drafted.
    drafts: bool = True
    #: Whether it has a law of its own for the bonus token (`bonus: rule`), which takes one more pass of the drafter.
    has_own_bonus: ClassVar[bool] = False
    #: Whether that law reads the drafter's row behind the block.
    own_bonus_reads_draft: ClassVar[bool] = True
    #: Whether what it writes follows the drafter's beliefs, so that a weak drafter costs quality; not so where q only
    #: says how a token was proposed.
    trusts_draft: ClassVar[bool] = False

    @abstractmethod
    def decide(self, view: RoundView) -> Verdict: ...

    @property
    def spec(self) -> str:
        """The name with all parameters, from which `rule_named` makes an equal rule; recorded in `Settings`."""
        return self.name

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's layers whose hidden states it reads (`HiddenStates`); known once it is loaded."""
        return ()

    def load(self, pair: Pair) -> None:  # noqa: B027, as most rules load nothing
        """Load what it needs for this pair; ValueError if it does not fit.

        Every engine calls it, so that it must cost nothing the second time.
        """

    def check_bonus(self, bonus: Bonus) -> None:
        """ValueError for a bonus form that the rule does not have."""
        if bonus == "rule" and not self.has_own_bonus:
            raise ValueError(
                f"rule {self.spec!r} has no law of its own for a bonus token: choose 'target' or 'arbitrated'"
            )

    def bonus_reads_row(self, bonus: Bonus) -> bool:
        """Whether a bonus of this form is drawn from the drafter's row behind the block, one more draft step."""
        return bonus == "rule" and self.own_bonus_reads_draft

    @property
    def greedy(self) -> Greedy:
        return "own"

    @property
    def leans_on_draft(self) -> bool:
        """Whether it reads the drafter's confidence, which says nothing where the drafter has no distribution."""
        return False

    @property
    def needs_distribution(self) -> bool:
        """Whether it cannot do without the drafter's distribution, as with a drafter that only copies."""
        return False

    @property
    def needs_draft_logits(self) -> bool:
        """Whether it reads the drafter's logits (``rows.raw_q``, ``rows.draft_logits``)."""
        return False

    def check_sampling(self, sampling: Sampling) -> None:
        """ValueError where the rule makes no sense with this sampling."""
        if sampling.greedy and self.greedy == "refused":
            raise ValueError(
                f"rule {self.spec!r} makes no sense at temperature 0, where both models' rows are one-hot: "
                f"{self.greedy_remedy()}set a temperature above 0"
            )

    def greedy_remedy(self) -> str:
        """What of its parameters would make it work at temperature 0, ending in "or "; empty if nothing."""
        return ""

    def check_drafter(self, bonus: Bonus, *, one_hot: bool) -> None:
        """ValueError for a drafter without a distribution (``one_hot``) where the rule or its bonus needs one."""
        if one_hot and (self.needs_distribution or self.bonus_reads_row(bonus)):
            what = "" if self.needs_distribution else " with bonus 'rule'"
            raise ValueError(
                f"rule {self.spec!r}{what} needs the drafter's distribution, and this drafter has none: choose the "
                "drafter `model`, or another rule" + (" or bonus" if what else "")
            )

    def same_as_strict(self, sampling: Sampling, num_positions: int) -> str | None:
        """What makes it decide exactly as strict does in blocks of up to ``num_positions``; None if nothing does."""
        if sampling.greedy and self.greedy == "strict":
            return f"rule {self.spec!r} decides exactly as strict does at temperature 0, by its own formula"
        return None

    def notes(self, sampling: Sampling, num_positions: int, *, one_hot: bool) -> Iterable[str]:
        """What a user should know of these settings and does not expect; the engine warns of it.

        ``num_positions`` is the most a block has, ``one_hot`` says that the drafter has no distribution.
        """
        same = self.same_as_strict(sampling, num_positions)
        if same is not None:
            yield same
        if one_hot and self.leans_on_draft:
            yield (
                f"rule {self.spec!r} reads the drafter's confidence, and this drafter has no distribution: it looks "
                "certain of every token"
            )
