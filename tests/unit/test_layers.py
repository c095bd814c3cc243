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


PROGRAM = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"{{name}} is not installed here", name=name)

sys.meta_path.insert(0, Absent())
"""


def run_without(names: tuple[str, ...], program: str) -> subprocess.CompletedProcess[str]:
    text = PROGRAM.format(names=names) + program
    return subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=False)


def test_decoding_needs_no_training_packages() -> None:
    program = """
from cospec.pair import ModelSpec, PairSpec, load_pair
from cospec.arbiter.adapter import pins_of
from cospec.arbiter.model import ArbiterScorer, new_arbiter, separator
from cospec.engine.decode import Engine, Request
from cospec.engine.rules import ArbiterRule
from cospec.prompts import prompt_ids

models = [ModelSpec(f"cospec/assets/tiny/{role}", device="cpu") for role in ("draft", "target")]
pair = load_pair(PairSpec(*models))
scorer = ArbiterScorer(new_arbiter(pair.draft), separator(pair.eos_token_ids))
engine = Engine(pair, ArbiterRule(scorer), max_new_tokens=8)
print(engine.rollouts([Request(1, prompt_ids(pair, "Anna has 7 apples."))])[0].num_rounds > 0)
pins_of(pair, "shared")
"""
    names = ("trl", "datasets", "wandb", "omegaconf", "scipy", "matplotlib", "deepspeed")
    done = run_without(names, program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"


def test_rewards_and_scoring_import_no_torch() -> None:
    done = run_without(("torch", "transformers"), "import cospec.rewards, cospec.scoring, cospec.tasks.word_problems")
    assert done.returncode == 0, done.stderr
