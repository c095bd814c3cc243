"""What tests of the engine share: a rule that keeps by a coin, decoding, and what holds of every rollout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from cospec.engine.decode import Engine
from cospec.engine.record import Rollout
from cospec.engine.request import Request
from cospec.engine.rules import RoundView, Rule, Verdict, rule_named
from cospec.pair import Pair


def coin(start: int, position: int) -> bool:
    """An arbitrary rule: keeps about two mismatches in three."""
    return (start * 7919 + position * 104729) % 1009 % 3 > 0


class CoinRule(Rule):
    """`coin` as a rule of the engine."""

    name, default_bonus = "coin", "arbitrated"

    def decide(self, view: RoundView) -> Verdict:
        starts, (num_rows, width) = view.regions.lengths.tolist(), view.match.shape
        kept = [[coin(starts[row], i) for i in range(width)] for row in range(num_rows)]
        keep = view.mismatch & torch.tensor(kept, dtype=torch.bool).reshape(num_rows, width)
        return Verdict(view.match | keep, keep.float())


def decode(pair: Pair, rule: Rule | str, prompts: Sequence[Sequence[int]], **settings: Any) -> list[Rollout]:
    rule = rule_named(rule) if isinstance(rule, str) else rule
    return Engine(pair, rule, **settings).rollouts([Request(i, prompt) for i, prompt in enumerate(prompts)])


def outputs(rollouts: Sequence[Rollout]) -> list[list[int]]:
    return [list(rollout.output_ids) for rollout in rollouts]


def assert_counters(rollout: Rollout) -> None:
    """What holds for every rollout, whatever the rule."""
    written = [len(block.emitted_ids) - block.accepted_len for block in rollout.blocks]
    assert all(number in (0, 1) for number in written)
    assert len(rollout.output_ids) == rollout.num_accepted + sum(written)
    assert [token for block in rollout.blocks for token in block.emitted_ids] == list(rollout.output_ids)
    start = len(rollout.prompt_ids)
    for block in rollout.blocks:
        assert block.start == start
        assert len(block.draft_ids) == len(block.target_ids)
        assert 1 <= len(block.emitted_ids) <= rollout.settings.num_draft_tokens + 1
        assert block.emitted_ids[: block.accepted_len] == block.draft_ids[: block.accepted_len]
        assert all(d.position <= block.accepted_len and d.draft_id != d.target_id for d in block.decisions)
        assert all(d.kept == (d.position < block.accepted_len) for d in block.decisions)
        start += len(block.emitted_ids)


def trace(rollout: Rollout) -> dict[str, Any]:
    """All of a rollout that neither its time nor the last bits of a batched matrix product can change."""
    blocks = [
        (
            block.start,
            block.draft_ids,
            block.target_ids,
            block.accepted_len,
            block.emitted_ids,
            [(decision.position, decision.kept) for decision in block.decisions],
        )
        for block in rollout.blocks
    ]
    names = ("id", "prompt_ids", "output_ids", "text", "finish_reason", "stop", "settings")
    return {name: getattr(rollout, name) for name in names} | {"blocks": blocks}
