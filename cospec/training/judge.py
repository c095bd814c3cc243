"""Train a judge head on labelled mismatches: Judge Decoding (Bachmann et al., ICLR 2025, arXiv 2501.19309).

Run as ``python -m cospec.training.judge --config FILE [key=value ...]``. The target is frozen, so that its hidden
states are computed once; what is left is a logistic regression.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from accelerate import PartialState
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from cospec.engine.heads.judge import JudgeHead, last_layer, save_judge
from cospec.engine.rollout_file import read_rollouts
from cospec.jsonl import append_jsonl
from cospec.labels.run import read_labels
from cospec.pair import Pair
from cospec.training.config import JudgeConfig
from cospec.training.judged import judged_states
from cospec.training.run_dir import HEAD, RunDir
from cospec.training.setup import load_training_pair, open_run, run_stage
from cospec.training.sft import SftExample, examples


def train(config: JudgeConfig) -> Path:
    """Train a head; the directory it was saved to."""
    if (num := PartialState(cpu=config.run.use_cpu).num_processes) > 1:
        raise ValueError(f"{num} processes were started, and a judge head is trained by one: start it with python")
    found = examples(read_rollouts(Path(config.rollouts)), read_labels(Path(config.labels)))
    random.Random(config.run.seed).shuffle(found)
    num_held = int(len(found) * config.holdout)
    _check_labels(found[num_held:])
    run, _ = open_run(config, [config.rollouts, config.labels], HEAD)
    if run.finished:
        return run.result
    pair = load_training_pair(config.pair, config.run.use_cpu)
    layer = last_layer(pair) if config.layer is None else config.layer
    states = judged_states(pair, layer, found, batch_size=config.batch_size, on_batch=_Progress(len(found)))
    held, learned = (_joined(found[part], states[part]) for part in (slice(num_held), slice(num_held, None)))
    head, steps = fit(*learned, l2=config.l2, max_steps=config.max_steps)
    head.layer = layer
    numbers = {"step": steps, **measures(head, *learned)}
    if num_held:
        numbers |= {f"held_out_{name}": value for name, value in measures(head, *held).items()}
    append_jsonl(run.metrics, [numbers])
    print("  ".join(f"{name} {value:.4g}" for name, value in numbers.items() if value is not None), file=sys.stderr)
    save(head, pair, run)
    return run.result


def fit(states: Tensor, labels: Tensor, *, l2: float, max_steps: int) -> tuple[JudgeHead, int]:
    """The head with the least BCE on ``states`` (M, H) and ``labels`` (M,), and the steps it took.

    ``l2`` weighs half the squared norm of the weights of standardised states, beside the mean loss: with it the optimum
    is one, and is found by L-BFGS in float64 from zero, so that nothing depends on a seed.
    """
    states, labels = states.double(), labels.double()
    mean, scale = states.mean(0), states.std(0, correction=0).clamp_min(1e-6)
    inputs = (states - mean) / scale
    weight = torch.zeros(states.shape[1], dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([weight, bias], max_iter=max_steps, history_size=20, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = binary_cross_entropy_with_logits(inputs @ weight + bias, labels) + l2 / 2 * weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    steps = int(optimiser.state[weight]["n_iter"])
    head = JudgeHead(states.shape[1], layer=0)
    with torch.no_grad():
        # Standardising is folded into the weights.
        raw = weight / scale
        head.linear.weight.copy_(raw[None])
        head.linear.bias.copy_(bias - raw @ mean)
    return head.requires_grad_(False).eval(), steps


def measures(head: JudgeHead, states: Tensor, labels: Tensor) -> dict[str, float | None]:
    """Loss, AUC and accuracy at threshold 0.5 beside that of always answering the commoner label."""
    logits = head(states)
    positive = labels > 0.5
    share = float(positive.double().mean()) if len(labels) else 0.0
    return {
        "labels": len(labels),
        "keep_share": share,
        "loss": float(binary_cross_entropy_with_logits(logits, labels)) if len(labels) else None,
        "auc": auc(logits, positive),
        "accuracy": float(((logits > 0) == positive).double().mean()) if len(labels) else None,
        "base_accuracy": max(share, 1 - share),
    }


def auc(scores: Tensor, positive: Tensor) -> float | None:
    """How often a positive (M,) scores above a negative, ties counting half; None where there is but one kind."""
    num_positive = int(positive.sum())
    num_negative = len(positive) - num_positive
    if not num_positive or not num_negative:
        return None
    _, place, counts = scores.unique(return_inverse=True, return_counts=True)
    # Equal scores share the mean of their ranks.
    ranks = (counts.cumsum(0) - (counts - 1) / 2)[place]
    above = float(ranks[positive].double().sum()) - num_positive * (num_positive + 1) / 2
    return above / (num_positive * num_negative)


def save(head: JudgeHead, pair: Pair, run: RunDir) -> None:
    """Write the head where the run directory promises it, its provenance beside it."""
    save_judge(head, run.begin_result(), pair)
    print(f"cospec: the judge head is in {run.result}", file=sys.stderr)


def _check_labels(learned: Sequence[SftExample]) -> None:
    kinds = {value > 0.5 for example in learned for value in example.labels}
    if len(kinds) < 2:
        raise ValueError("all labels to learn from say the same, and nothing is to be told apart: label more rollouts")


def _joined(found: Sequence[SftExample], states: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """States (M, H) and labels (M,) of these texts."""
    if not found:
        return torch.zeros(0, 0), torch.zeros(0)
    return torch.cat(list(states)), torch.tensor([value for example in found for value in example.labels])


class _Progress:
    """Says on stderr how far the target's passes are."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0

    def __call__(self, num: int) -> None:
        self.done += num
        print(f"hidden states of {self.done}/{self.total} texts", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line of this stage."""
    return run_stage(JudgeConfig, train, "Training of a judge head.", argv)


if __name__ == "__main__":
    sys.exit(main())
