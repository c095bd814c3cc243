"""`cospec doctor`: what is installed here, and what will work with it."""

import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import typer

from cospec import __version__
from cospec.cli.options import JsonOption
from cospec.jsonl import dumps

PYTHON_RANGE = ">=3.11,<3.14"
# The ranges of pyproject.toml, for installations without package metadata; a test compares the two.
CORE = {
    "torch": ">=2.6",
    "transformers": ">=5.16,<5.25",
    "peft": ">=0.21,<0.22",
    "safetensors": ">=0.5",
    "numpy": ">=2.0",
}
TRAIN = {"trl": ">=1.16,<1.17", "accelerate": ">=1.15", "datasets": ">=4.7"}
DEMO = {"matplotlib": ">=3.9", "scipy": ">=1.14"}
WANDB = {"wandb": ">=0.20"}
DEEPSPEED = {"deepspeed": ">=0.19"}
ATTENTION_NOTE = "the arbiter's mask needs attention 'sdpa' or 'eager'; flash attention cannot take it"


@dataclass(frozen=True, slots=True)
class PackageState:
    """One package; ``installed`` is None if it is missing."""

    name: str
    installed: str | None
    supported: str
    fits: bool


@dataclass(frozen=True, slots=True)
class Capability:
    """Something CoSpec can do; ``remedy`` is empty if it will work here."""

    name: str
    works: bool
    remedy: str


def command(json: JsonOption = False) -> None:
    """Show versions, devices and what will work here.

    The exit code is 1 if decoding will not work.
    """
    packages = [python_state(), *(package_state(name, spec) for name, spec in _all_ranges().items())]
    capabilities = find_capabilities({package.name: package for package in packages})
    report = {
        "cospec": __version__,
        "packages": [asdict(package) for package in packages],
        "devices": find_devices(),
        "capabilities": [asdict(capability) for capability in capabilities],
        "notes": [ATTENTION_NOTE],
    }
    if json:
        typer.echo(dumps(report))
    else:
        _print_report(report)
    if not capabilities[0].works:
        raise typer.Exit(1)


def _all_ranges() -> dict[str, str]:
    return {**CORE, **TRAIN, **DEMO, **WANDB, **DEEPSPEED}


def python_state() -> PackageState:
    """The running Python, as if it were a package."""
    return _state("python", platform.python_version(), PYTHON_RANGE)


def package_state(name: str, supported: str) -> PackageState:
    """Looked up in the metadata, without importing the package."""
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        return PackageState(name, None, supported, fits=False)
    return _state(name, installed, supported)


def _state(name: str, installed: str, supported: str) -> PackageState:
    from packaging.specifiers import SpecifierSet

    # Pre-releases count: nightly builds of torch are worth trying.
    return PackageState(name, installed, supported, SpecifierSet(supported).contains(installed, prereleases=True))


def find_capabilities(states: dict[str, PackageState]) -> list[Capability]:
    """Decoding first; the others need what it needs, and more."""
    core = ["python", *CORE]
    train = [*core, *TRAIN]
    return [
        _capability("decode", core, "", states),
        _capability("train", train, "train", states),
        _capability("demo", [*train, *DEMO], "demo", states),
        _capability("wandb log", [*train, *WANDB], "wandb", states),
        _capability("deepspeed", [*train, *DEEPSPEED], "deepspeed", states),
    ]


def _capability(name: str, needed: list[str], extra: str, states: dict[str, PackageState]) -> Capability:
    wrong = [states[package] for package in needed if not states[package].fits]
    if not wrong:
        return Capability(name, True, "")
    found = ", ".join(f"{state.name} {state.installed or 'missing'} (needs {state.supported})" for state in wrong)
    if wrong[0].name == "python":
        return Capability(name, False, f"{found}: use another Python")
    requirement = f"cospec[{extra}]" if extra else "cospec"
    return Capability(name, False, f"{found}: pip install '{requirement}'")


def find_devices() -> dict[str, Any]:
    """CPU threads and GPUs; imports torch if there is one. Memory in GiB."""
    devices: dict[str, Any] = {
        "cpu": {"cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()}
    }
    devices["flash_attn"] = find_spec("flash_attn") is not None
    if find_spec("torch") is None:
        return devices
    import torch

    devices["cpu"]["torch_threads"] = torch.get_num_threads()
    devices["cuda"] = [_cuda_device(index) for index in range(torch.cuda.device_count())]
    devices["mps"] = torch.backends.mps.is_available()
    return devices


def _cuda_device(index: int) -> dict[str, Any]:
    import torch

    properties = torch.cuda.get_device_properties(index)
    return {
        "name": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 1),
        "compute_capability": f"{properties.major}.{properties.minor}",
        # Native bf16 came with Ampere; torch also reports emulated bf16 on older devices.
        "bf16": properties.major >= 8,
    }


def _print_report(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, emoji=False)
    table = Table("package", "installed", "supported", "", title=f"cospec {report['cospec']}")
    for package in report["packages"]:
        mark = "ok" if package["fits"] else "missing" if package["installed"] is None else "outside the range"
        table.add_row(package["name"], package["installed"] or "-", package["supported"], mark)
    console.print(table)
    for line in _device_lines(report["devices"]):
        console.print(line, soft_wrap=True)
    for capability in report["capabilities"]:
        state = "works" if capability["works"] else f"will not work: {capability['remedy']}"
        console.print(f"{capability['name']}: {state}", soft_wrap=True)
    for note in report["notes"]:
        console.print(f"note: {note}", soft_wrap=True)


def _device_lines(devices: dict[str, Any]) -> list[str]:
    lines = [f"cpu: {devices['cpu']['cores']} cores, {devices['cpu'].get('torch_threads', '?')} torch threads"]
    for index, device in enumerate(devices.get("cuda", [])):
        bf16 = "bf16" if device["bf16"] else "no bf16"
        lines.append(
            f"cuda:{index}: {device['name']}, {device['memory_gib']} GiB, "
            f"compute capability {device['compute_capability']}, {bf16}"
        )
    if not devices.get("cuda"):
        lines.append("cuda: no device")
    lines.append(f"flash attention: {'installed' if devices['flash_attn'] else 'not installed'}")
    return lines
