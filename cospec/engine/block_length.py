"""How many tokens to draft next: fixed, or by what the row's blocks have yielded so far."""

from __future__ import annotations

from dataclasses import dataclass

from cospec.engine.record import Block

#: The acceptance a row starts from, and how many positions of a real block it weighs as much as.
_PRIOR, _PRIOR_WEIGHT = 0.7, 4.0
#: What a block before the last one counts for, so that the estimate follows the text.
_DECAY = 0.85


@dataclass(slots=True)
class Acceptance:
    """A row's share of accepted draft tokens among those that were tested, older blocks counting less (ours)."""

    accepted: float = _PRIOR * _PRIOR_WEIGHT
    tested: float = _PRIOR_WEIGHT

    def add(self, block: Block) -> None:
        """Take a block in: what stands behind its first rejection was not tested."""
        rejected = block.accepted_len < len(block.draft_ids)
        self.accepted = _DECAY * self.accepted + block.accepted_len
        self.tested = _DECAY * self.tested + block.accepted_len + rejected

    @property
    def share(self) -> float:
        return self.accepted / self.tested


def best_length(share: float, most: int, cost_ratio: float, *, bonus: bool) -> int:
    """The number of draft tokens, 1 to ``most``, with the most tokens per unit of time; never 0, which teaches nothing.

    ``share`` is the chance that a draft token is accepted once those before it are, ``cost_ratio`` a draft step's time
    relative to a target pass. With a target bonus a round of n drafts yields ``(1 - share^(n+1)) / (1 - share)`` tokens
    in time ``1 + n cost_ratio`` (Leviathan et al. 2023, 3.5); without, a fully accepted block yields n.
    """

    def tokens_per_time(n: int) -> float:
        return sum(share**i for i in range(n + bonus)) / (1 + n * cost_ratio)

    return max(range(1, most + 1), key=tokens_per_time)
