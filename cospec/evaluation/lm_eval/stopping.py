"""Stop strings on finished texts: where a decoder that watches for them would have stopped."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """``text`` up to the stop string that is complete first; of several that end in one place, the longest goes."""
    found = [(start + len(stop), start) for stop in stops if stop and (start := text.find(stop)) >= 0]
    return text[: min(found)[1]] if found else text


def num_tokens_before_stop(ids: Sequence[int], stops: Sequence[str], decode: Callable[[list[int]], str]) -> int:
    """How many of ``ids`` a decoder writes until a stop string is complete; all of them where none ever is."""
    wanted = [stop for stop in stops if stop]

    def is_complete(count: int) -> bool:
        text = decode(list(ids[:count]))
        return any(stop in text for stop in wanted)

    if not is_complete(len(ids)):
        return len(ids)
    low, high = 1, len(ids)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_complete(middle) else (middle + 1, high)
    return low
