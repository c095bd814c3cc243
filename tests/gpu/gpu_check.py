"""Proves the engine equal to itself and to transformers on a device, then times it there; see README.md."""

from __future__ import annotations

import argparse
import dataclasses
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from compiled import compiled_beside_plain
from equality import checks, graphs_check, tiny_subject
from launches import Window, launches
from made_pair import PARTED, MadePair, make_pair
from meter import copy_bandwidth, timed, weight_bytes
from methods import Method, all_methods
from random_arbiter import random_scorer
from results import Results, say
from sizes import FULL, OURS, SMALL, Size
from speed import Bench, ratios

import cospec


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status: 0 if every check held and every part ran through."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "results",
        nargs="?",
        type=Path,
        default=Path("gpu_results.json"),
        help="the JSON to write; left out: %(default)s in the working directory",
    )
    parser.add_argument("--small", action="store_true", help="tiny shapes on the CPU, to try the script itself")
    given = parser.parse_args(arguments)
    if not given.small and not torch.cuda.is_available():
        parser.error("torch sees no CUDA device: run this where there is one, or try the script itself with --small")
    device = torch.device("cpu" if given.small else "cuda")
    size = SMALL if given.small else FULL
    results = Results(given.results, size.limit_s)
    if given.small:
        # Tiny shapes gain nothing from more threads, and lose all on a machine whose cores are taken.
        torch.set_num_threads(1)
    # Float32 is to be float32: under TF32 equal texts would part.
    torch.set_float32_matmul_precision("highest")
    results.put(machine=machine(device), small=given.small, size=dataclasses.asdict(size))
    with results.part("equality"):
        prove_equality(results, size, device)
    with results.part("speed"):
        measure_speed(results, size, device)
    results.put(finished=True)
    failures = results.found["failures"]
    named = f" ({', '.join(failures)})" if failures else ""
    say(f"{len(failures)} failures{named}; everything is in {given.results.resolve()}")
    return int(bool(failures))


def machine(device: torch.device) -> dict[str, Any]:
    """What ran this, and on what."""
    found: dict[str, Any] = {"python": platform.python_version(), "device": str(device), "cospec": cospec.__version__}
    found |= {name: version(name) for name in ("torch", "transformers", "peft", "safetensors")}
    found["float32_matmul_precision"] = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {"name": properties.name, "memory_gb": properties.total_memory / 1e9, "cuda": torch.version.cuda}
    say(", ".join(f"{name} {value}" for name, value in found.items()))
    return found


def prove_equality(results: Results, size: Size, device: torch.device) -> None:
    """Part 1; see equality.py."""
    directory = Path(cospec.__file__).parent / "assets" / "tiny"
    subject, eager = (
        tiny_subject(directory, device, size.tiny_prompts, size.tiny_new, attn) for attn in ("sdpa", "eager")
    )
    for name, difference in checks(subject, eager):
        results.check(name, difference)
    holds = sum(check["holds"] for check in results.found["checks"])
    say(f"{holds} of {len(results.found['checks'])} checks of equality hold")
    graphs, reason = graphs_check(subject)
    results.put(graphs=graphs, graphs_reason=reason)
    if graphs is not None:
        results.check("compiled passes are plain ones", reason)
    said = {None: "not tried", True: "as plain passes", False: "other than plain passes"}[graphs]
    say(f"compiled passes: {said}{f' ({reason})' if reason else ''}")


def measure_speed(results: Results, size: Size, device: torch.device) -> None:
    """Part 2: the made pair, the device's bandwidth, the cases of speed.py, and profiles of a few rounds."""
    made, seconds = timed(lambda: make_pair(size.vocab_size, size.target, size.draft, device), device)
    bytes_per_s = copy_bandwidth(device, size.copied_bytes)
    models = {"draft": made.pair.draft, "target": made.pair.target}
    weights_gb = {role: weight_bytes(model) / 1e9 for role, model in models.items()}
    results.put(
        made_pair={"seconds": seconds, "weights_gb": weights_gb, "parted_ids": PARTED, "dtype": "bfloat16"},
        copy_gb_per_s=bytes_per_s / 1e9,
    )
    least = ", ".join(f"{role} {gb * 1e12 / bytes_per_s:.2f} ms" for role, gb in weights_gb.items())
    say(f"pair made in {seconds:.0f} s; copies move {bytes_per_s / 1e9:.0f} GB/s, so a pass takes at least: {least}")
    scorers = [random_scorer(made.pair.draft, cache, size.lora_r, size.vocab_size - 1) for cache in ("shared", "own")]
    methods = all_methods(made.pair, *scorers, size.num_draft_tokens)
    bench = Bench(made, methods, size.prompt_len, results, bytes_per_s, reserve_s=size.profiles_s)
    for case in size.cases:
        bench.run(case)
    results.put(ratios=ratios(bench.cells))
    for name, ratio in results.found["ratios"].items():
        say(f"{name}: {ratio:.2f}")
    compiled_beside_plain(results, size, made)
    # Behind all timing: once a profiler was on, launches may stay slower.
    profile_rounds(results, size, made, methods)


def profile_rounds(results: Results, size: Size, made: MadePair, methods: dict[str, Method]) -> None:
    """Profiles of a few rounds of every method; see launches.py."""
    window, rows = Window(size.window_new, size.window_first, size.window_rounds), []
    results.put(launches=rows)
    for together in size.profiled_together:
        prompts = made.prompts(together, size.prompt_len)
        for name in (*OURS, *(("generate", "assisted") if together == 1 else ())):
            label = f"profile of {name} by {together}"
            if results.left_s <= 0:
                results.leave_out(label)
                continue
            with results.part(label):
                found = launches(methods[name], made.pair, prompts, window)
                rows.append({"method": name, "batch": together} | found)
                say(f"{label}, per round: {_numbers(found['per_round'])}")


def _numbers(found: dict[str, float | None]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in found.items() if value is not None)


if __name__ == "__main__":
    raise SystemExit(main())
