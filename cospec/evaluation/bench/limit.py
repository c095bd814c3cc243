"""How fast a pair could be at most: the models' own passes, had the engine cost nothing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
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
    """The limit of a cell and how near the engine comes to it, repeat by repeat; reading prompts is left out.

    ``measured`` is the cell's tokens per second over those the target alone was measured at. ``shares`` are the seconds
    of the bare passes by those the rounds took: unlike measured / limit they do not gain by a slow target alone.
    """

    key: CellKey
    terms: tuple[LimitTerms, ...]
    measured: tuple[float, ...]
    shares: tuple[float, ...]

    @property
    def share(self) -> float:
        return statistics.median(self.shares)

    @property
    def relative_share(self) -> float:
        """Measured over possible times the target alone."""
        rows = zip(self.measured, self.terms, strict=True)
        return statistics.median(measured / terms.limit for measured, terms in rows)

    @property
    def typical(self) -> LimitTerms:
        """The terms of the repeat whose limit is the median, of two the lower: medians of each would make no limit."""
        return sorted(self.terms, key=lambda terms: terms.limit)[(len(self.terms) - 1) // 2]

    def to_json(self) -> dict[str, Any]:
        """Medians, the limit with the terms it is made of."""
        return {
            "method": self.key.method,
            "batch": self.key.batch,
            "limit": self.typical.limit,
            "measured": statistics.median(self.measured),
            "relative_share": self.relative_share,
            "share": self.share,
            "shares": list(self.shares),
            **asdict(self.typical),
        }


def limit_shares(repeats: Sequence[Repeat]) -> list[LimitShare]:
    """The limits of this package's speculative cells; none where passes could not be timed."""
    keys = [key for key in repeats[0].samples if key.engine == OURS and key.method != TARGET]
    return [_limit_share(key, repeats) for key in keys if all(_has_rounds(r.samples[key]) for r in repeats)]


def _has_rounds(sample: Sample) -> bool:
    forwards = sample.forwards
    return forwards is not None and forwards.num("target") > 0 and forwards.num("draft") > 0


def _limit_share(key: CellKey, repeats: Sequence[Repeat]) -> LimitShare:
    terms, measured, shares = [], [], []
    for repeat in repeats:
        sample, alone = repeat.samples[key], repeat.samples[CellKey(OURS, TARGET, key.batch)]
        bare = BareTimes(key, repeat.probes)
        terms.append(terms_of(sample, bare))
        measured.append((sample.tokens / sample.decode_s) / (alone.tokens / alone.decode_s))
        shares.append(bare.rounds_s(sample) / sample.decode_s)
    return LimitShare(key, tuple(terms), tuple(measured), tuple(shares))


class BareTimes:
    """What single passes took that were measured for a cell: at one row and at a full batch, in between linear."""

    def __init__(self, key: CellKey, probes: Sequence[ProbeTime]) -> None:
        here = [probe for probe in probes if probe.batch == key.batch]
        self._batch = key.batch
        self._at = {(probe.part, probe.rows, probe.width): probe.seconds for probe in here if probe.method is None}
        self.arbiter_s = next((probe.seconds for probe in here if probe.method == key.method), 0.0)

    def pass_s(self, part: Part, rows: int, width: int) -> float:
        """Seconds of a pass over ``rows`` x ``width`` tokens."""
        full = self._at[part, self._batch, width]
        if rows == self._batch:
            return full
        one = self._at[part, 1, width]
        return one + (full - one) * (rows - 1) / (self._batch - 1)

    def full_s(self, forwards: Forwards, part: Part) -> float:
        """Mean seconds of a part's passes had each a full batch, over the widths that occurred."""
        found = forwards.of(part)
        num = sum(entry.num for entry in found)
        return sum(entry.num * self.pass_s(part, self._batch, entry.width) for entry in found) / num

    def rounds_s(self, sample: Sample) -> float:
        """Seconds of all passes of a run's rounds, each of its own rows and width."""
        forwards = sample.forwards
        assert forwards is not None
        models: tuple[Part, ...] = ("target", "draft")
        entries = [entry for part in models for entry in forwards.of(part)]
        spent = sum(entry.num * self.pass_s(entry.part, entry.rows, entry.width) for entry in entries)
        return spent + forwards.num("arbiter") * self.arbiter_s


def terms_of(sample: Sample, bare: BareTimes) -> LimitTerms:
    """The terms of the limit for a run."""
    forwards = sample.forwards
    assert forwards is not None
    assert sample.num_rounds
    rounds = forwards.num("target")
    return LimitTerms(
        tokens_per_round=sample.tokens / sample.num_rounds,
        target_s=bare.pass_s("target", sample.key.batch, 1),
        verify_s=bare.full_s(forwards, "target"),
        num_drafts=forwards.num("draft") / rounds,
        draft_s=bare.full_s(forwards, "draft"),
        mismatch_share=forwards.num("arbiter") / rounds,
        arbiter_s=bare.arbiter_s,
    )
