"""How busy the device is between the launches of a few rounds, and how often the host waits for it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from meter import wait_for
from methods import Method, Prompts
from torch import nn
from torch.profiler import ProfilerActivity, profile

from cospec.pair import Pair

#: What is known of a device alone.
DEVICE_COUNTS = (
    "device_busy_ms",
    "host_gap_ms",
    "kernels",
    "launches",
    "stream_waits",
    "copies_to_host",
    "copies_to_device",
)


@dataclass(frozen=True, slots=True)
class Span:
    """Something that was done between ``start`` and ``stop`` (microseconds), on the device or by the host."""

    name: str
    start: float
    stop: float
    on_device: bool


@dataclass(frozen=True, slots=True)
class Window:
    """The rounds from the ``first``-th pass of the target on, ``num_rounds`` of them, of a run of ``num_new`` tokens.

    A round is counted from one pass of the target to the next, so prompts are left out and any engine can be asked.
    """

    num_new: int
    first: int
    num_rounds: int

    def watch(
        self, method: Method, pair: Pair, prompts: Prompts, begin: Callable[[], None], end: Callable[[], None]
    ) -> float:
        """Decode the prompts together, calling ``begin`` and ``end`` at the window's borders; its seconds."""
        times: list[float] = []
        passes = 0

        def before(module: nn.Module, args: tuple[Any, ...]) -> None:
            nonlocal passes
            passes += 1
            if passes == self.first:
                wait_for(pair.device)
                begin()
                times.append(time.perf_counter())
            elif passes == self.first + self.num_rounds:
                wait_for(pair.device)
                times.append(time.perf_counter())
                end()

        handle = pair.target.base_model.register_forward_pre_hook(before)
        try:
            method.write(prompts, self.num_new, len(prompts))
        finally:
            handle.remove()
        assert len(times) == 2, f"the run had {passes} passes of the target, too few for the window"
        return times[1] - times[0]


def launches(method: Method, pair: Pair, prompts: Prompts, window: Window) -> dict[str, Any]:
    """The counts of one method, per round; times in milliseconds, those without the profiler's own unless named so."""

    def nothing() -> None:
        pass

    wall_s = window.watch(method, pair, prompts, nothing, nothing)
    on_cuda = pair.device.type == "cuda"
    # On a GPU its own records hold the calls to the runtime too; the host's operators would only slow the rounds down.
    profiler = profile(activities=[ProfilerActivity.CUDA if on_cuda else ProfilerActivity.CPU])
    profiled_s = window.watch(method, pair, prompts, profiler.start, profiler.stop)
    spans = spans_of(profiler)
    found = {"wall_ms": wall_s * 1e3, "profiled_wall_ms": profiled_s * 1e3} | device_counts(spans, wall_s)
    per_round = {name: None if value is None else value / window.num_rounds for name, value in found.items()}
    share = per_round["host_gap_ms"] / per_round["wall_ms"] if per_round["host_gap_ms"] is not None else None
    return {"rounds": window.num_rounds, "per_round": per_round, "host_gap_share": share, "calls": _calls(spans)}


def spans_of(profiler: profile) -> list[Span]:
    """What the profiler saw, without the ranges that only name others."""
    return [
        Span(event.name, event.time_range.start, event.time_range.end, "CUDA" in str(event.device_type))
        for event in profiler.events()
        if not event.is_user_annotation
    ]


def device_counts(spans: Iterable[Span], wall_s: float) -> dict[str, float | None]:
    """Busy and idle time of the device and the events that matter; None of all where no device took part."""
    spans = list(spans)
    device = [span for span in spans if span.on_device]
    if not device:
        return dict.fromkeys(DEVICE_COUNTS)
    calls = Counter(span.name for span in spans if not span.on_device)
    copies = Counter(word for span in device for word in ("Memcpy DtoH", "Memcpy HtoD") if word in span.name)
    busy_ms = busy_us(device) / 1e3
    return {
        "device_busy_ms": busy_ms,
        "host_gap_ms": wall_s * 1e3 - busy_ms,
        "kernels": len([span for span in device if not span.name.startswith(("Memcpy", "Memset"))]),
        "launches": sum(num for name, num in calls.items() if "LaunchKernel" in name or "GraphLaunch" in name),
        "stream_waits": calls["cudaStreamSynchronize"],
        "copies_to_host": copies["Memcpy DtoH"],
        "copies_to_device": copies["Memcpy HtoD"],
    }


def busy_us(spans: Iterable[Span]) -> float:
    """Microseconds in which at least one of the spans was running."""
    busy, end = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span.start):
        busy += max(0.0, span.stop - max(span.start, end))
        end = max(end, span.stop)
    return busy


def _calls(spans: Iterable[Span]) -> dict[str, int]:
    """How often the host called what of the runtime, in the whole window, the most frequent first."""
    counts = Counter(span.name for span in spans if not span.on_device and span.name.startswith("cu"))
    return dict(counts.most_common(12))
