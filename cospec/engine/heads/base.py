"""What drafting heads have in common."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from cospec.engine.masks import Masks


class DraftHead(nn.Module):
    """Continues a text from its target's hidden states, one token at a time.

    A *pair* is a hidden state at position t and the token at t + 1; `read` turns it into a *state*, from which
    `logits` predicts the token at t + 2. The state is the hidden state of the next pair, so that drafting goes on from
    the head's own states. ``tapped`` are the target's layers whose hidden states `fuse` takes, counted as in
    `HiddenStates`; ``max_context`` is how many tokens the head was made for.
    """

    tapped: tuple[int, ...]
    max_context: int
    masks: Masks

    def __init__(self, target: PreTrainedModel) -> None:
        super().__init__()
        # The target's own modules are used and neither trained, nor moved, nor saved with the head.
        self._target = (target,)

    @property
    def target(self) -> PreTrainedModel:
        return self._target[0]

    @property
    def vocab_size(self) -> int:
        """Width of `logits`, the target's padding included."""
        return int(self.target.config.get_text_config().vocab_size)

    def fuse(self, features: Tensor) -> Tensor:
        """The hidden states (..., H) of pairs from a target's ``features`` (..., F)."""
        raise NotImplementedError

    def read(self, ids: Tensor, hidden: Tensor, positions: Tensor, mask: Tensor, cache: Cache | None) -> Tensor:
        """States (R, T, H) of the pairs of ``hidden`` (R, T, H) and the ids (R, T) behind them.

        ``mask`` is in the form of `masks`; keys and values go through ``cache`` if there is one.
        """
        raise NotImplementedError

    def logits(self, states: Tensor) -> Tensor:
        """Logits (..., V) over the target's vocabulary; -inf for ids that the head never drafts."""
        drafted, ids = self.draft_logits(states), self.target_ids
        if ids is None:
            return drafted
        full = drafted.new_full((*drafted.shape[:-1], self.vocab_size), float("-inf"))
        full[..., ids] = drafted
        return full

    def draft_logits(self, states: Tensor) -> Tensor:
        """Logits (..., D) over the ids that the head drafts, `target_ids` of the target's."""
        raise NotImplementedError

    @property
    def target_ids(self) -> Tensor | None:
        """The ids (D,) that `draft_logits` are of, None where these are all of the target's."""
        return None

    def embedded(self, ids: Tensor, dtype: torch.dtype) -> Tensor:
        """The target's input embeddings of ``ids``."""
        return self.target.get_input_embeddings()(ids).to(dtype)

    def to_target(self) -> None:
        """Take the target's type and the device of its input embedding; buffers keep their own type.

        Rotary frequencies and the biases of a router are float32 whatever the weights are.
        """
        self.to(self.target.get_input_embeddings().weight.device)
        for parameter in self.parameters():
            parameter.data = parameter.data.to(self.target.dtype)


def head_masks(target: PreTrainedModel, window: int | None, dtype: torch.dtype) -> Masks:
    """Masks of a head of one layer, in the form of its target's attention; ``window`` if that layer slides."""
    eager = target.config._attn_implementation == "eager"
    return Masks(window, (), dtype if eager else None)


def decoder_of(target: PreTrainedModel) -> Any:
    """The stack of decoder layers of a causal LM; ValueError where it has none in transformers' usual form."""
    decoder = target.get_decoder()
    if not all(hasattr(decoder, name) for name in ("layers", "norm", "rotary_emb")):
        raise ValueError(
            f"a drafting head builds on the decoder layers of its target, and {type(target).__name__} has none in the "
            "usual form: use another drafter for it"
        )
    return decoder
