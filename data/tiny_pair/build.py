"""Build the bundled tiny pair: train the tokenizer, then draft and target side by side, and write the assets.

Usage, from the root of the repository:
    python -m data.tiny_pair.build [--out cospec/assets/tiny] [--scale 1.0]

Each model trains in a process of its own with one thread. `--scale 0.2` shortens the training for a trial of the mixes;
seeds are fixed, so a build is repeatable on one platform. Measure the result with `python -m data.tiny_pair.measure`.
"""

import argparse
import multiprocessing
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoTokenizer, GenerationConfig

from cospec.tasks.word_problems import generate
from data.tiny_pair.mixes import training_mix
from data.tiny_pair.tokenizer import train_tokenizer
from data.tiny_pair.training import Plan, Stage, polish, train

ONE, ONE_TWO, ALL = (1.0, 0.0, 0.0, 0.0), (0.5, 0.5, 0.0, 0.0), (0.05, 0.25, 0.4, 0.3)
PLANS = {
    "draft": Plan(2, 96, 256, 4, (Stage(ONE, 800), Stage(ONE_TWO, 800), Stage(ALL, 4000)), learning_rate=3e-3, seed=11),
    "target": Plan(
        num_layers=3,
        hidden_size=128,
        intermediate_size=352,
        num_heads=4,
        stages=(Stage(ONE, 600), Stage(ONE_TWO, 700), Stage(ALL, 2600)),
        learning_rate=2.5e-3,
        seed=22,
        polish=Stage(ALL, 1000),
    ),
}
POLISH_FOCUS = ("add", "sub")
TOKENIZER_SEED = 5


def main() -> None:
    """Train everything and write it below `--out`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("cospec/assets/tiny"))
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of training steps")
    args = parser.parse_args()
    write_tokenizer(args.out)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=build_model, args=(role, args.out, args.scale)) for role in PLANS]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit("training failed; see the traceback above")


def write_tokenizer(out: Path) -> None:
    """Train the shared tokenizer on a sample of problems and save it beside each model and on its own."""
    problems = generate(4000, TOKENIZER_SEED, split="train")
    tokenizer = train_tokenizer(
        [text for p in problems for text in (p.prompt, p.solution)] + ["Question: \nSolution:\n"] * 4000
    )
    for part in ("tokenizer", *PLANS):
        tokenizer.save_pretrained(out / part)


def build_model(role: str, out: Path, scale: float) -> None:
    """Train the model of one role and save it as an ordinary model directory."""
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(out / role)
    stages = tuple(replace(stage, num_steps=round(stage.num_steps * scale)) for stage in PLANS[role].stages)
    polishing = PLANS[role].polish
    if polishing:
        polishing = replace(polishing, num_steps=round(polishing.num_steps * scale))
    plan = replace(PLANS[role], stages=stages, polish=polishing)
    model = train(plan, training_mix(role), tokenizer, role)
    polish(model, plan, training_mix(role, POLISH_FOCUS), tokenizer, role)
    special = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    model.generation_config = GenerationConfig(do_sample=False, **special)
    model.save_pretrained(out / role)


if __name__ == "__main__":
    main()
