"""One run, timed: wall and processor time, the models' passes, the peak of memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from cospec.evaluation.bench.cells import Forwards
from cospec.evaluation.bench.forwards import ForwardTimer, can_time, wait_for
from cospec.evaluation.bench.memory import peak_mb, reset_peak

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run took; ``cpu_s`` is the processor time of this process, all threads together."""

    seconds: float
    cpu_s: float
    forwards: Forwards | None
    peak_mb: float | None


def timed_run(decode: Callable[[], ResultT], timer: ForwardTimer, device: torch.device) -> tuple[ResultT, Spent]:
    """What ``decode`` returns, and what it took until the device was done."""
    has_peak = reset_peak(device)
    with timer:
        wait_for(device)
        began, began_cpu = time.perf_counter(), time.process_time()
        result = decode()
        wait_for(device)
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - began_cpu
    forwards = timer.forwards() if can_time(device) else None
    return result, Spent(seconds, cpu_s, forwards, peak_mb(device) if has_peak else None)
