"""Compiled append passes: inductor's code, or on CUDA recordings of the plain pass.

Both take the place of `append_pass`: same tensors in, same logits out (up to rounding). Reading prompts, whose shapes
all differ, and an arbiter's passes stay as they are.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Literal, get_args
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from cospec.engine.cache import SlotCache
from cospec.engine.cached_model import AppendPass, CachedModel, append_pass

CompileMode = Literal["inductor", "graphs"]

#: Both models, one row and several, one token and several, an arbiter's draft: each is a program of its own.
_MOST_PROGRAMS = 64
#: Recorded passes read this many positions more at a time, so that few recordings serve a growing context.
_STRIDE = 512
#: A pass is recorded at this use of its shape: the first ones let libraries choose and set up their kernels.
_RECORDED_AT = 3

#: What differs between passes of one shape: ids, starts and counts.
Inputs = tuple[Tensor, Tensor, Tensor]
Replay = Callable[[Inputs], Tensor]
#: Makes a recording, given the model, the inputs and the line.
Record = Callable[[CachedModel, Inputs, Tensor], Replay]


def check_compile(mode: CompileMode, device_type: str) -> None:
    """ValueError for a mode that cannot work on such a device (torch's name of its type)."""
    if mode not in get_args(CompileMode):
        raise ValueError(f"compile mode is {mode!r}: choose 'inductor' or 'graphs'")
    if mode == "graphs" and device_type != "cuda":
        raise ValueError(f"compile mode 'graphs' records CUDA graphs, and the pair is on {device_type}: use 'inductor'")
    compilers = [os.environ.get("CXX"), "g++", "clang++", "cl"]
    if mode == "inductor" and device_type == "cpu" and not any(shutil.which(name) for name in compilers if name):
        raise ValueError("compile mode 'inductor' needs a C++ compiler, and none is found: install g++, or set CXX")


def compiled_pass(mode: CompileMode, device: torch.device) -> AppendPass:
    """What runs a model's passes in this mode; ValueError where it cannot work."""
    check_compile(mode, device.type)
    return RecordedPasses(CudaGraph) if mode == "graphs" else _inductor_pass()


def _inductor_pass() -> AppendPass:
    # Beyond its limit torch would fall back to the plain pass with no more than a log line.
    torch._dynamo.config.recompile_limit = max(_MOST_PROGRAMS, torch._dynamo.config.recompile_limit)
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(append_pass, dynamic=True, fullgraph=True)


class CudaGraph:
    """A pass recorded once and replayed on other ids, at places as far as ``line`` reaches."""

    def __init__(self, cached: CachedModel, inputs: Inputs, line: Tensor) -> None:
        ids, starts, counts = inputs
        self._inputs = ids.clone(), starts.clone(), counts.clone()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._logits = append_pass(cached, *self._inputs, line)

    def __call__(self, inputs: Inputs) -> Tensor:
        """Logits of ``inputs`` (ids, starts, counts), of the shapes it was recorded with."""
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._graph.replay()
        return self._logits.clone()


class RecordedPasses:
    """Passes of few shapes over buffers that stay where they are, each recorded by ``record`` and replayed."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._shapes: WeakKeyDictionary[SlotCache, _Shapes] = WeakKeyDictionary()

    def __call__(self, cached: CachedModel, ids: Tensor, starts: Tensor, counts: Tensor, line: Tensor) -> Tensor:
        """As `append_pass`."""
        cache, inputs = cached.cache, (ids, starts, counts)
        line = cache.line[: -(-len(line) // _STRIDE) * _STRIDE]
        found = self._shapes.get(cache)
        # Fewer rows are other buffers: what was recorded before would write to the old ones.
        if found is None or found.num_rows != len(ids):
            found = self._shapes[cache] = _Shapes(len(ids))
        return found.run(self._record, cached, inputs, line)


class _Shapes:
    """The recordings for one cache and number of rows, by width and reach."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self._uses: dict[tuple[int, int], int] = {}
        self._recorded: dict[tuple[int, int], Replay] = {}

    def run(self, record: Record, cached: CachedModel, inputs: Inputs, line: Tensor) -> Tensor:
        shape = inputs[0].shape[1], len(line)
        self._uses[shape] = self._uses.get(shape, 0) + 1
        if self._uses[shape] < _RECORDED_AT:
            return append_pass(cached, *inputs, line)
        if shape not in self._recorded:
            self._recorded[shape] = record(cached, inputs, line)
        return self._recorded[shape](inputs)
