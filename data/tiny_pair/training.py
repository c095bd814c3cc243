"""Training of one model of the tiny pair: a curriculum from single steps to whole problems.

Small models take very long to learn where in a prompt to read when they start on long problems; on single steps they
learn it in a minute, and carry it over.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from cospec.tasks.word_problems import Mix, generate
from data.tiny_pair.tokenizer import CONTEXT, prompt_text

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Stage:
    """Optimiser steps on problems whose numbers of steps, one to four, are drawn with the weights `lengths`."""

    lengths: tuple[float, float, float, float]
    num_steps: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Shape and schooling of one model; an optimiser step takes `batch_size` problems."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    stages: tuple[Stage, ...]
    learning_rate: float
    seed: int
    batch_size: int = 16
    polish: Stage | None = None


Batch = tuple[torch.Tensor, torch.Tensor]  # input ids and labels, both (B, S)


def new_model(plan: Plan, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """A freshly initialised model that knows the tokenizer's special tokens."""
    torch.manual_seed(plan.seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=plan.hidden_size,
        intermediate_size=plan.intermediate_size,
        num_hidden_layers=plan.num_layers,
        num_attention_heads=plan.num_heads,
        num_key_value_heads=plan.num_heads,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        initializer_range=plan.hidden_size**-0.5 / 2,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def train(plan: Plan, mix: Mix, tokenizer: PreTrainedTokenizerFast, label: str) -> LlamaForCausalLM:
    """Train on `mix` and return the model; the same plan and mix give the same data in the same order."""
    model = new_model(plan, tokenizer)
    batches = [
        batch
        for number, stage in enumerate(plan.stages)
        for batch in stage_batches(plan, stage, mix, tokenizer, 100 * plan.seed + number)
    ]
    optimize(model, batches, plan.learning_rate, label)
    return model.eval()


def polish(model: LlamaForCausalLM, plan: Plan, mix: Mix, tokenizer: PreTrainedTokenizerFast, label: str) -> None:
    """Train on with a fresh optimiser at half the learning rate, if the plan has a polishing stage."""
    if plan.polish:
        batches = stage_batches(plan, plan.polish, mix, tokenizer, 100 * plan.seed + 99)
        optimize(model.train(), batches, plan.learning_rate / 2, f"{label} polish")
        model.eval()


def optimize(model: LlamaForCausalLM, batches: Sequence[Batch], learning_rate: float, label: str) -> None:
    """One pass over `batches`."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, len(batches)))
    started = time.monotonic()
    for step, batch in enumerate(batches, 1):
        loss = _loss(model, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step == len(batches):
            print(f"{label} {step}/{len(batches)} loss {loss.item():.4f} {time.monotonic() - started:.0f}s", flush=True)


def stage_batches(plan: Plan, stage: Stage, mix: Mix, tokenizer: PreTrainedTokenizerFast, seed: int) -> list[Batch]:
    """Batches of one stage; only the solution and its EOS are learned, a prompt's numbers cannot be predicted."""
    problems = generate(stage.num_steps * plan.batch_size, seed, replace(mix, lengths=stage.lengths), "train")
    prompts = tokenizer([prompt_text(tokenizer, p.prompt) for p in problems], add_special_tokens=False)["input_ids"]
    texts = [p.solution + tokenizer.eos_token for p in problems]
    solutions = tokenizer(texts, add_special_tokens=False)["input_ids"]
    pairs = zip(prompts, solutions, strict=True)
    return _batches([(a + b, [IGNORED] * len(a) + b) for a, b in pairs], plan, tokenizer)


def _rate(step: int, num_steps: int) -> float:
    """Learning-rate factor: a short warm-up, a plateau, and a linear decay over the last 40 %."""
    return min(1.0, (step + 1) / 100, max(0.02, (num_steps - step) / (0.4 * num_steps)))


def _batches(
    encoded: Sequence[tuple[list[int], list[int]]], plan: Plan, tokenizer: PreTrainedTokenizerFast
) -> list[Batch]:
    """Length-bucketed, right-padded batches in a shuffled order; padding needs no mask in a causal model."""
    encoded = sorted(encoded, key=lambda row: len(row[0]))
    batches = []
    for start in range(0, len(encoded), plan.batch_size):
        rows = encoded[start : start + plan.batch_size]
        width = max(len(ids) for ids, _ in rows)
        ids = torch.tensor([r + [tokenizer.pad_token_id] * (width - len(r)) for r, _ in rows])
        labels = torch.tensor([r + [IGNORED] * (width - len(r)) for _, r in rows])
        batches.append((ids, labels))
    random.Random(plan.seed).shuffle(batches)
    return batches


def _loss(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Mean cross-entropy of the learned tokens; the output layer runs on their positions alone."""
    ids, labels = batch
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    wanted = labels[:, 1:] != IGNORED
    return cross_entropy(model.lm_head(hidden[wanted]), labels[:, 1:][wanted])
