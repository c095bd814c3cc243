"""How fast a pair could be at most: the models' own passes, had the engine cost nothing."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cospec.evaluation.bench.cells import OURS, CellKey, Forwards, Part, Sample
from cospec.evaluation.bench.ours import TARGET
from cospec.evaluation.bench.rounds import ProbeTime, Repeat


@dataclass(frozen=True, slots=True)
class LimitTerms:
    """What the limit is made of, all of one repeat and one batch size; seconds are those of single passes.

    ``num_drafts`` are the draft's passes of a round, ``mismatch_share`` the rounds that call the arbiter.
    ``verify_s`` and ``draft_s`` are means over the widths that occurred.
    """

    tokens_per_round: float
    target_s: float
    verify_s: float
    num_drafts: float
    draft_s: float
    mismatch_share: float = 0.0
    arbiter_s: float = 0.0

    @property
    def round_s(self) -> float:
        """Seconds of a round of bare passes."""
        return self.verify_s + self.num_drafts * self.draft_s + self.mismatch_share * self.arbiter_s

    @property
    def limit(self) -> float:
        """Times the target alone: tokens of a round by the target's passes that fit into its time."""
        return self.tokens_per_round * self.target_s / self.round_s


@dataclass(frozen=True, slots=True)
class LimitShare:
    """The limit of a cell and how much of it the engine reaches, repeat by repeat.

    ``measured`` is the cell's tokens per second over the target alone's, both without the passes over prompts, of which
    the limit knows nothing.
    """

    key: CellKey
    terms: tuple[LimitTerms, ...]
    measured: tuple[float, ...]

    @property
    def shares(self) -> list[float]:
        return [measured / terms.limit for measured, terms in zip(self.measured, self.terms, strict=True)]

    @property
    def share(self) -> float:
        return statistics.median(self.shares)

    @property
    def limit(self) -> float:
        return statistics.median(terms.limit for terms in self.terms)

    def typical(self) -> LimitTerms:
        """The median of every term."""
        rows = [asdict(terms) for terms in self.terms]
        return LimitTerms(**{name: statistics.median(row[name] for row in rows) for name in rows[0]})

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.key.method,
            "batch": self.key.batch,
            "limit": self.limit,
            "measured": statistics.median(self.measured),
            "share": self.share,
            "shares": self.shares,
            **asdict(self.typical()),
        }


def limit_shares(repeats: Sequence[Repeat]) -> list[LimitShare]:
    """The limits of this package's speculative cells; none where passes could not be timed."""
    keys = [key for key in repeats[0].samples if key.engine == OURS and key.method != TARGET]
    return [found for key in keys if (found := _limit_share(key, repeats)) is not None]


def _limit_share(key: CellKey, repeats: Sequence[Repeat]) -> LimitShare | None:
    terms, measured = [], []
    for repeat in repeats:
        alone = repeat.samples[CellKey(OURS, TARGET, key.batch)]
        found = terms_of(repeat.samples[key], repeat.probes)
        if found is None:
            return None
        terms.append(found)
        sample = repeat.samples[key]
        measured.append((sample.tokens / sample.decode_s) / (alone.tokens / alone.decode_s))
    return LimitShare(key, tuple(terms), tuple(measured))


def terms_of(sample: Sample, probes: Sequence[ProbeTime]) -> LimitTerms | None:
    """The terms of a run; None where it made no rounds of drafts or its passes were not timed."""
    forwards, key = sample.forwards, sample.key
    if forwards is None or not sample.num_rounds or not forwards.num("target") or not forwards.num("draft"):
        return None
    at: dict[tuple[Part, int], float] = {
        (probe.part, probe.width): probe.seconds
        for probe in probes
        if probe.batch == key.batch and probe.part != "arbiter"
    }
    arbiters = [probe.seconds for probe in probes if (probe.batch, probe.method) == (key.batch, key.method)]
    rounds = forwards.num("target")
    return LimitTerms(
        tokens_per_round=sample.tokens / sample.num_rounds,
        target_s=at["target", 1],
        verify_s=_mean(forwards, "target", at),
        num_drafts=forwards.num("draft") / rounds,
        draft_s=_mean(forwards, "draft", at),
        mismatch_share=forwards.num("arbiter") / rounds,
        arbiter_s=arbiters[0] if arbiters else 0.0,
    )


def _mean(forwards: Forwards, part: Part, at: Mapping[tuple[Part, int], float]) -> float:
    """Mean seconds of a part's passes, each width at what it costs by itself."""
    found = forwards.of(part)
    return sum(entry.num * at[part, entry.width] for entry in found) / sum(entry.num for entry in found)
