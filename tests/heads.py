"""What tests of drafting heads share: random heads for a target, and drafting by full recomputation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from conftest import CONTEXT, VOCAB_SIZE, tiny_config, tiny_model
from torch import Tensor, nn
from transformers import LlamaConfig, Qwen3Config

from cospec.engine.drafters import Drafter
from cospec.engine.drafters.eagle3 import eagle3_drafter
from cospec.engine.drafters.mtp import mtp_drafter
from cospec.engine.heads import DraftHead
from cospec.engine.heads.eagle3 import Eagle3Config, Eagle3Head, Variants
from cospec.engine.heads.eagle3_files import save_eagle3
from cospec.engine.heads.files import head_pins
from cospec.engine.heads.mtp import MtpHead
from cospec.engine.heads.mtp_files import save_mtp
from cospec.engine.hidden import HiddenStates, Taps
from cospec.pair import Pair


def eagle3_head(
    pair: Pair,
    *,
    kind: str = "llama",
    draft_vocab_size: int = 40,
    own_embedding: bool = False,
    tapped: tuple[int, ...] = (),
    rope: Mapping[str, Any] | None = None,
    **variants: bool,
) -> Eagle3Head:
    """A random head that drafts some of the ids: those from the target's last one down."""
    config = pair.target.config
    layer = (Qwen3Config if kind == "qwen3" else LlamaConfig)(
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=CONTEXT,
        rope_parameters=dict(rope) if rope else None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        tapped = tapped or (0, 1, config.num_hidden_layers)
        form = Eagle3Config(
            layer, draft_vocab_size, config.hidden_size, tapped, Variants(**variants), own_embedding=own_embedding
        )
        head = Eagle3Head(form, pair.target)
        randomise(head)
    head.d2t.fill_(config.vocab_size - draft_vocab_size)
    return head.requires_grad_(False).eval()


def mtp_head(pair: Pair) -> MtpHead:
    """A random MTP layer."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(12)
        head = MtpHead(pair.target)
        randomise(head)
    return head.requires_grad_(False).eval()


def randomise(head: DraftHead) -> None:
    """Weights large enough that drafts do not stand still; norms near one, so that none is lost unnoticed."""
    for weight in head.parameters():
        torch.nn.init.normal_(weight, *((0.0, 0.3) if weight.dim() > 1 else (1.0, 0.2)))


def saved_drafter(kind: str, pair: Pair, directory: Path) -> Drafter:
    """A random head of this kind, written and named as a drafter."""
    if kind == "eagle3":
        save_eagle3(eagle3_head(pair), directory, head_pins(pair))
        return eagle3_drafter(str(directory))
    save_mtp(mtp_head(pair), directory, head_pins(pair))
    return mtp_drafter(str(directory))


@torch.no_grad()
def features_of(head: DraftHead, ids: Sequence[int]) -> Tensor:
    """Hidden states (1, T, H) of all tokens of a text, by one plain pass of the target."""
    with Taps(head.target, head.tapped).open() as found:
        head.target(input_ids=torch.tensor([list(ids)]), use_cache=False)
    return head.fuse(HiddenStates(found).of(head.tapped))


@torch.no_grad()
def logits_again(head: DraftHead, text: Sequence[int], drafts: Sequence[int], vocab_size: int = VOCAB_SIZE) -> Tensor:
    """Logits (N + 1, V) before each of N drafts behind a text and behind them; every step a plain pass over all."""
    ids, hidden = list(text[1:]), features_of(head, text)[:, :-1]
    rows: list[Tensor] = []
    for draft in [*drafts, 0]:
        states = plain_states(head, ids, hidden)
        rows.append(head.logits(states[0, -1])[:vocab_size])
        ids, hidden = [*ids, draft], torch.cat([hidden, states[:, -1:]], dim=1)
    return torch.stack(rows)


def drafted_again(head: DraftHead, text: Sequence[int], num: int) -> list[int]:
    """Greedy drafts behind a text: no cache, no batch."""
    drafts: list[int] = []
    while len(drafts) < num:
        drafts.append(int(logits_again(head, text, drafts)[-1].argmax()))
    return drafts


def plain_states(head: DraftHead, ids: Sequence[int], hidden: Tensor) -> Tensor:
    """States (1, T, H) of pairs, each seeing those before it."""
    line = torch.arange(len(ids))
    mask = head.masks(line[None, :, None] >= line, line[None], line[None])
    assert not isinstance(mask, dict)
    return head.read(torch.tensor([list(ids)]), hidden, line[None], mask, None)


def memoryless_target() -> nn.Module:
    """Its layers add nothing: the next token depends on the last one alone."""
    target = tiny_model(tiny_config("llama"), seed=4)
    for layer in target.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    return target
