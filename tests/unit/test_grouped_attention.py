"""Heads that share keys are folded: the same numbers, and no copies of keys and values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers.integrations import sdpa_attention
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from cospec.engine.cached_model import CachedModel
from cospec.engine.grouped_attention import grouped_attention
from tests.conftest import tiny_config, tiny_model

SIZE = 8


def attention_inputs(heads: int, shared: int, width: int, masks: int = 1) -> tuple[nn.Module, list[Tensor]]:
    module = nn.Module()
    module.num_key_value_groups = heads // shared
    draw = torch.Generator().manual_seed(heads * 100 + width)
    query = torch.randn(3, heads, width, SIZE, generator=draw)
    key, value = (torch.randn(3, shared, 20, SIZE, generator=draw) for _ in range(2))
    mask = torch.rand(3, masks, width, 20, generator=draw) < 0.5
    mask[..., 0] = True
    return module, [query, key, value, mask]


def no_copies(hidden_states: Tensor, n_rep: int) -> Tensor:
    assert n_rep == 1, "keys or values are copied"
    return hidden_states


@pytest.mark.parametrize("width", [2, 6, 64])
@pytest.mark.parametrize(("heads", "shared"), [(4, 2), (6, 1), (14, 2)])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_folded_heads_see_what_copied_keys_show(
    heads: int, shared: int, width: int, scaling: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, inputs = attention_inputs(heads, shared, width)
    expected, _ = sdpa_attention_forward(module, *inputs, scaling=scaling)
    monkeypatch.setattr(sdpa_attention, "repeat_kv", no_copies)
    found, weights = grouped_attention(module, *inputs, scaling=scaling)
    assert weights is None
    assert found.shape == expected.shape == (3, width, heads, SIZE)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "mask"),
    [
        ({"width": 65}, True),
        ({"width": 1}, True),
        ({"width": 4, "shared": 4}, True),
        ({"width": 4, "masks": 4}, True),
        ({"width": 4}, False),
    ],
)
def test_everything_else_is_transformers_own(changes: dict[str, int], mask: bool) -> None:
    module, inputs = attention_inputs(**({"heads": 4, "shared": 2} | changes))
    inputs = inputs if mask else [*inputs[:3], None]
    expected, _ = sdpa_attention_forward(module, *inputs)
    found, _ = grouped_attention(module, *inputs)
    assert torch.equal(found, expected)


def test_an_engines_passes_copy_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = tiny_model(tiny_config("llama"), seed=3)
    cached = CachedModel(model, num_rows=2, capacity=32)
    ids = torch.arange(20).view(2, 10) + 7
    counts = torch.full((2,), 5)
    monkeypatch.setattr(sdpa_attention, "repeat_kv", no_copies)
    cached.prefill(ids, {0: 10, 1: 10}, chunk=8)
    logits = cached.append(ids[:, -5:], counts, longest=9)
    monkeypatch.undo()
    whole = model(torch.cat([ids[:, :9], ids[:, -5:]], dim=1)).logits[:, -5:]
    torch.testing.assert_close(logits, whole, rtol=1e-4, atol=1e-4)
