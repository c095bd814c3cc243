"""Clocks and counters around the models, and the device's memory bandwidth."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from methods import Method
from torch import nn
from torch.utils.hooks import RemovableHandle

from cospec.pair import Pair

T = TypeVar("T")
#: A point in time: seconds of the host's clock, or an event in the device's stream.
Mark = Any


class Meter:
    """A context in which the passes of a method's models are counted and timed.

    Where there is a device the marks are events in its stream, so nothing waits for them: a pass's time then includes
    what the device waits for its kernels. ``weight_bytes`` are the weights that all passes read.
    """

    def __init__(self, pair: Pair, method: Method) -> None:
        self._modules = modules_of(pair, method)
        self._mark: Callable[[], Mark] = _event if pair.device.type == "cuda" else time.perf_counter
        self._handles: list[RemovableHandle] = []
        self._spans: dict[str, list[tuple[Mark, Mark]]] = defaultdict(list)
        self.num_passes: Counter[str] = Counter()
        self.weight_bytes = 0

    def __enter__(self) -> Meter:
        for part, modules in self._modules.items():
            for place, module in enumerate(modules):
                self._watch(part, module, counts=place == 0)
        return self

    def __exit__(self, *details: object) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _watch(self, part: str, module: nn.Module, *, counts: bool) -> None:
        size, begun = weight_bytes(module), []

        def before(*called: object) -> None:
            begun.append(self._mark())

        def after(*called: object) -> None:
            self._spans[part].append((begun.pop(), self._mark()))
            self.weight_bytes += size
            self.num_passes[part] += counts

        self._handles += [module.register_forward_pre_hook(before), module.register_forward_hook(after)]

    def seconds(self) -> dict[str, float]:
        """Seconds by part; the device must have been waited for."""
        return {part: sum(_seconds(*span) for span in self._spans[part]) for part in self._modules}


def modules_of(pair: Pair, method: Method) -> Mapping[str, Sequence[nn.Module]]:
    """Backbone and head of every model: they follow one another, and a prompt is read without the head."""
    modules: dict[str, Sequence[nn.Module]] = {
        "draft": (pair.draft.base_model, pair.draft.get_output_embeddings()),
        "target": (pair.target.base_model, pair.target.get_output_embeddings()),
    }
    if method.scorer:
        modules["arbiter"] = (method.scorer.net.backbone, method.scorer.net.head)
    return modules


def weight_bytes(module: nn.Module) -> int:
    """Bytes of the weights that a pass reads: all but an embedding's, of which it reads a few rows."""
    layers = (layer for layer in module.modules() if not isinstance(layer, nn.Embedding))
    return sum(weight.nbytes for layer in layers for weight in layer.parameters(recurse=False))


def timed(run: Callable[[], T], device: torch.device) -> tuple[T, float]:
    """What ``run`` returns and its seconds, until the device has done all it was given."""
    wait_for(device)
    started = time.perf_counter()
    result = run()
    wait_for(device)
    return result, time.perf_counter() - started


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def copy_bandwidth(device: torch.device, num_bytes: int) -> float:
    """Bytes per second of a copy within the device, read and written ones together; the best of five."""
    source = torch.randint(256, (num_bytes,), dtype=torch.uint8, device=device)
    target, copies = torch.empty_like(source), 4

    def copy() -> None:
        for _ in range(copies):
            target.copy_(source)

    copy()
    return max(2 * copies * num_bytes / timed(copy, device)[1] for _ in range(5))


def median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _event() -> Mark:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(start: Mark, stop: Mark) -> float:
    return stop - start if isinstance(start, float) else start.elapsed_time(stop) / 1000.0
