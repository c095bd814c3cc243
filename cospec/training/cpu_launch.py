"""`accelerate launch --cpu --num_processes N`, made to mean what it says.

Accelerate leaves several CPU processes to MPI: without a hostfile it starts *one* process and says nothing, so that a
run would quietly be another one than was asked for. It does set a master address for more than one process, by which
the case is known; the processes are then started by torch's own launcher.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

import psutil
import yaml


def missing_cpu_processes() -> int:
    """How many processes the launcher was asked for and did not start; 0 if all is well."""
    on_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true"
    if not on_cpu or "MASTER_ADDR" not in os.environ or "RANK" in os.environ or "PMI_RANK" in os.environ:
        return 0
    words = psutil.Process(os.getppid()).cmdline()
    asked = _option(words, "num_processes")
    if asked is None and (path := _option(words, "config_file")) is not None:
        with open(path, encoding="utf-8") as file:
            asked = str(yaml.safe_load(file).get("num_processes", 1))
    return int(asked) if asked and int(asked) > 1 else 0


def start_processes(num: int, arguments: Sequence[str]) -> int:
    """Run this very program ``num`` times as one process group; the exit code of the first that failed, else 0."""
    spec = sys.modules["__main__"].__spec__
    program = ["-m", spec.name] if spec else [sys.argv[0]]
    port = os.environ.get("MASTER_PORT", "29500")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(num), "--master_port", port]
    return subprocess.run([*launcher, *program, *arguments], check=False).returncode


def _option(words: Sequence[str], name: str) -> str | None:
    """The value of ``--name VALUE`` or ``--name=VALUE`` in a command line, hyphens or underscores."""
    spellings = (f"--{name}", f"--{name.replace('_', '-')}")
    for place, word in enumerate(words):
        key, equals, value = word.partition("=")
        if key in spellings:
            return value if equals else words[place + 1]
    return None
