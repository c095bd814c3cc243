"""A pair of any shape, made in memory, whose texts are known: real acceptance without real weights.

Every id has one successor in the target's text, and the draft has another one for a share of the ids. An id's
embedding is a random vector and the output row of its successor the same vector; what attention and MLP add is small
beside it but computed in full, so time and memory traffic are those of the shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, PreTrainedTokenizerFast

from cospec.pair import ModelSpec, Pair, PairSpec

#: The share of ids at which draft and target part.
PARTED = 0.2
#: What the random projections back into the residual stream are multiplied by: far below the embedding, above nothing.
_RESIDUAL_SCALE = 0.01


@dataclass(frozen=True, slots=True)
class MadePair:
    """``target_next`` and ``draft_next`` (V,), on the CPU, are each model's greedy successor of every id.

    The last id ends a text and separates regions; it is its own successor and of no other id.
    """

    pair: Pair
    target_next: Tensor
    draft_next: Tensor

    def prompts(self, num: int, length: int) -> list[list[int]]:
        """Random prompts without the last id."""
        generator = torch.Generator().manual_seed(4)
        return torch.randint(len(self.target_next) - 1, (num, length), generator=generator).tolist()

    def target_text(self, prompt: list[int], num_new: int) -> list[int]:
        """What the target writes behind a prompt."""
        text = [prompt[-1]]
        for _ in range(num_new):
            text.append(int(self.target_next[text[-1]]))
        return text[1:]


def make_pair(vocab_size: int, target: Mapping[str, Any], draft: Mapping[str, Any], device: torch.device) -> MadePair:
    """A Llama pair in bfloat16 of these shapes (`LlamaConfig` fields)."""
    target_next, draft_next = successors(vocab_size)
    pair = Pair(
        draft=_model(draft, draft_next, device, seed=1),
        target=_model(target, target_next, device, seed=2),
        tokenizer=_tokenizer(vocab_size),
        vocab_size=vocab_size,
        draft_context=draft["max_position_embeddings"],
        target_context=target["max_position_embeddings"],
        eos_token_ids=(vocab_size - 1,),
        spec=PairSpec(ModelSpec("made-draft"), ModelSpec("made-target")),
        tokenizer_digest="",
    )
    return MadePair(pair, target_next, draft_next)


def successors(vocab_size: int) -> tuple[Tensor, Tensor]:
    """The permutations of target and draft (V,): one cycle over all ids but the last, and the same but for a share."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(vocab_size - 1, generator=generator)
    target_next = torch.arange(vocab_size)
    target_next[order] = order.roll(-1)
    parted = torch.randperm(vocab_size - 1, generator=generator)[: round(PARTED * (vocab_size - 1))]
    draft_next = target_next.clone()
    draft_next[parted] = target_next[parted.roll(1)]
    return target_next, draft_next


def _model(shape: Mapping[str, Any], successor: Tensor, device: torch.device, seed: int) -> PreTrainedModel:
    # Untied, also where the model of that shape ties them: the two permutations need output rows of their own. A pass
    # reads as many bytes either way, since of an embedding it reads only the rows of its tokens.
    config = LlamaConfig(
        vocab_size=len(successor), tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, **shape
    )
    torch.manual_seed(seed)
    with torch.device(device), torch.no_grad():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16, attn_implementation="sdpa")
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(_RESIDUAL_SCALE)
            layer.mlp.down_proj.weight.mul_(_RESIDUAL_SCALE)
        embedding = torch.randn(len(successor), config.hidden_size)
        # Rows of one length: a logit is then root(hidden size) at the successor and about N(0, 1) anywhere else.
        embedding *= config.hidden_size**0.5 / embedding.norm(dim=1, keepdim=True)
        model.model.embed_tokens.weight.copy_(embedding)
        model.lm_head.weight[successor.to(device)] = (embedding / config.hidden_size**0.5).bfloat16()
    return model.eval().requires_grad_(False)


def _tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    words = {f"w{token_id}": token_id for token_id in range(vocab_size)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w0")))
