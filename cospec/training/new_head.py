"""Fresh drafting heads, begun from what the target already knows."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence

import torch
from transformers import LlamaConfig, PreTrainedModel

from cospec.engine.heads import DraftHead
from cospec.engine.heads.base import decoder_of
from cospec.engine.heads.eagle3 import Eagle3Config, Eagle3Head, Variants, default_layers
from cospec.engine.heads.mtp import MtpHead
from cospec.engine.record import Rollout
from cospec.pair import Pair
from cospec.training.config import HeadSection


def new_head(pair: Pair, section: HeadSection, texts: Sequence[Rollout]) -> DraftHead:
    """A head of this form, in float32; ``texts`` decide which ids an EAGLE-3 head drafts."""
    head = _new_mtp(pair.target) if section.kind == "mtp" else _new_eagle3(pair, section, texts)
    return head.float().to(pair.device).train()


def _new_eagle3(pair: Pair, section: HeadSection, texts: Sequence[Rollout]) -> Eagle3Head:
    """Output and last norm are the target's; the rest is random."""
    target, config = pair.target, pair.target.config.get_text_config()
    ids = draft_ids(pair, section.draft_vocab_size, texts)
    head = Eagle3Head(
        Eagle3Config(
            layer=_layer_config(target, section.intermediate_size),
            draft_vocab_size=len(ids),
            target_hidden_size=config.hidden_size,
            tapped=tuple(section.layers) or default_layers(config.num_hidden_layers),
            variants=Variants(fc_norm=section.fc_norm),
        ),
        target,
    )
    output = target.get_output_embeddings().weight
    assert isinstance(output, torch.Tensor)
    with torch.no_grad():
        head.d2t.copy_(torch.tensor(ids) - torch.arange(len(ids)))
        head.lm_head.weight.copy_(output[ids])
        head.norm.weight.copy_(decoder_of(target).norm.weight)
    return head


def draft_ids(pair: Pair, size: int, texts: Sequence[Rollout]) -> list[int]:
    """The ``size`` ids (0: all) that the texts hold most often, ends of a text among them, in ascending order.

    ValueError for more ids than the pair has.
    """
    if size == 0:
        return list(range(pair.vocab_size))
    if size > pair.vocab_size:
        raise ValueError(f"head.draft_vocab_size is {size}, and the pair has {pair.vocab_size} ids: choose fewer")
    counts = Counter(token for text in texts for token in text.output_ids)
    first = {id: len(texts) * 1_000_000 for id in pair.eos_token_ids}
    ordered = sorted(range(pair.vocab_size), key=lambda id: (-first.get(id, 0) - counts[id], id))
    return sorted(ordered[:size])


def _layer_config(target: PreTrainedModel, intermediate_size: int) -> LlamaConfig:
    """A Llama layer of the target's sizes, the form that every server of EAGLE-3 heads knows."""
    config = target.config.get_text_config()
    return LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=intermediate_size or getattr(config, "intermediate_size", None) or 3 * config.hidden_size,
        num_hidden_layers=1,
        num_attention_heads=config.num_attention_heads,
        num_key_value_heads=config.num_key_value_heads,
        head_dim=getattr(config, "head_dim", None),
        rms_norm_eps=getattr(config, "rms_norm_eps", 1e-6),
        max_position_embeddings=config.max_position_embeddings,
        tie_word_embeddings=False,
    )


def _new_mtp(target: PreTrainedModel) -> MtpHead:
    """Decoder layer and last norm begin as the target's last ones; the projection is random."""
    head, decoder = MtpHead(target), decoder_of(target)
    head.block.load_state_dict(copy.deepcopy(decoder.layers[-1].state_dict()))
    head.final_layernorm.load_state_dict(decoder.norm.state_dict())
    return head.requires_grad_(True)
