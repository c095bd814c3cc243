"""The measured cost of a draft step, on a clock that counts work instead of seconds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from conftest import pair_of, tiny_config, tiny_model

from cospec.engine import cost


@pytest.mark.parametrize("num_draft_tokens", [1, 5])
def test_a_small_drafts_step_costs_its_share_of_a_target_pass_over_a_block(
    monkeypatch: pytest.MonkeyPatch, num_draft_tokens: int
) -> None:
    """A token in a layer is a unit of work: one layer and token of a draft by seven layers and a block."""
    done = [0]
    draft, target = (tiny_model(tiny_config("llama", num_hidden_layers=num), seed=1) for num in (1, 7))
    for layer in [*draft.model.layers, *target.model.layers]:
        layer.register_forward_pre_hook(lambda _, inputs: done.append(done[-1] + inputs[0].shape[:2].numel()))
    monkeypatch.setattr(cost, "time", SimpleNamespace(perf_counter=lambda: float(done[-1]), process_time=lambda: 0.0))
    ratio = cost.measure_cost_ratio(pair_of(draft, target), 2, num_draft_tokens)
    assert ratio == pytest.approx(1 / (7 * (num_draft_tokens + 1)))
