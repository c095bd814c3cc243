"""What every engine of a bench is given: the same prompts, the same cap, the same ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cospec.engine.request import Request, check_request
from cospec.pair import Pair

#: Enough to touch every kind of pass once.
_WARM_UP_TOKENS = 12


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts to be continued greedily by ``max_new_tokens`` at most; ``num_draft_tokens`` is K of the method."""

    requests: tuple[Request, ...]
    max_new_tokens: int
    num_draft_tokens: int
    eos_token_ids: tuple[int, ...]

    def warm_up(self, batch: int) -> Workload:
        """A first batch of it, short."""
        short = min(self.max_new_tokens, max(_WARM_UP_TOKENS, 2 * self.num_draft_tokens))
        return replace(self, requests=self.requests[:batch], max_new_tokens=short)

    @property
    def prompts(self) -> list[list[int]]:
        """The prompts' token ids."""
        return [list(request.prompt_ids) for request in self.requests]


def room_needed(num_draft_tokens: int, max_new_tokens: int) -> int:
    """Places of a context that a text may take behind its prompt: its tokens, and a region of the longest block."""
    return max_new_tokens + 2 * (num_draft_tokens + 1) + 3


def check_workload(work: Workload, pair: Pair, batches: Sequence[int]) -> None:
    """ValueError for prompts that not every engine could decode whole, in full batches."""
    context = min(pair.target_context, pair.draft_context)
    room = room_needed(work.num_draft_tokens, work.max_new_tokens)
    for request in work.requests:
        check_request(request, pair)
        if len(request.prompt_ids) + room > context:
            raise ValueError(
                f"prompt {request.id!r} has {len(request.prompt_ids)} tokens, {room} must fit behind it (the text and "
                f"an arbiter's region), and the pair's context holds {context}: shorten it or lower --max-new-tokens"
            )
    check_batches(len(work.requests), batches)


def check_batches(num_prompts: int, batches: Sequence[int]) -> None:
    """ValueError for a batch that is never full."""
    if max(batches) > num_prompts:
        raise ValueError(
            f"--batch {max(batches)} is more than the {num_prompts} prompts there are, so it would never be full: give "
            "more prompts (--num) or a smaller batch"
        )
