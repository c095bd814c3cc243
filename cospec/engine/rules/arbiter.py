"""The learned rule: one arbiter pass per block that has a mismatch (method section 1, steps 4 and 5)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from cospec.engine.cached_model import CachedModel
from cospec.engine.record import Bonus, ContextCache
from cospec.engine.rules.base import Regions, RoundView, Rule, Verdict
from cospec.engine.rules.spec import RuleInfo
from cospec.engine.sampling import Stream


class BlockScorer(Protocol):
    """What the engine needs of an arbiter; `cospec.arbiter` implements it and callers inject it."""

    context_cache: ContextCache

    def bind(self, draft: CachedModel) -> BoundScorer:
        """What scores the blocks of one run over this draft cache; called once per run, and runs may overlap."""
        ...


class BoundScorer(Protocol):
    """An arbiter in one run, with whatever the run changes."""

    def admit(self, ids: Tensor, lengths: Mapping[int, int], chunk: int) -> None:
        """Rows start anew with the first ``lengths[row]`` tokens of ``ids`` (B, C), read ``chunk`` at a time."""
        ...

    def select_rows(self, rows: Tensor) -> None:
        """Only these rows of the batch go on, in this order."""
        ...

    def score(self, regions: Regions, rows: Tensor) -> Tensor:
        """Keep logits (R, N) of these ``rows`` (R,) of the batch."""
        ...


class ArbiterRule(Rule):
    """Keep iff the probability exceeds ``threshold``, or, with ``sampled``, with that probability (training)."""

    name = "arbiter"
    default_bonus: Bonus = "arbitrated"
    drafts = True

    def __init__(self, scorer: BlockScorer, threshold: float = 0.5, sampled: bool = False) -> None:
        if not 0.0 <= threshold <= 1.0:
            raise ValueError(f"threshold is {threshold}: a keep probability is compared with it, so it lies in [0, 1]")
        self.scorer, self.threshold, self.sampled = scorer, threshold, sampled
        self._bound: BoundScorer | None = None

    def over(self, bound: BoundScorer) -> ArbiterRule:
        """This rule for one run, which it decides by ``bound``; the rule itself may serve other runs meanwhile."""
        rule = copy.copy(self)
        rule._bound = bound
        return rule

    def decide(self, view: RoundView) -> Verdict:
        probs = torch.zeros(view.match.shape, device=view.match.device)
        rows = view.mismatch.any(1).nonzero().squeeze(1)
        assert self._bound is not None, "over() comes before any decision"
        if len(rows):
            probs[rows] = torch.sigmoid(self._bound.score(view.regions, rows).float())
        probs = torch.where(view.mismatch, probs, 0.0)
        return Verdict(accept=view.match | (view.mismatch & self._keep(probs, view)), keep_probs=probs)

    def _keep(self, probs: Tensor, view: RoundView) -> Tensor:
        if not self.sampled:
            return probs > self.threshold
        keep = torch.zeros_like(probs, dtype=torch.bool)
        for i in range(probs.shape[1]):
            keep[:, i] = view.draws.bernoulli(probs[:, i], view.keys, Stream.ARBITER, i)
        return keep


INFOS = (
    RuleInfo(
        name="arbiter",
        summary="A trained arbiter decides each mismatch of a block in one pass (`--arbiter DIR`).",
        formula="accept a match; keep a mismatch iff its keep probability exceeds the threshold",
        source="CoSpec, Li et al. (2605.24793)",
        greedy="the same: the arbiter reads both models' tokens, not their rows",
        drafters="the draft model it was trained on",
        make=None,
        strict_point="--threshold 1",
    ),
)
