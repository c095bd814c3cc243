"""The decisions of a file of rollouts in one pass and bounded memory: sums, bins, and those worth a look."""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cospec.engine.metrics import Acceptance, acceptance
from cospec.engine.record import Decision, Rollout
from cospec.labels.record import MismatchLabel
from cospec.rewards import RewardConfig
from cospec.rewards.signal import kappa
from cospec.scoring.verdict import Verdict

#: Half decades of the target's probability of the draft's token; the first bin holds all that is rarer.
RISK_EDGES = (0.0, *(10 ** (exponent / 2) for exponent in range(-12, 1)))
_REWARD = RewardConfig()
#: So that one rollout with many decisions does not fill a list.
_PER_ROLLOUT = 2


Labels = Mapping[tuple[int, int], MismatchLabel]


@dataclass(frozen=True, slots=True)
class Judged:
    """A rollout with its verdict, and whether draft and target solve the problem alone; None where unknown.

    ``labels`` say of its mismatches, by block and position, which of both branches ends right.
    """

    rollout: Rollout
    verdict: Verdict | None = None
    target_right: bool | None = None
    draft_right: bool | None = None
    labels: Labels = field(default_factory=dict)

    @property
    def is_right(self) -> bool | None:
        """None also where the scorer failed."""
        return None if self.verdict is None or self.verdict.is_failure else self.verdict.is_right


@dataclass(frozen=True, slots=True)
class Ranked:
    """One decision of a list: decision number ``index`` of block number ``block`` of its rollout."""

    judged: Judged
    block: int
    decision: Decision

    @property
    def label(self) -> MismatchLabel | None:
        return self.judged.labels.get((self.block, self.decision.position))

    @property
    def took_better_branch(self) -> bool | None:
        """Whether the branch that was taken is the only one that ends right; None where that cannot be said."""
        label = self.label
        if label is None or None in (label.draft_right, label.target_right) or label.draft_right == label.target_right:
            return None
        return label.draft_right is self.decision.kept


@dataclass(frozen=True, slots=True)
class RiskBin:
    """Executed decisions whose target probability of the draft's token lies in [low, high)."""

    low: float
    high: float
    num: int
    num_kept: int


@dataclass(frozen=True, slots=True)
class DecisionSet:
    """What a pass over a file leaves. ``texts`` are the rollouts to show: those of the lists, then the first others.

    ``is_graded`` says whether any decision had a probability strictly between 0 and 1, ``is_labelled`` whether any
    decision is known to be better or worse than the other; without either there is nothing to rank.
    """

    sums: Acceptance
    bins: tuple[RiskBin, ...]
    is_graded: bool
    is_labelled: bool
    num_judged: int
    worst: tuple[Ranked, ...]
    best: tuple[Ranked, ...]
    uncertain: tuple[Ranked, ...]
    texts: tuple[Judged, ...]

    @property
    def num_left_out(self) -> int:
        """Rollouts whose text is not shown."""
        return self.sums.num_rollouts - len(self.texts)


def confidence(decision: Decision, threshold: float | None) -> float:
    """How far the keep probability lies from the threshold (0.5 where there is none), 0 to 1 on either side."""
    limit, prob = 0.5 if threshold is None else threshold, decision.keep_prob
    room = 1.0 - limit if prob > limit else limit
    return abs(prob - limit) / room if room else 1.0


def stake(decision: Decision) -> float:
    """The rewards' risk kappa: near 1 where the target all but excludes the draft's token, so that the choice matters.

    Where the target finds both tokens likely, they are mostly two wordings of the same text.
    """
    return kappa(decision.target_prob_of_draft, _REWARD.tau, _REWARD.p_min)


