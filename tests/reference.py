"""Method.md section 1 once more: one sequence, no cache, no batch, greedy. Slow and plain on purpose."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import GenerationConfig


class Uncached:
    """A model asked for the row behind a text, by a full forward of that text; the answers are remembered."""

    def __init__(self, model: nn.Module, vocab_size: int) -> None:
        self.model, self.vocab_size = model, vocab_size
        self.memo: dict[tuple[int, ...], Tensor] = {}

    def row(self, text: Sequence[int]) -> Tensor:
        """The logits (V,) of the next token."""
        key = tuple(text)
        if key not in self.memo:
            with torch.no_grad():
                logits = self.model(input_ids=torch.tensor([key]), use_cache=False).logits
            self.memo[key] = logits[0, -1, : self.vocab_size]
        return self.memo[key]

    def choice(self, text: Sequence[int]) -> int:
        return int(self.row(text).argmax())

    def prob(self, text: Sequence[int], token: int) -> float:
        return float(self.row(text).softmax(-1)[token])


@dataclass
class ReferenceBlock:
    start: int
    draft_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    #: (position, draft id, target id, the target's probability of the draft id, kept)
    decisions: list[tuple[int, int, int, float, bool]]
    accepted_len: int
    emitted_ids: tuple[int, ...]


@dataclass
class ReferenceRollout:
    output_ids: list[int] = field(default_factory=list)
    blocks: list[ReferenceBlock] = field(default_factory=list)
    finish_reason: str = ""


def reference_rollout(
    draft: Uncached,
    target: Uncached,
    prompt: Sequence[int],
    keep: Callable[[int, int], bool],
    *,
    k: int,
    bonus: str,
    max_new_tokens: int,
    eos: Collection[int] = (),
    draft_context: int = 10**9,
    target_context: int = 10**9,
) -> ReferenceRollout:
    """Decode with a rule that keeps the mismatch at (start, position) iff ``keep`` says so."""
    done, text = ReferenceRollout(), list(prompt)
    limit = min(len(prompt) + max_new_tokens, target_context)
    while not done.finish_reason:
        start = len(text)
        room = min(k + (bonus == "arbitrated"), limit - start, draft_context - start)
        drafted: list[int] = []
        while len(drafted) < room and not (drafted and drafted[-1] in eos):
            drafted.append(draft.choice(text + drafted))
        wanted = [target.choice(text + drafted[:i]) for i in range(len(drafted))]
        decisions, emitted, accepted, fallen_back = [], [], 0, False
        for i, (mine, other) in enumerate(zip(drafted, wanted, strict=True)):
            kept = mine == other or keep(start, i)
            if mine != other:
                decisions.append((i, mine, other, target.prob(text + drafted[:i], mine), kept))
            emitted.append(mine if kept else other)
            if not kept:
                fallen_back = True
                break
            accepted += 1
        over = bool(emitted) and (emitted[-1] in eos or start + len(emitted) == limit)
        if not drafted or (bonus == "target" and not fallen_back and not over):
            emitted.append(target.choice(text + drafted))
        text += emitted
        done.output_ids += emitted
        done.blocks.append(ReferenceBlock(start, tuple(drafted), tuple(wanted), decisions, accepted, tuple(emitted)))
        if text[-1] in eos:
            done.finish_reason = "eos"
        elif len(text) == limit:
            done.finish_reason = "length"
    return done


def generated(
    model: nn.Module, prompt: Sequence[int], max_new_tokens: int, eos: Collection[int] = (), **options: Any
) -> list[int]:
    """Greedy ids by transformers' own `generate`, the EOS that ends them included."""
    config = GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=list(eos) or None,
        pad_token_id=0,
        bos_token_id=1,
        **options,
    )
    ids = torch.tensor([prompt])
    # generate() fills what a config leaves out from the model's own, which would bring its EOS back.
    own, model.generation_config = model.generation_config, config
    try:
        output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
    finally:
        model.generation_config = own
    return output[0, len(prompt) :].tolist()
