"""The machine a bench ran on, as far as it decides the numbers."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

from cospec.evaluation.environment import environment

_CPUINFO = Path("/proc/cpuinfo")


def machine(device: torch.device) -> dict[str, Any]:
    """System, processor, cores, accelerator, and the threads torch computes with."""
    known: dict[str, Any] = environment(device)["machine"]
    return known | {"cpu": cpu_name(), "threads": torch.get_num_threads()}


def cpu_name() -> str:
    """The processor's own name, where the system tells it."""
    if _CPUINFO.is_file():
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()
