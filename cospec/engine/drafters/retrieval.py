"""Retrieval (REST; He et al. 2023, arXiv 2311.08252): a datastore says what usually follows the last tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from cospec.engine.cached_model import PromptPart
from cospec.engine.contexts import Contexts
from cospec.engine.drafters.base import Draft, Outcome, RunShape
from cospec.engine.drafters.chain import up_to_eos
from cospec.engine.drafters.datastore import Datastore, read_info
from cospec.engine.drafters.ngram import check_copy, check_matches
from cospec.engine.drafters.spec import drafter_spec
from cospec.engine.parameters import Parameter
from cospec.engine.sampling import Draws
from cospec.pair import Pair

_REST = "REST (He et al. 2023)"
PARAMETERS = (
    Parameter("max_match", 16, "the most last tokens to look for", _REST, "int", low=1, high=64),
    Parameter("min_match", 2, "the fewest last tokens that must be found", _REST, "int", low=1, high=64),
    Parameter("max_hits", 5000, "the most occurrences to count", _REST, "int", low=1, high=10**9),
    Parameter("copy", None, "the most tokens to propose; none: as many as a block holds", "ours", "int", low=1),
)


class RetrievalDrafter:
    """Proposes a datastore's most frequent continuation of the longest match, as a chain; ours where REST has a tree.

    ValueError for a ``path`` that holds no datastore.
    """

    runs_draft_model, one_hot, costs_steps = False, True, False
    layers: tuple[int, ...] = ()

    def __init__(
        self, path: str, *, max_match: int = 16, min_match: int = 2, max_hits: int = 5000, copy: int | None = None
    ) -> None:
        self.path, self.max_hits, self.copy = Path(path), max_hits, copy
        self.max_match, self.min_match = max_match, min_match
        values = {"max_match": max_match, "min_match": min_match, "max_hits": max_hits, "copy": copy}
        self.spec = drafter_spec("retrieval", path, values)
        check_matches(self.spec, min_match, max_match)
        self._info = read_info(self.path)
        self._store: Datastore | None = None

    def load(self, pair: Pair, max_drafts: int) -> None:
        """Open the datastore; ValueError for one that is damaged or was built with another tokenizer."""
        check_copy(self.spec, self.copy, max_drafts)
        info, here = self._info, pair.tokenizer_digest
        if info.tokenizer_digest != here or info.largest_id >= pair.vocab_size:
            raise ValueError(
                f"the datastore in {str(self.path)!r} was built with another tokenizer ({info.tokenizer_digest[:12]}, "
                f"here {here[:12]}): its ids mean something else. Build one with this pair"
            )
        self._store = self._store or Datastore(self.path)

    def bind(self, run: RunShape) -> BoundRetrievalDrafter:
        assert self._store is not None, "load() comes first"
        return BoundRetrievalDrafter(self, self._store, run)


class BoundRetrievalDrafter:
    """Looks anew in every round, so that it has no state."""

    def __init__(self, drafter: RetrievalDrafter, store: Datastore, run: RunShape) -> None:
        self.drafter, self.store, self.eos_ids = drafter, store, run.eos_ids
        self.context = run.pair.target_context

    def admit(self, ids: Tensor, lengths: Mapping[int, int], chunk: int) -> None:
        pass

    def read(self, ids: Tensor, part: PromptPart) -> None:
        raise AssertionError("it asks for no layers")

    def propose(self, contexts: Contexts, num_steps: int, draws: Draws) -> Draft:
        ends, sizes, limits = self._last_ids(contexts)
        chains = [
            self._chain(end[len(end) - size :], limit) for end, size, limit in zip(ends, sizes, limits, strict=True)
        ]
        width = max(map(len, chains))
        padded = [chain + [0] * (width - len(chain)) for chain in chains]
        proposed = torch.tensor(padded, dtype=torch.long, device=contexts.ids.device).reshape(len(chains), width)
        num = torch.tensor([len(chain) for chain in chains], device=proposed.device)
        return Draft(proposed, up_to_eos(proposed, num, self.eos_ids), None, one_hot=True)

    def _last_ids(self, contexts: Contexts) -> tuple[list[list[int]], list[int], list[int]]:
        """The rows' last tokens, how many of them are real, and their limits: one transfer to the host."""
        width, lengths = self.drafter.max_match, contexts.lengths[:, None]
        places = lengths - width + torch.arange(width, device=lengths.device)
        last = contexts.ids.gather(1, places.clamp_min(0))
        host = torch.cat([last, lengths.clamp_max(width), contexts.limits[:, None]], dim=1).cpu().tolist()
        return [row[:width] for row in host], [row[width] for row in host], [row[-1] for row in host]

    def _chain(self, ids: list[int], limit: int) -> list[int]:
        own = self.drafter
        length = limit if own.copy is None else min(limit, own.copy)
        if length == 0 or len(ids) < own.min_match:
            return []
        return self.store.continuation(ids, own.min_match, own.max_hits, length)

    def commit(self, outcome: Outcome) -> None:
        pass

    def select_rows(self, rows: Tensor) -> None:
        pass
