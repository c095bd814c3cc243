"""Training of one model of the tiny pair: drills of bare equations first, then whole problems."""

import random
import time
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from cospec.tasks.word_problems import Mix, generate
from data.tiny_pair.tokenizer import CONTEXT, prompt_text

IGNORED = -100


@dataclass(frozen=True, slots=True)
class Plan:
    """Shape and schooling of one model; steps are optimiser steps of `batch_size` sequences."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    drill_steps: int
    problem_steps: int
    batch_size: int = 32
    learning_rate: float = 3e-3
    seed: int = 0


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
    batches = drill_batches(plan, mix, tokenizer) + problem_batches(plan, mix, tokenizer)
    optimizer = torch.optim.AdamW(model.parameters(), lr=plan.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, plan.learning_rate, total_steps=len(batches), pct_start=0.05
    )
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
    return model.eval()


def drill_batches(plan: Plan, mix: Mix, tokenizer: PreTrainedTokenizerFast) -> list[Batch]:
    """Rows of equations from the mix's solutions; only the tokens after each `=` are learned."""
    rows, per_row = plan.drill_steps * plan.batch_size, 12
    problems = generate(rows * per_row // 3 + 64, plan.seed + 1, mix, "train")
    equations = [part for problem in problems for part in _equations(problem.solution)]
    random.Random(plan.seed).shuffle(equations)
    texts = [" " + "; ".join(equations[i * per_row : (i + 1) * per_row]) + ";" for i in range(rows)]
    equals = tokenizer.convert_tokens_to_ids("=")
    digits = set(tokenizer.convert_tokens_to_ids(list("0123456789;")))
    encoded = []
    for ids in tokenizer(texts)["input_ids"]:
        labels, open_ = [], False
        for token in ids:
            labels.append(token if open_ and token in digits else IGNORED)
            open_ = token == equals or (open_ and token in digits)
        encoded.append((ids, labels))
    return _batches(encoded, plan, tokenizer)


def problem_batches(plan: Plan, mix: Mix, tokenizer: PreTrainedTokenizerFast) -> list[Batch]:
    """Whole problems; only the solution and its EOS are learned, since the numbers of a prompt cannot be predicted."""
    problems = generate(plan.problem_steps * plan.batch_size, plan.seed + 2, mix, "train")
    prompts = tokenizer([prompt_text(tokenizer, p.prompt) for p in problems], add_special_tokens=False)["input_ids"]
    texts = [p.solution + tokenizer.eos_token for p in problems]
    solutions = tokenizer(texts, add_special_tokens=False)["input_ids"]
    pairs = zip(prompts, solutions, strict=True)
    return _batches([(a + b, [IGNORED] * len(a) + b) for a, b in pairs], plan, tokenizer)


def _equations(solution: str) -> list[str]:
    words = solution.replace("% of ", "%_of_").split()
    return [word.replace("%_of_", "% of ") for word in words if "=" in word]


def _batches(encoded: list[tuple[list[int], list[int]]], plan: Plan, tokenizer: PreTrainedTokenizerFast) -> list[Batch]:
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
