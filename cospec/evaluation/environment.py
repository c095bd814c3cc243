"""Where an evaluation ran: code, packages and machine, for the record beside its results."""

from __future__ import annotations

import hashlib
import os
import platform
from typing import Any

import torch

from cospec import __version__
from cospec.provenance import git_state, package_versions

_PACKAGES = ("torch", "transformers", "peft", "tokenizers", "numpy", "datasets", "math-verify", "sympy")


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, revision (with a digest of what is not committed) and the machine that decides the speed."""
    git = git_state()
    diff = hashlib.sha256(git["diff"].encode()).hexdigest()[:16] if git and git["diff"] else None
    return {
        "python": platform.python_version(),
        "packages": {"cospec": __version__} | package_versions(_PACKAGES),
        "git": {"revision": git["revision"], "diff_digest": diff} if git else None,
        "machine": _machine(device),
    }


def _machine(device: torch.device) -> dict[str, Any]:
    cpu = {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()}
    if device.type == "cuda":
        return cpu | {"accelerator": torch.cuda.get_device_name(device)}
    return cpu | {"threads": torch.get_num_threads()}
