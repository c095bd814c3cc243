"""The arbiter's network: the draft's backbone with LoRA and a read-out head, and its two ways of scoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from cospec.arbiter.layout import Packed, context_mask, region_mask, region_rows, region_width
from cospec.engine.cache import cache_argument
from cospec.engine.cached_model import CachedModel
from cospec.engine.masks import Masks
from cospec.engine.record import ContextCache
from cospec.engine.rules import Regions
from cospec.engine.shared_copy import shared_copy


class ReadOut(nn.Module):
    """LayerNorm, Linear(H, H/4), GELU, Linear(H/4, 1) at a hidden state [D]: keep logits, kept in float32."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.normalise = nn.LayerNorm(hidden_size)
        self.reduce = nn.Linear(hidden_size, max(1, hidden_size // 4))
        self.score = nn.Linear(max(1, hidden_size // 4), 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """(..., H) to (...)."""
        hidden = self.normalise(hidden.to(self.normalise.weight.dtype))
        return self.score(nn.functional.gelu(self.reduce(hidden))).squeeze(-1)


class ArbiterNet(nn.Module):
    """What PEFT wraps: a second module tree over the draft's own weight tensors, and the head.

    Two trees, one memory: the plain draft stays free of LoRA layers, which would more than double the time of its
    steps even when switched off.
    """

    backbone: PreTrainedModel

    def __init__(self, draft: PreTrainedModel, context_cache: ContextCache) -> None:
        super().__init__()
        if context_cache not in ("own", "shared"):
            raise ValueError(f"context_cache is {context_cache!r}: choose 'own' or 'shared'")
        self.config, self.generation_config = draft.config, draft.generation_config
        self.context_cache = context_cache
        self.backbone = shared_copy(draft.base_model)
        self.head = ReadOut(draft.config.hidden_size)
        self.head.to(next(draft.parameters()).device)
        # In a tuple, so that the plain draft is not registered as a part of the arbiter.
        self._plain = (draft.base_model,)

    def forward(self, **tensors: Tensor) -> Tensor:
        """Keep logits (B, T) of a `Packed` given as its tensors; padding reads 0."""
        packed = Packed(**tensors)
        hidden = self._own(packed) if self.context_cache == "own" else self._shared(packed)
        index = packed.read_at[..., None].expand(-1, -1, hidden.shape[-1])
        return self.head(hidden.gather(1, index)).masked_fill(~packed.read_mask, 0.0)

    def _own(self, packed: Packed) -> Tensor:
        """Region hidden states (B, G, H), LoRA acting on context and regions in one pass."""
        size, regions = packed.context_ids.shape[1], packed.region_ids.shape[1]
        ids = torch.cat([packed.context_ids, packed.region_ids], dim=1)
        upper = nn.functional.pad(context_mask(packed), (0, regions))
        positions = torch.cat([_positions(packed), packed.region_positions], dim=1)
        allowed = torch.cat([upper, region_mask(packed)], dim=1)
        mask = Masks.of(self.backbone)(allowed, positions, positions)
        output = self.backbone(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
        return output.last_hidden_state[:, size:]

    def _shared(self, packed: Packed) -> Tensor:
        """Region hidden states (B, G, H) over keys and values of the context from the plain draft.

        The adapter acts on region tokens only, so the context needs neither LoRA nor gradients: one pass of the plain
        draft, then one of the arbiter over the regions, as in decoding.
        """
        if getattr(self.backbone, "gradient_checkpointing", False) and self.training:
            raise ValueError(
                "context_cache 'shared' cannot be trained with gradient checkpointing, which discards the shared "
                "cache: set gradient_checkpointing to false, or context_cache to 'own'"
            )
        plain, name = self._plain[0], cache_argument(self.backbone)
        cache, context = DynamicCache(), _positions(packed)
        keys = torch.cat([context, packed.region_positions], dim=1)
        with torch.no_grad():
            plain(
                input_ids=packed.context_ids,
                attention_mask=Masks.of(plain)(context_mask(packed), context, context),
                position_ids=context,
                use_cache=True,
                **{name: cache},
            )
        return self.backbone(
            input_ids=packed.region_ids,
            attention_mask=Masks.of(self.backbone)(region_mask(packed), packed.region_positions, keys),
            position_ids=packed.region_positions,
            use_cache=True,
            **{name: cache},
        ).last_hidden_state

    # What trainers ask of a model.
    def get_output_embeddings(self) -> None:
        return None

    def add_model_tags(self, tags: Any) -> None:
        """Tags go on the card that is written with the adapter."""

    def enable_input_require_grads(self) -> None:
        """For checkpointing that re-enters: LoRA then gets a gradient although the embeddings are frozen."""
        self.backbone.enable_input_require_grads()

    def gradient_checkpointing_enable(self, **kwargs: Any) -> None:
        self.backbone.gradient_checkpointing_enable(**kwargs)

    def gradient_checkpointing_disable(self) -> None:
        self.backbone.gradient_checkpointing_disable()


def _positions(packed: Packed) -> Tensor:
    return torch.arange(packed.context_ids.shape[1], device=packed.context_ids.device).expand_as(packed.context_ids)


@dataclass(frozen=True, slots=True)
class LoraSpec:
    """LoRA of the arbiter; the defaults are the authors' earlier code's [D]."""

    r: int = 32
    alpha: int = 64
    dropout: float = 0.0


def new_arbiter(
    draft: PreTrainedModel, context_cache: ContextCache = "shared", lora: LoraSpec | None = None
) -> PeftModel:
    """A fresh arbiter over a draft: LoRA on all its linear layers, which changes nothing yet, and a random head."""
    lora = lora or LoraSpec()
    net = ArbiterNet(draft, context_cache)
    names = {name.split(".")[-1] for name, module in net.backbone.named_modules() if isinstance(module, nn.Linear)}
    config = LoraConfig(
        r=lora.r,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=sorted(names),
        modules_to_save=["head"],
    )
    return get_peft_model(net, config)


def separator(eos_token_ids: tuple[int, ...]) -> int:
    """SEP: the first EOS of the pair; no new embedding is made."""
    if not eos_token_ids:
        raise ValueError("the pair has no EOS token and the arbiter's separator is one: set eos_token_id in its config")
    return eos_token_ids[0]


class ArbiterScorer:
    """An arbiter as the engine takes one; implements `cospec.engine.rules.BlockScorer`."""

    def __init__(self, arbiter: PeftModel, sep: int) -> None:
        net = arbiter.get_base_model()
        self.arbiter, self.net, self.sep = arbiter, net, sep
        self.context_cache: ContextCache = net.context_cache

    def bind(self, draft: CachedModel) -> BoundArbiter:
        cache = draft.cache
        cached = CachedModel(self.net.backbone, cache.num_rows, cache.capacity, cache.scratch)
        if self.context_cache == "shared":
            cached.cache = cache
        # LoRA on top of the very modules that the draft runs with, whatever kernels they have.
        modules = draft.model.base_model
        for name, layer in self.net.backbone.named_modules():
            if isinstance(layer, BaseTunerLayer):
                layer.base_layer = modules.get_submodule(name)
        self.arbiter.eval()
        return BoundArbiter(self.net, self.sep, cached)


class BoundArbiter:
    """Scores the blocks of one run; implements `cospec.engine.rules.BoundScorer`.

    ``shared``: the region is looked at over the draft's own cache. ``own``: over a cache of the arbiter's, which is fed
    the newly committed tokens in the same pass. Either way the region lies in scratch slots and leaves no trace.
    """

    def __init__(self, net: ArbiterNet, sep: int, cached: CachedModel) -> None:
        self.net, self.sep, self.cached = net, sep, cached
        self._has_cache = net.context_cache == "own"

    def admit(self, ids: Tensor, lengths: Mapping[int, int], chunk: int) -> None:
        if self._has_cache:
            self.cached.prefill(ids, lengths, chunk)

    def select_rows(self, rows: Tensor) -> None:
        if self._has_cache:
            self.cached.cache.select_rows(rows)

    def score(self, regions: Regions, rows: Tensor) -> Tensor:
        """Keep logits (R, N) of these rows (R,) of the regions."""
        cached = self.cached
        draft_ids, target_ids = regions.draft_ids[rows], regions.target_ids[rows]
        lengths = regions.lengths[rows]
        region = region_rows(draft_ids, target_ids, regions.num_positions[rows], lengths, self.sep)
        num_drafts, width = draft_ids.shape[1], region_width(draft_ids.shape[1])
        scratch = cached.cache.scratch
        ids, positions, slots = region.ids, region.positions, torch.arange(width, device=rows.device)
        slots = slots.expand(len(rows), -1)
        among = nn.functional.pad(region.among, (0, scratch - width))
        stop = int(lengths.max())
        reach = torch.arange(stop, device=rows.device)
        context = reach < (lengths[:, None] * region.real)[..., None]
        allowed = torch.cat([among, context], dim=2)
        keys = torch.cat([nn.functional.pad(positions, (0, scratch - width)), reach.expand(len(rows), -1)], dim=1)
        num_pending = 0
        if self._has_cache:
            pending = _pending(cached, regions, rows, stop)
            num_pending = pending[0].shape[1]
            ids, positions = torch.cat([pending[0], ids], 1), torch.cat([pending[1], positions], 1)
            slots, allowed = torch.cat([pending[2], slots], 1), torch.cat([pending[3], allowed], 1)
            cached.cache.lengths[rows] = lengths
        everyone = len(rows) == cached.cache.num_rows
        mask = cached.masks(allowed, positions, keys)
        hidden = cached.forward(
            cached.model, ids, positions, slots, mask, begin=0, stop=scratch + stop, rows=None if everyone else rows
        ).last_hidden_state
        first = num_pending + 1
        return self.net.head(hidden[:, first : first + num_drafts])


def _pending(cached: CachedModel, regions: Regions, rows: Tensor, stop: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Ids, positions, slots (R, P) and mask (R, P, S) of the committed tokens the arbiter's own cache still lacks."""
    scratch = cached.cache.scratch
    have, lengths = cached.cache.lengths[rows], regions.lengths[rows]
    steps = torch.arange(int((lengths - have).max()), device=rows.device)
    places = have[:, None] + steps
    real = places < lengths[:, None]
    ids = regions.ids[rows].gather(1, places.clamp_max(regions.ids.shape[1] - 1))
    # Padding is written to the buffer's last slot, which no real token uses, and sees what the last real token sees.
    positions = torch.where(real, places, lengths[:, None] - 1)
    slots = scratch + torch.where(real, places, cached.cache.capacity - 1)
    context = torch.arange(stop, device=rows.device) <= positions[:, :, None]
    hidden = torch.zeros(*context.shape[:2], scratch, dtype=torch.bool, device=rows.device)
    return ids, positions, slots, torch.cat([hidden, context], dim=2)
