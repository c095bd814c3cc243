"""The peak of memory over a run: the device's where there is one, else the process's."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: torch.device) -> bool:
    """Start counting anew; False where there is no peak to be had.

    On a CPU under Linux the kernel's high-water mark of the process is set back (a 5 in clear_refs, see proc(5)). What
    earlier work left behind is given back first, as it would count as this run's.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    if device.type != "cpu" or sys.platform != "linux":
        return False
    _trim()
    try:
        _CLEAR.write_text("5", encoding="ascii")
    except OSError:
        # Some containers mount /proc read-only.
        return False
    return True


def peak_mb(device: torch.device) -> float | None:
    """The peak since `reset_peak` in 10^6 bytes: allocated by torch on CUDA, resident of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name == "VmHWM":
            return int(value.split()[0]) * 1024 / 1e6
    return None


def _trim() -> None:
    """glibc keeps freed memory for later; other C libraries have no such call."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
