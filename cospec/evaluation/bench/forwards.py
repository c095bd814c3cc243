"""How long models take inside a run: hooks around their forward passes, without a change to what runs them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from cospec.evaluation.bench.cells import Forwards, Part, Passes

Kind = Literal["whole", "backbone", "head"]
#: A point in time: seconds of the host's clock, or an event in the device's stream.
Mark = Any


@dataclass(frozen=True, slots=True)
class Timed:
    """One outermost pass: ``shape`` is (rows, width) of its token ids, None for a head alone."""

    part: Part
    kind: Kind
    shape: tuple[int, int] | None
    start: Mark
    stop: Mark


class ForwardTimer:
    """A context in which every forward pass of the given modules is timed.

    On CUDA the marks are events in the stream, so that nothing waits for them: a pass's time is the device's, with the
    gaps in which the device waits for kernels of that pass. Passes inside passes belong to the outer one. A backbone
    that is run without its head has only read a prompt.
    """

    def __init__(self, device: torch.device) -> None:
        self._mark: Callable[[], Mark] = _event if device.type == "cuda" else time.perf_counter
        self._modules: list[tuple[nn.Module, Part, Kind]] = []
        self._handles: list[RemovableHandle] = []
        self._timed: list[Timed] = []
        self._depth = 0
        self._start: Mark = None
        self._shape: tuple[int, int] | None = None

    def watch(self, part: Part, model: PreTrainedModel) -> None:
        """A language model, whether it is called as a whole, or its backbone and its head by themselves."""
        backbone, head = model.base_model, model.get_output_embeddings()
        assert backbone is not model, "a model without a backbone of its own"
        self._modules += [(model, part, "whole"), (backbone, part, "backbone"), (head, part, "head")]

    def watch_parts(self, part: Part, backbone: nn.Module, head: nn.Module) -> None:
        """A backbone with a head of its own."""
        self._modules += [(backbone, part, "backbone"), (head, part, "head")]

    def __enter__(self) -> ForwardTimer:
        for module, part, kind in self._modules:
            self._handles.append(module.register_forward_pre_hook(self._before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after(part, kind)))
        return self

    def __exit__(self, *details: object) -> None:
        while self._handles:
            self._handles.pop().remove()
        self._depth = 0

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._depth == 0:
            ids = kwargs.get("input_ids")
            self._shape = (ids.shape[0], ids.shape[1]) if isinstance(ids, Tensor) else None
            self._start = self._mark()
        self._depth += 1

    def _after(self, part: Part, kind: Kind) -> Callable[..., None]:
        def hook(*called: Any) -> None:
            self._depth -= 1
            if self._depth == 0:
                self._timed.append(Timed(part, kind, self._shape, self._start, self._mark()))

        return hook

    def forwards(self) -> Forwards:
        """What was timed so far. On CUDA the device must have been waited for."""
        return summed(self._timed, _seconds)


def summed(timed: list[Timed], seconds: Callable[[Mark, Mark], float]) -> Forwards:
    """Passes by shape: a head's time goes to the backbone's pass before it, which it makes a pass of a round."""
    passes: dict[tuple[Part, int, int], list[float]] = defaultdict(list)
    prefill: dict[str, float] = defaultdict(float)
    open_pass: dict[Part, tuple[tuple[int, int], float]] = {}
    for one in timed:
        spent = seconds(one.start, one.stop)
        before = open_pass.pop(one.part, None)
        if one.kind == "head":
            if before is None:
                prefill[one.part] += spent
                continue
            shape, spent = before[0], before[1] + spent
        else:
            if before is not None:
                prefill[one.part] += before[1]
            assert one.shape is not None, "a model was called without token ids"
            shape = one.shape
            if one.kind == "backbone":
                open_pass[one.part] = (shape, spent)
                continue
        passes[one.part, *shape].append(spent)
    for part, (_, spent) in open_pass.items():
        prefill[part] += spent
    found = [Passes(*shape, len(times), sum(times)) for shape, times in sorted(passes.items())]
    return Forwards(tuple(found), dict(prefill))


def _event() -> Mark:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _seconds(start: Mark, stop: Mark) -> float:
    return stop - start if isinstance(start, float) else start.elapsed_time(stop) / 1000.0


def wait_for(device: torch.device) -> None:
    """Until the device has done all it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def can_time(device: torch.device) -> bool:
    """Whether passes can be timed one by one: other devices work on when a pass has returned, and have no events."""
    return device.type in ("cpu", "cuda")
