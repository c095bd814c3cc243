"""Stage 1: supervised warm-up, BCE on labelled mismatches (method section 3).

Run as ``accelerate launch -m cospec.training.sft --config FILE [key=value ...]``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from cospec.arbiter.layout import PackItem, pack
from cospec.arbiter.model import separator
from cospec.engine.record import Rollout
from cospec.engine.rollout_file import read_rollouts
from cospec.jsonl import append_jsonl
from cospec.labels.record import RolloutLabels, digest
from cospec.labels.run import read_labels
from cospec.training.config import SftConfig
from cospec.training.run_dir import MetricsFile
from cospec.training.setup import (
    SavesArbiter,
    check_arbiter_init,
    load_training_pair,
    micro_batches,
    open_run,
    prepare_arbiter,
    run_stage,
    trainer_arguments,
)

_NO_LABEL = -100.0


class SftExample:
    """A rollout's labelled mismatches: what to pack, and a label per read-out."""

    __slots__ = ("item", "labels")

    def __init__(self, rollout: Rollout, labels: RolloutLabels) -> None:
        by_block: dict[int, dict[int, float]] = {}
        for label in labels.labels:
            if label.label is not None:
                by_block.setdefault(label.block, {})[label.position] = label.label
        self.item = PackItem(
            rollout.prompt_ids + rollout.output_ids,
            [rollout.blocks[number] for number in by_block],
            [list(positions) for positions in by_block.values()],
        )
        self.labels = [value for positions in by_block.values() for value in positions.values()]


def examples(rollouts: Sequence[Rollout], labels: Sequence[RolloutLabels]) -> list[SftExample]:
    """Rollouts that have at least one label; ValueError if none has, or a label's rollout is missing."""
    by_id = {rollout.id: rollout for rollout in rollouts}
    missing = [row.id for row in labels if row.id not in by_id]
    if missing:
        raise ValueError(
            f"labels name rollout {missing[0]!r}, which the rollouts lack: give the files that belong together"
        )
    other = [row.id for row in labels if row.rollout != digest(by_id[row.id])]
    if other:
        raise ValueError(f"the labels of {other[0]!r} were made for another rollout of that id: label these rollouts")
    found = [SftExample(by_id[row.id], row) for row in labels]
    found = [example for example in found if example.labels]
    if not found:
        raise ValueError(
            "no mismatch has a label: no branch ended right, or none was scored, so there is nothing to learn from"
        )
    return found


class SftTrainer(SavesArbiter):
    """BCE with logits, summed over labelled mismatches and divided by their number in the whole batch."""

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        logits = model(**inputs)
        real = labels != _NO_LABEL
        loss = nn.functional.binary_cross_entropy_with_logits(logits[real], labels[real], reduction="sum")
        if num_items_in_batch is None:
            loss = loss / real.sum().clamp_min(1)
        else:
            # The count is global; the processes' gradients are averaged afterwards.
            loss = loss * self.accelerator.num_processes / num_items_in_batch
        return (loss, {"logits": logits}) if return_outputs else loss


class Collate:
    """Examples to the tensors of one packed forward and its labels (B, T)."""

    def __init__(self, sep: int) -> None:
        self.sep = sep

    def __call__(self, batch: Sequence[SftExample]) -> dict[str, Tensor]:
        packed = pack([example.item for example in batch], self.sep)
        labels = torch.full(packed.read_mask.shape, _NO_LABEL)
        for row, example in enumerate(batch):
            labels[row, : len(example.labels)] = torch.tensor(example.labels)
        return {**packed.tensors(), "labels": labels}


def train(config: SftConfig) -> Path:
    """Train the warm-up arbiter; the directory it was saved to."""
    check_arbiter_init(config.arbiter)
    found = examples(read_rollouts(Path(config.rollouts)), read_labels(Path(config.labels)))
    args = trainer_arguments(
        TrainingArguments,
        config.run,
        config.optimiser,
        config.trainer,
        num_train_epochs=config.epochs,
        gradient_accumulation_steps=micro_batches(config),
        label_names=["labels"],
    )
    run, checkpoint = open_run(config, [config.rollouts, config.labels])
    if run.finished:
        return run.result
    pair = load_training_pair(config.pair, config.run.use_cpu)
    arbiter = prepare_arbiter(pair, config.arbiter, config.run.seed)
    num_held = int(len(found) * config.holdout)
    trainer = SftTrainer(
        model=arbiter,
        args=args,
        train_dataset=found[num_held:],
        data_collator=Collate(separator(pair.eos_token_ids)),
        callbacks=[MetricsFile(run.metrics)],
    )
    trainer.pair = pair
    trainer.train(resume_from_checkpoint=checkpoint)
    if num_held and trainer.accelerator.is_main_process:
        append_jsonl(run.metrics, [{"step": trainer.state.global_step, **held_out(trainer, found[:num_held])}])
    trainer.finish(run)
    return run.result


@torch.no_grad()
def held_out(trainer: SftTrainer, found: Sequence[SftExample]) -> dict[str, float]:
    """BCE and agreement (at threshold 0.5) on examples kept apart."""
    arbiter = trainer.accelerator.unwrap_model(trainer.model).eval()
    loss, agree, num = 0.0, 0, 0
    for first in range(0, len(found), trainer.args.per_device_train_batch_size):
        batch = trainer.data_collator(found[first : first + trainer.args.per_device_train_batch_size])
        batch = {name: tensor.to(trainer.args.device) for name, tensor in batch.items()}
        labels = batch.pop("labels")
        real = labels != _NO_LABEL
        logits, labels = arbiter(**batch)[real], labels[real]
        loss += float(nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum"))
        agree += int(((logits > 0) == (labels > 0.5)).sum())
        num += len(labels)
    return {"held_out_loss": loss / max(1, num), "held_out_agreement": agree / max(1, num), "held_out_labels": num}


def main(argv: Sequence[str] | None = None) -> int:
    """The command line of this stage."""
    return run_stage(SftConfig, train, "Supervised warm-up of an arbiter.", argv)


if __name__ == "__main__":
    sys.exit(main())
