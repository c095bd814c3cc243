"""What a bench measures: cells, and one run of a cell."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

Part = Literal["draft", "target", "arbiter"]
PARTS: tuple[Part, ...] = ("draft", "target", "arbiter")
#: The engine of this package, under the name it has in results.
OURS = "cospec"


@dataclass(frozen=True, slots=True)
class CellKey:
    """One way of decoding: a method of an engine at a batch size; ``context`` is the prompts' length in a sweep."""

    engine: str
    method: str
    batch: int
    context: int | None = None

    def __str__(self) -> str:
        at = "" if self.context is None else f", context {self.context}"
        return f"{self.engine} {self.method}, batch {self.batch}{at}"


@dataclass(frozen=True, slots=True)
class Passes:
    """Forward passes of one part and one shape: ``num`` passes over ``rows`` x ``width`` tokens, seconds in all."""

    part: Part
    rows: int
    width: int
    num: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Forwards:
    """All forward passes of a run: those of its rounds by shape, and the seconds of those that only read prompts."""

    passes: tuple[Passes, ...] = ()
    prefill: Mapping[str, float] | None = None

    def of(self, part: Part) -> tuple[Passes, ...]:
        return tuple(passes for passes in self.passes if passes.part == part)

    def num(self, part: Part) -> int:
        """Passes of the rounds."""
        return sum(passes.num for passes in self.of(part))

    def round_s(self, part: Part) -> float:
        """Seconds of the rounds' passes."""
        return sum(passes.seconds for passes in self.of(part))

    @property
    def prefill_s(self) -> float:
        return sum((self.prefill or {}).values())

    def seconds(self, part: Part) -> float:
        """Seconds of all passes of a part, those that read prompts included."""
        return self.round_s(part) + (self.prefill or {}).get(part, 0.0)

    @property
    def total_s(self) -> float:
        return sum(map(self.seconds, PARTS))


@dataclass(frozen=True, slots=True)
class Measured:
    """One run over all prompts. What an engine does not tell is None.

    ``output_ids`` in the order of the prompts, each with the EOS that ended it; ``num_rounds`` counts the target passes
    of every text (those that only read a prompt are none of them); ``peak_mb`` is the peak of memory, in 10^6 bytes;
    ``cpu_s`` is the processor time of this process, all threads together.
    """

    seconds: float
    output_ids: tuple[tuple[int, ...], ...]
    num_rounds: int | None = None
    forwards: Forwards | None = None
    peak_mb: float | None = None
    cpu_s: float | None = None


class Contender(Protocol):
    """What is run once in every repeat, for one cell or for several that are the same work."""

    @property
    def keys(self) -> tuple[CellKey, ...]: ...

    def note(self, key: CellKey) -> str | None:
        """What a reader of this cell's numbers must know."""
        ...

    def warm_up(self) -> None:
        """A short run, so that no measured one pays for first calls."""
        ...

    def run(self) -> Measured: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """A run of a cell in repeat ``repeat``, as it is kept: texts by their length and digest."""

    key: CellKey
    repeat: int
    seconds: float
    num_tokens: tuple[int, ...]
    digests: tuple[str, ...]
    num_rounds: int | None
    forwards: Forwards | None
    peak_mb: float | None
    cpu_s: float | None

    @property
    def tokens(self) -> int:
        return sum(self.num_tokens)

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.seconds

    @property
    def decode_s(self) -> float:
        """Seconds without the passes that only read prompts."""
        return self.seconds - (self.forwards.prefill_s if self.forwards else 0.0)

    @property
    def overhead(self) -> float | None:
        """Wall time over the models' passes."""
        return self.seconds / self.forwards.total_s if self.forwards else None

    @property
    def cpu_share(self) -> float | None:
        """Processor time over wall time: below 1 on a CPU, the process had to wait for a core."""
        return None if self.cpu_s is None else self.cpu_s / self.seconds

    @property
    def prefill_share(self) -> float | None:
        """Wall time that went into reading prompts."""
        return self.forwards.prefill_s / self.seconds if self.forwards else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def sample_of(key: CellKey, repeat: int, measured: Measured) -> Sample:
    """A run as it is kept."""
    return Sample(
        key=key,
        repeat=repeat,
        seconds=measured.seconds,
        num_tokens=tuple(map(len, measured.output_ids)),
        digests=tuple(map(_digest, measured.output_ids)),
        num_rounds=measured.num_rounds,
        forwards=measured.forwards,
        peak_mb=measured.peak_mb,
        cpu_s=measured.cpu_s,
    )


def sample_from_json(row: Mapping[str, Any]) -> Sample:
    """Rebuild a sample; ValueError for a record of another version."""
    try:
        forwards = row["forwards"]
        if forwards is not None:
            passes = tuple(Passes(**entry) for entry in forwards["passes"])
            forwards = Forwards(passes, forwards["prefill"])
        texts = {name: tuple(row[name]) for name in ("num_tokens", "digests")}
        return Sample(**{**row, **texts, "key": CellKey(**row["key"]), "forwards": forwards})
    except (TypeError, KeyError) as error:
        raise ValueError(f"a sample of another version ({error}): name another --out") from error


def cut_at_end(ids: Iterable[int], eos_ids: Sequence[int], cap: int) -> tuple[int, ...]:
    """The real output: up to the first EOS, which belongs to it, or the cap; behind it may be padding."""
    kept: list[int] = []
    for token_id in ids:
        if len(kept) == cap:
            break
        kept.append(token_id)
        if token_id in eos_ids:
            break
    return tuple(kept)


def _digest(ids: Sequence[int]) -> str:
    return hashlib.blake2b(repr(tuple(ids)).encode(), digest_size=8).hexdigest()
