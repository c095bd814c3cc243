"""An arbiter with random weights whose opinions differ from block to block."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from cospec.arbiter.model import ArbiterScorer, LoraSpec, new_arbiter
from cospec.engine.record import ContextCache

#: Standard deviation of a matrix's weights times the root of its inputs; the head's last one spreads the logits.
_GAINS = {"lora_A": 1.0, "lora_B": 0.3, "reduce": 1.0, "score": 3.0}


def random_scorer(draft: PreTrainedModel, context_cache: ContextCache, r: int, sep: int) -> ArbiterScorer:
    """The arbiter as an engine takes it. Its weights are the same whatever the device."""
    arbiter = new_arbiter(draft, context_cache, LoraSpec(r=r, alpha=2 * r))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, weight in arbiter.named_parameters():
            if weight.requires_grad and weight.dim() == 2:
                gain = next(gain for key, gain in _GAINS.items() if f".{key}." in name)
                weight.copy_(torch.randn(weight.shape, generator=generator) * gain * weight.shape[1] ** -0.5)
            elif weight.requires_grad and name.endswith("bias"):
                weight.zero_()
    return ArbiterScorer(arbiter.eval(), sep)
