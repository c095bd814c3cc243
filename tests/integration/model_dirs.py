"""Tiny random models on disk and real `cospec` processes, for the tests of the commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from click.testing import Result
from conftest import perturbed, tiny_config, tiny_model, word_tokenizer
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from cospec.arbiter.adapter import pins_of, save_arbiter
from cospec.arbiter.model import LoraSpec, new_arbiter
from cospec.cli.main import build_app
from cospec.pair import ModelSpec, PairSpec, load_pair

ROOT = Path(__file__).parents[2]


def write_model(
    directory: Path, seed: int, noise: float = 0.0, tokenizer: PreTrainedTokenizerFast | None = None, **changes: Any
) -> Path:
    """A random Llama with its tokenizer as an ordinary model directory."""
    tokenizer = tokenizer or word_tokenizer()
    model = tiny_model(tiny_config("llama", vocab_size=len(tokenizer), **changes), seed)
    (perturbed(model, seed=2, scale=noise) if noise else model).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def write_pair(directory: Path, seed: int = 1) -> Path:
    """A target, a draft that agrees with it part of the time, and the PAIR.yaml that names them."""
    write_model(directory / "target", seed)
    write_model(directory / "draft", seed, noise=0.06)
    file = directory / "PAIR.yaml"
    file.write_text("draft: {path: draft, dtype: float32}\ntarget: {path: target, dtype: float32}\n", encoding="utf-8")
    return file


def write_arbiter(directory: Path, pair_file: Path) -> Path:
    """An arbiter with random LoRA, so that it keeps some mismatches and drops others."""
    folder = pair_file.parent
    pair = load_pair(PairSpec(*(ModelSpec(str(folder / role), device="cpu") for role in ("draft", "target"))))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        arbiter = new_arbiter(pair.draft, "shared", LoraSpec(r=4, alpha=8))
        for name, parameter in arbiter.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(parameter, std=0.3)
    save_arbiter(arbiter, directory, pins_of(pair, "shared"))
    return directory


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_rows(text: str) -> list[dict[str, Any]]:
    """JSON lines back; anything else in the text fails."""
    return [json.loads(line) for line in text.splitlines()]


def run_process(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`cospec` as a process of its own."""
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cospec", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env)


def run_here(*arguments: str | Path) -> Result:
    """The same in this process, where nothing has to be imported again."""
    return CliRunner().invoke(build_app(), list(map(str, arguments)))


def assert_refused(result: Result, *parts: str) -> None:
    """Exit code 2, the parts in the message, nothing on stdout."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    for part in parts:
        assert part in result.stderr
