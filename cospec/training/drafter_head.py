"""Train an EAGLE-3 head or an MTP layer on a target's own texts.

Run as ``accelerate launch -m cospec.training.drafter_head --config FILE [key=value ...]``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import set_seed
from torch import Tensor, nn
from transformers import PrinterCallback, Trainer, TrainingArguments

from cospec.engine.decode import Engine
from cospec.engine.heads import DraftHead
from cospec.engine.heads.eagle3 import Eagle3Head
from cospec.engine.heads.eagle3_files import save_eagle3
from cospec.engine.heads.files import PINS_NAME, head_pins, made_for_another, save_pins
from cospec.engine.heads.mtp import MtpHead
from cospec.engine.heads.mtp_files import save_mtp
from cospec.engine.record import Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rollout_file import decode_to_file, recorded_rollouts
from cospec.engine.rules import rule_named
from cospec.jsonl import append_jsonl
from cospec.pair import Pair
from cospec.prompt_rows import load_prompt_rows
from cospec.prompts import row_prompt_ids
from cospec.training.config import DrafterHeadConfig
from cospec.training.new_head import new_head
from cospec.training.run_dir import HEAD, MetricsFile, RunDir
from cospec.training.setup import load_training_pair, micro_batches, open_run, run_stage, trainer_arguments
from cospec.training.unroll import Unrolled

_NOT_LEARNED = -100


class HeadTrainer(Trainer):
    """Cross-entropy of all steps, each weighed ``decay`` times the one before, divided by the texts' tokens."""

    decay = 1.0

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        steps = model(**inputs)
        loss = sum(step.loss * self.decay**number for number, step in enumerate(steps))
        if num_items_in_batch is None:
            loss = loss / steps[0].num.clamp_min(1)
        else:
            # The count is global; the processes' gradients are averaged afterwards.
            loss = loss * self.accelerator.num_processes / num_items_in_batch
        return (loss, {"steps": steps}) if return_outputs else loss


def collate(texts: Sequence[Rollout]) -> dict[str, Tensor]:
    """Texts right-padded, with labels (B, S) at the tokens that the target wrote."""
    whole = [torch.tensor(text.prompt_ids + text.output_ids) for text in texts]
    labels = [ids.clone() for ids in whole]
    for row, text in zip(labels, texts, strict=True):
        row[: len(text.prompt_ids)] = _NOT_LEARNED
    pad = torch.nn.utils.rnn.pad_sequence
    return {"input_ids": pad(whole, batch_first=True), "labels": pad(labels, True, _NOT_LEARNED)}


def train(config: DrafterHeadConfig) -> Path:
    """Train a head; the directory it was saved to."""
    rows = load_prompt_rows(config.prompts, require_gold=False)
    args = trainer_arguments(
        TrainingArguments,
        config.run,
        config.optimiser,
        config.trainer,
        num_train_epochs=config.epochs,
        gradient_accumulation_steps=micro_batches(config),
        label_names=["labels"],
    )
    run, checkpoint = open_run(config, [config.prompts], HEAD)
    if run.finished:
        return run.result
    pair = load_training_pair(config.pair, config.run.use_cpu)
    texts = own_texts(pair, config, run, [Request(row.id, row_prompt_ids(pair, row)) for row in rows])
    set_seed(config.run.seed)
    num_held = int(len(texts) * config.holdout)
    held, learned = texts[:num_held], texts[num_held:]
    head = new_head(pair, config.head, learned)
    trainer = HeadTrainer(
        model=Unrolled(head, config.head.unroll),
        args=args,
        train_dataset=learned,
        data_collator=collate,
        callbacks=[MetricsFile(run.metrics)],
    )
    trainer.decay = config.head.decay
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=checkpoint)
    if trainer.accelerator.is_main_process:
        if held:
            found = held_out(head, config, held)
            append_jsonl(run.metrics, [{"step": trainer.state.global_step, **found}])
        save(head, pair, run)
    trainer.accelerator.wait_for_everyone()
    return run.result


def own_texts(pair: Pair, config: DrafterHeadConfig, run: RunDir, requests: Sequence[Request]) -> list[Rollout]:
    """What the target answers, long enough to learn from, in the order of the prompts; kept in the run directory.

    The processes share the prompts. ValueError for texts of another target in the run directory.
    """
    section, state = config.texts, PartialState(cpu=config.run.use_cpu)
    engine = Engine(
        pair,
        rule_named("target"),
        max_new_tokens=section.max_new_tokens,
        sampling=Sampling(section.temperature, section.top_k, section.top_p),
        batch_size=section.batch_size,
        seed=config.run.seed,
    )

    def kept() -> dict[str | int, Rollout]:
        paths = sorted(run.texts.glob("rank*.jsonl"))
        return {text.id: text for path in paths for text in recorded_rollouts(path, requests, engine.settings)}

    with state.main_process_first():
        claim_texts(run.texts, pair)
        found = kept()
    # Nobody writes while another still looks.
    state.wait_for_everyone()
    todo = [request for request in requests if request.id not in found][state.process_index :: state.num_processes]
    decode_to_file(engine, todo, run.texts / f"rank{state.process_index}.jsonl", lambda _: None)
    state.wait_for_everyone()
    found = kept()
    texts = [found[request.id] for request in requests]
    # The first token a head can predict is the third of a text.
    usable = [text for text in texts if len(text.prompt_ids) + len(text.output_ids) > 2]
    if not usable:
        raise ValueError("the target wrote no text of three tokens or more: raise texts.max_new_tokens")
    return usable


def claim_texts(directory: Path, pair: Pair) -> None:
    """Write beside the texts which target they are of; ValueError if they are of another one."""
    path = directory / PINS_NAME
    if not path.exists():
        save_pins(path, head_pins(pair))
    elif wrong := made_for_another(path, pair):
        raise ValueError(f"{directory} holds texts of another target: {wrong}. Name another run.dir, or remove them")


@torch.no_grad()
def held_out(head: DraftHead, config: DrafterHeadConfig, texts: Sequence[Rollout]) -> dict[str, Any]:
    """Per step: how often the head's likeliest id is the target's, and the loss a token, on texts kept apart.

    Steps that reach beyond the end of all texts are left out.
    """
    unrolled, size = Unrolled(head, config.head.unroll).eval(), config.optimiser.micro_batch
    sums = torch.zeros(config.head.unroll, 3, dtype=torch.float64)
    for first in range(0, len(texts), size):
        batch = {name: tensor.to(head.target.device) for name, tensor in collate(texts[first : first + size]).items()}
        for number, step in enumerate(unrolled(**batch)):
            sums[number] += torch.stack([step.loss, step.agreed, step.num]).double().cpu()
    loss, agreed, num = sums[sums[:, 2] > 0].T
    return {
        "held_out_agreement": (agreed / num).tolist(),
        "held_out_loss": (loss / num).tolist(),
        "held_out_tokens": num.long().tolist(),
    }


def save(head: DraftHead, pair: Pair, run: RunDir) -> None:
    """Write the head in the target's type where the run directory promises it, its provenance beside it."""
    head.to_target()
    pins, directory = head_pins(pair), run.begin_result()
    if isinstance(head, Eagle3Head):
        save_eagle3(head, directory, pins)
    else:
        assert isinstance(head, MtpHead)
        save_mtp(head, directory, pins)
    print(f"cospec: the head is in {run.result}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line of this stage."""
    return run_stage(DrafterHeadConfig, train, "Training of a drafting head.", argv)


if __name__ == "__main__":
    sys.exit(main())
