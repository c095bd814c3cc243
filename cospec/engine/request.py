"""What the engine is asked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from cospec.engine.record import Sampling, Settings
from cospec.engine.text import check_stops
from cospec.pair import Pair


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to continue. ``id`` and the seed decide all its random draws, whatever is decoded beside it: two of one
    id draw alike.

    ``max_new_tokens`` caps this request below the engine's own cap; ``stop`` are stop strings beside the engine's own;
    ``sampling`` and ``seed`` go before the engine's.
    """

    id: str | int
    prompt_ids: Sequence[int]
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling | None = None
    seed: int | None = None

    def settings(self, engine: Settings) -> Settings:
        """What decides this request's text, in an engine of these settings."""
        own = dataclasses.replace(
            engine,
            max_new_tokens=min(engine.max_new_tokens, self.max_new_tokens or engine.max_new_tokens),
            stop=tuple(dict.fromkeys((*engine.stop, *self.stop))),
            sampling=self.sampling or engine.sampling,
            seed=engine.seed if self.seed is None else self.seed,
        )
        return engine if own == engine else own


def check_request(request: Request, pair: Pair) -> None:
    """ValueError for a request that cannot be decoded."""
    ids, limit = request.prompt_ids, pair.target_context
    given: object = ids
    if isinstance(given, str):
        raise ValueError(f"prompt {request.id!r} is a text: give its token ids, `prompt_ids(pair, text)`")
    if not isinstance(request.sampling, Sampling | None):
        raise ValueError(f"prompt {request.id!r} has sampling {request.sampling!r}: give a `Sampling`")
    if len(ids) == 0:
        raise ValueError(f"prompt {request.id!r} is empty: a prompt needs at least one token")
    if len(ids) >= limit:
        raise ValueError(
            f"prompt {request.id!r} has {len(ids)} tokens and the target's context holds {limit}: "
            "shorten the prompt, at least one place must be free for the answer"
        )
    if request.max_new_tokens is not None and request.max_new_tokens < 1:
        raise ValueError(f"prompt {request.id!r} has max_new_tokens {request.max_new_tokens}: it must be at least 1")
    worst = max(ids) if max(ids) >= pair.vocab_size else min(ids)
    if not 0 <= worst < pair.vocab_size:
        raise ValueError(
            f"prompt {request.id!r} has token id {worst}, outside the pair's {pair.vocab_size} ids: was it made with "
            "another tokenizer?"
        )
    check_stops(request.stop, pair.tokenizer)
