"""The order of measurement: every cell once in every repeat, so that ratios can be taken repeat by repeat."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from cospec.evaluation.bench.cells import CellKey, Contender, Part, Sample, sample_from_json, sample_of

CacheKind = Literal["engine", "plain"]


@dataclass(frozen=True, slots=True)
class ProbeTime:
    """Seconds of one pass of ``rows`` x ``width`` tokens behind ``context`` tokens, by itself, for cells of ``batch``.

    ``cache`` is "engine" for the engine's own preallocated caches, "plain" for transformers' growing one.
    """

    cache: CacheKind
    batch: int
    part: Part
    rows: int
    width: int
    context: int
    seconds: float
    method: str | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """One round of measurement: a run of every cell, and what single passes took meanwhile."""

    index: int
    samples: Mapping[CellKey, Sample]
    probes: tuple[ProbeTime, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "repeat": self.index,
            "samples": [sample.to_json() for sample in self.samples.values()],
            "probes": [asdict(probe) for probe in self.probes],
        }


class Probes(Protocol):
    """Measures single passes of the shapes that the samples of a repeat had."""

    def __call__(self, samples: Mapping[CellKey, Sample]) -> tuple[ProbeTime, ...]: ...


def repeat_from_json(row: Mapping[str, Any]) -> Repeat:
    """Rebuild a repeat; ValueError for a record of another version."""
    try:
        samples = [sample_from_json(entry) for entry in row["samples"]]
        probes = tuple(ProbeTime(**entry) for entry in row["probes"])
        return Repeat(row["repeat"], {sample.key: sample for sample in samples}, probes)
    except (TypeError, KeyError) as error:
        raise ValueError(f"a repeat of another version ({error}): name another --out") from error


def measure(
    contenders: Sequence[Contender],
    probes: Probes,
    num_repeats: int,
    *,
    kept: Iterable[Repeat] = (),
    on_repeat: Callable[[Repeat], None] = lambda repeat: None,
    on_run: Callable[[], None] = lambda: None,
) -> list[Repeat]:
    """Warm everything up, then run what ``kept`` lacks of ``num_repeats``, every other repeat in the opposite order.

    ``on_repeat`` is called with every new repeat that is whole, ``on_run`` after every run.
    """
    repeats = list(kept)[:num_repeats]
    if len(repeats) == num_repeats:
        return repeats
    for contender in contenders:
        contender.warm_up()
    with _settled_heap():
        for index in range(len(repeats), num_repeats):
            samples: dict[CellKey, Sample] = {}
            for contender in contenders if index % 2 == 0 else contenders[::-1]:
                measured = contender.run()
                samples |= {key: sample_of(key, index, measured) for key in contender.keys}
                on_run()
            ordered = {key: samples[key] for contender in contenders for key in contender.keys}
            repeats.append(Repeat(index, ordered, probes(ordered)))
            on_repeat(repeats[-1])
    return repeats


@contextlib.contextmanager
def _settled_heap() -> Iterator[None]:
    """What was loaded is not searched for garbage again, which takes longer than many a pass of a small model."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
