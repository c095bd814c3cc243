"""Imports go one way, and the lower layers need few packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Each layer, and the layers it must never import.
FORBIDDEN = {
    "engine": ("arbiter", "labels", "rewards", "training", "evaluation", "cli", "scoring", "tasks"),
    "arbiter": ("labels", "rewards", "training", "evaluation", "cli", "scoring", "tasks"),
    "rewards": ("arbiter", "training", "evaluation", "cli", "labels", "pair"),
    "scoring": ("engine", "arbiter", "training", "evaluation", "cli", "labels", "pair"),
    "tasks": ("engine", "arbiter", "training", "evaluation", "cli", "labels", "pair", "rewards", "scoring"),
    "labels": ("training", "evaluation", "cli"),
    "training": ("evaluation", "cli"),
    "evaluation": ("training", "cli"),
}


def imported(path: Path) -> set[str]:
    """Every module of cospec a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("cospec."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("cospec.")}
    return found


@pytest.mark.parametrize("layer", FORBIDDEN)
def test_imports_go_one_way(layer: str) -> None:
    for path in (ROOT / "cospec" / layer).rglob("*.py"):
        wrong = imported(path) & set(FORBIDDEN[layer])
        assert not wrong, f"{path.relative_to(ROOT)} imports {sorted(wrong)}"


DECODING = ["pair.py", "prompts.py", "prompt_rows.py", "jsonl.py", "engine", "arbiter"]
FEW = {"torch", "numpy", "transformers", "peft", "safetensors", "cospec", *sys.stdlib_module_names}


def packages(path: Path) -> set[str]:
    """Top-level names of everything a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
    return found


@pytest.mark.parametrize("part", DECODING)
def test_decoding_needs_torch_transformers_peft_and_safetensors_alone(part: str) -> None:
    place = ROOT / "cospec" / part
    for path in place.rglob("*.py") if place.is_dir() else [place]:
        assert packages(path) <= FEW, f"{path.relative_to(ROOT)}: {sorted(packages(path) - FEW)}"


def test_decoding_loads_none_of_the_training_code() -> None:
    program = """
import sys
from cospec.pair import ModelSpec, PairSpec, load_pair
from cospec.arbiter.model import ArbiterScorer, new_arbiter, separator
from cospec.engine.decode import Engine
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule
from cospec.prompts import prompt_ids

models = [ModelSpec(f"cospec/assets/tiny/{role}", device="cpu") for role in ("draft", "target")]
pair = load_pair(PairSpec(*models))
scorer = ArbiterScorer(new_arbiter(pair.draft), separator(pair.eos_token_ids))
engine = Engine(pair, ArbiterRule(scorer), max_new_tokens=8)
print(engine.rollouts([Request(1, prompt_ids(pair, "Anna has 7 apples."))])[0].num_rounds > 0)
print([name for name in ("trl", "omegaconf", "matplotlib", "cospec.training") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["True", "[]"]


def test_rewards_and_scoring_import_no_torch() -> None:
    program = (
        "import sys, cospec.rewards, cospec.scoring.score_file, cospec.task_set; assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0
