"""What every engine of a bench is given: the same prompts, the same cap, the same ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cospec.arbiter.layout import region_width
from cospec.engine.request import Request, check_request
from cospec.pair import Pair

#: Enough to touch every kind of pass once.
_WARM_UP_TOKENS = 12


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts to be continued greedily by ``max_new_tokens`` at most; ``num_draft_tokens`` is K of the method.

    With a ``cost_ratio`` this package's engine drafts as many of them as pays (`cospec.engine.decode.Engine`).
    """

    requests: tuple[Request, ...]
    max_new_tokens: int
    num_draft_tokens: int
    eos_token_ids: tuple[int, ...]
    cost_ratio: float | None = None

    def warm_up(self, batch: int) -> Workload:
        """A first batch of it, short."""
        short = min(self.max_new_tokens, max(_WARM_UP_TOKENS, 2 * self.num_draft_tokens))
        return replace(self, requests=self.requests[:batch], max_new_tokens=short)

    @property
    def prompts(self) -> list[list[int]]:
        """The prompts' token ids."""
        return [list(request.prompt_ids) for request in self.requests]


def room_needed(num_draft_tokens: int, max_new_tokens: int, arbiters: bool) -> int:
    """Places of a context that a text may take behind its prompt: its tokens, and an arbiter's longest region."""
    return max_new_tokens + (region_width(num_draft_tokens + 1) if arbiters else 0)


def tighter_context(pair: Pair) -> tuple[str, int]:
    """The role whose context is the shorter one, and what that holds."""
    return min((("target", pair.target_context), ("draft", pair.draft_context)), key=lambda entry: entry[1])


def check_workload(work: Workload, pair: Pair, batches: Sequence[int], arbiters: bool = False) -> None:
    """ValueError for prompts that not every engine could decode whole, in full batches."""
    role, context = tighter_context(pair)
    room = room_needed(work.num_draft_tokens, work.max_new_tokens, arbiters)
    for request in work.requests:
        check_request(request, pair)
        num = len(request.prompt_ids)
        if num + room > context:
            # Below one new token no cap goes.
            fits = num + room - work.max_new_tokens < context
            raise ValueError(
                f"prompt {request.id!r} has {num} tokens, {room} must fit behind it (the text"
                f"{' and a region of the arbiter' if arbiters else ''}), and the {role}'s context holds {context}: "
                f"shorten the prompt{' or lower --max-new-tokens' if fits else ''}"
            )
    check_batches(len(work.requests), batches)


def check_batches(num_prompts: int, batches: Sequence[int]) -> None:
    """ValueError for a batch that is never full."""
    if max(batches) > num_prompts:
        raise ValueError(
            f"--batch {max(batches)} is more than the {num_prompts} prompts there are, so it would never be full: give "
            "more prompts (--num) or a smaller batch"
        )