@dataclass(slots=True)
class _List:
    """The decisions with the highest keys seen so far."""

    size: int
    heap: list[tuple[tuple[float, float, int], Ranked]] = field(default_factory=list)
    counter: itertools.count[int] = field(default_factory=itertools.count)

    def offer(self, candidates: Sequence[tuple[float, float, Ranked]]) -> None:
        """The best few of one rollout's candidates (score, tie-break, decision); earlier ones win ties."""
        for score, tie, ranked in heapq.nlargest(_PER_ROLLOUT, candidates, key=lambda item: item[:2]):
            entry = ((score, tie, -next(self.counter)), ranked)
            if len(self.heap) < self.size:
                heapq.heappush(self.heap, entry)
            else:
                heapq.heappushpop(self.heap, entry)

    def ranked(self) -> tuple[Ranked, ...]:
        return tuple(ranked for _, ranked in sorted(self.heap, key=lambda entry: entry[0], reverse=True))


class DecisionCollector:
    """Takes rollouts one by one; `result` may be asked at any time."""

    def __init__(self, list_size: int, num_texts: int) -> None:
        self.num_texts = num_texts
        self._sums, self._num_judged = Acceptance(), 0
        self._is_graded = self._is_labelled = False
        self._counts = [[0, 0] for _ in RISK_EDGES[1:]]
        self._worst, self._best, self._uncertain = (_List(list_size) for _ in range(3))
        self._first: list[Judged] = []

    def add(self, judged: Judged) -> None:
        """Count a rollout, and remember it where it is worth a look."""
        rollout = judged.rollout
        self._sums += acceptance([rollout])
        self._num_judged += judged.is_right is not None
        if len(self._first) < self.num_texts:
            self._first.append(judged)
        for decision in rollout.decisions:
            place = self._counts[_risk_bin(decision.target_prob_of_draft)]
            place[0] += 1
            place[1] += decision.kept
            self._is_graded = self._is_graded or 0.0 < decision.keep_prob < 1.0
        self._rank(judged)

    def _rank(self, judged: Judged) -> None:
        threshold = judged.rollout.settings.threshold
        ranked = [
            Ranked(judged, number, decision)
            for number, block in enumerate(judged.rollout.blocks)
            for decision in block.decisions
        ]
        sure = [confidence(item.decision, threshold) for item in ranked]
        scored = [(one * stake(item.decision), one, item) for one, item in zip(sure, ranked, strict=True)]
        self._uncertain.offer([(-one, stake(item.decision), item) for one, item in zip(sure, ranked, strict=True)])
        if judged.labels:
            # What both branches end in says more than the verdict of the whole text.
            self._is_labelled = self._is_labelled or any(item.took_better_branch is not None for item in ranked)
            self._worst.offer([item for item in scored if item[2].took_better_branch is False])
            self._best.offer([item for item in scored if item[2].took_better_branch])
        elif judged.is_right is False:
            self._worst.offer(scored)
        elif judged.is_right and judged.target_right is not True:
            self._best.offer([item for item in scored if item[2].decision.kept])

    def result(self) -> DecisionSet:
        """What was gathered so far."""
        can_rank = (self._is_graded or self._is_labelled, self._is_graded or self._is_labelled, self._is_graded)
        parts = (self._worst, self._best, self._uncertain)
        lists = [part.ranked() if can else () for part, can in zip(parts, can_rank, strict=True)]
        # One decision of each list after the other, so that a cut leaves every list some texts.
        in_turn = filter(None, itertools.chain.from_iterable(itertools.zip_longest(*lists)))
        texts = {id(ranked.judged): ranked.judged for ranked in in_turn}
        texts |= {id(judged): judged for judged in self._first}
        return DecisionSet(
            sums=self._sums,
            bins=tuple(
                RiskBin(low, high, num, kept)
                for (low, high), (num, kept) in zip(itertools.pairwise(RISK_EDGES), self._counts, strict=True)
            ),
            is_graded=self._is_graded,
            is_labelled=self._is_labelled,
            num_judged=self._num_judged,
            worst=lists[0],
            best=lists[1],
            uncertain=lists[2],
            texts=tuple(texts.values()),
        )


def _risk_bin(prob: float) -> int:
    """The bin of a probability; rounding may leave one a hair above 1."""
    return min(bisect.bisect_right(RISK_EDGES, prob), len(RISK_EDGES) - 1) - 1
