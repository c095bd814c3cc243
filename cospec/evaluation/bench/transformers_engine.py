"""transformers' `generate`, alone and with the draft as its assistant, as contenders.

Assisted generation takes its number of draft tokens, its schedule and its confidence threshold from the *draft's*
generation config (the default threshold of 0.4 would end blocks early), and fills whatever else is unset from both
models' own configs, penalties included. So both configs are replaced for the time of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig

from cospec.evaluation.bench.cells import CellKey, Forwards, Measured, cut_at_end
from cospec.evaluation.bench.ours import pair_timer
from cospec.evaluation.bench.timing import timed_run
from cospec.evaluation.bench.workload import Workload
from cospec.pair import Pair

ENGINE, GENERATE, ASSISTED = "transformers", "generate", "assisted"


@dataclass(frozen=True, slots=True)
class GenerateContender:
    """`generate` over left-padded batches, in the order of the prompts; a batch ends with its longest text.

    Assisted generation takes one prompt at a time: its one run stands for every one of ``batches``.
    """

    pair: Pair
    work: Workload
    batches: tuple[int, ...]
    assisted: bool = False

    @property
    def keys(self) -> tuple[CellKey, ...]:
        return tuple(CellKey(ENGINE, ASSISTED if self.assisted else GENERATE, batch) for batch in self.batches)

    def note(self, key: CellKey) -> str | None:
        if not self.assisted or key.batch == 1:
            return None
        return "prompt by prompt, as it takes batch 1 only; one run stands for every batch size"

    def warm_up(self) -> None:
        work = self.work.warm_up(self._step)
        with neutral_configs(self.pair, work.num_draft_tokens):
            self._generate(work, work.prompts)

    def run(self) -> Measured:
        prompts, step = self.work.prompts, self._step
        batches = [prompts[start : start + step] for start in range(0, len(prompts), step)]
        with neutral_configs(self.pair, self.work.num_draft_tokens):
            outputs, spent = timed_run(
                lambda: [ids for batch in batches for ids in self._generate(self.work, batch)],
                pair_timer(self.pair),
                self.pair.device,
            )
        return Measured(
            seconds=spent.seconds,
            output_ids=tuple(outputs),
            num_rounds=self._rounds(outputs, spent.forwards),
            forwards=spent.forwards,
            peak_mb=spent.peak_mb,
            cpu_s=spent.cpu_s,
        )

    @property
    def _step(self) -> int:
        """Prompts decoded together."""
        if self.assisted:
            return 1
        (batch,) = self.batches
        return batch

    def _generate(self, work: Workload, prompts: Sequence[list[int]]) -> list[tuple[int, ...]]:
        pad, longest = padding_id(self.pair, work), max(map(len, prompts))
        padded = [[pad] * (longest - len(prompt)) + prompt for prompt in prompts]
        real = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        options: dict[str, Any] = {"assistant_model": self.pair.draft} if self.assisted else {}
        found = self.pair.target.generate(
            torch.tensor(padded, device=self.pair.device),
            attention_mask=torch.tensor(real, device=self.pair.device),
            generation_config=greedy_config(self.pair, work),
            **options,
        )
        rows = found[:, longest:].tolist()
        return [cut_at_end(row, work.eos_token_ids, work.max_new_tokens) for row in rows]

    def _rounds(self, outputs: Sequence[tuple[int, ...]], forwards: Forwards | None) -> int | None:
        """Alone, every token is a target pass of its text; the pass over the prompt writes the first one."""
        if not self.assisted:
            return sum(map(len, outputs))
        return forwards.num("target") if forwards else None


def greedy_config(pair: Pair, work: Workload) -> GenerationConfig:
    """Greedy decoding with the ends of the bench."""
    return GenerationConfig(
        do_sample=False,
        max_new_tokens=work.max_new_tokens,
        eos_token_id=list(work.eos_token_ids) or None,
        pad_token_id=padding_id(pair, work),
    )


def padding_id(pair: Pair, work: Workload) -> int:
    """An id to pad with; masked, so that any would do."""
    found = [pair.tokenizer.pad_token_id, *work.eos_token_ids, 0]
    return int(next(token_id for token_id in found if token_id is not None))


@contextmanager
def neutral_configs(pair: Pair, num_draft_tokens: int) -> Iterator[None]:
    """Both models' own generation configs out of the way, the draft as an assistant with blocks of a fixed length."""
    draft = pair.require_draft("assisted generation")
    before = draft.generation_config, pair.target.generation_config
    pair.target.generation_config = GenerationConfig()
    draft.generation_config = GenerationConfig(
        num_assistant_tokens=num_draft_tokens,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )
    try:
        yield
    finally:
        draft.generation_config, pair.target.generation_config = before


def assisted_refusal(pair: Pair) -> str | None:
    """Why transformers cannot assist with this pair's draft, if it cannot."""
    models = pair.require_draft("assisted generation"), pair.target
    sizes = [model.config.get_text_config().vocab_size for model in models]
    if sizes[0] == sizes[1]:
        return None
    return (
        f"assisted generation is left out: transformers takes a draft of {sizes[0]} output ids for a target of "
        f"{sizes[1]} as one of another tokenizer and goes through text"
    )
