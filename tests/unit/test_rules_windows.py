"""Rules that look at more than one position, against plain loops over blocks of every kind: fly, trt_relaxed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
import torch
from rule_views import view_of
from torch import Tensor

from cospec.engine.record import Sampling
from cospec.engine.rules import rule_named

SIZE, WIDTH = 6, 4


def rows(num: int, width: int, seed: int) -> Tensor:
    """Rows (num, width, SIZE), some nearly certain and some undecided."""
    generator = torch.Generator().manual_seed(seed)
    scale = 4 * torch.rand(num, width, 1, generator=generator, dtype=torch.float64)
    return (scale * torch.randn(num, width, SIZE, generator=generator, dtype=torch.float64)).softmax(-1)


def undecided(p: Sequence[float], theta: float, variant: str) -> bool:
    """The paper takes the whole entropy by ln V, the published code and vLLM nats over the three likeliest tokens."""
    if variant == "paper":
        return -sum(x * math.log(x) for x in p) / math.log(len(p)) >= theta
    return -sum(x * math.log(x) for x in sorted(p)[-3:]) >= theta


def fly_accepts(
    p: Sequence[Sequence[float]], likely: Sequence[bool], match: Sequence[bool], window: int, theta: float, variant: str
) -> list[bool]:
    """Which of a block's positions stay, had all before them stayed; ``likely``: p(x) > 0."""
    found = []
    for j, same in enumerate(match):
        followers = match[j + 1 : j + 1 + (window - 1 if variant == "code" else window)]
        kept = undecided(p[j], theta, variant) and j + 1 + window <= len(match) and all(followers)
        found.append(same or (kept and likely[j]))
    return found


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(1.0), Sampling(1.0, top_k=3)], ids=["greedy", "whole", "cut"]
)
@pytest.mark.parametrize("variant", ["paper", "code", "vllm"])
def test_fly_keeps_the_mismatches_of_its_definition(variant: str, sampling: Sampling) -> None:
    """Every pattern of matches, every length, windows of none to more than the block."""
    patterns = itertools.product((True, False), repeat=WIDTH)
    blocks = [(pattern, length) for pattern in patterns for length in range(1, WIDTH + 1)] * 4
    p, q = (rows(len(blocks), WIDTH, seed) for seed in (1, 2))
    ids = torch.randint(SIZE, (len(blocks), WIDTH), generator=torch.Generator().manual_seed(3))
    match = torch.tensor([pattern for pattern, _ in blocks])
    view = view_of(
        p,
        q,
        ids,
        sampling=sampling,
        target_ids=torch.where(match, ids, (ids + 1) % SIZE),
        num_positions=[length for _, length in blocks],
    )
    likely = (view.rows.p.gather(2, ids[..., None]).squeeze(2) > 0) | sampling.greedy
    for window, theta in itertools.product((0, 1, 2, 3, 5), (0.0, 0.45, 0.75)):
        verdict = rule_named(f"fly:variant={variant},window={window},theta={theta}").decide(view)
        kept = 0
        for number, (pattern, length) in enumerate(blocks):
            expected = fly_accepts(
                p[number].tolist(), likely[number].tolist(), pattern[:length], window, theta, variant
            )
            assert verdict.accept[number, :length].tolist() == expected, (window, theta, number)
            kept += sum(expected) - sum(pattern[:length])
        assert kept == 0 if window >= WIDTH else theta > 0 or kept > 0


def test_fly_sets_its_variants_apart() -> None:
    """The loop above would not tell them apart if they decided alike."""
    p, q = (rows(200, WIDTH, seed) for seed in (1, 2))
    ids = torch.zeros(200, WIDTH, dtype=torch.long)
    view = view_of(p, q, ids, target_ids=torch.randint(2, (200, WIDTH), generator=torch.Generator().manual_seed(4)))
    accepts = [
        rule_named(f"fly:variant={name},window=2,theta=0.6").decide(view).accept for name in ("paper", "code", "vllm")
    ]
    assert all(not torch.equal(one, other) for one, other in itertools.combinations(accepts, 2))


@pytest.mark.parametrize("max_drafts", [WIDTH, WIDTH + 1, WIDTH + 3])
def test_vllms_window_is_that_of_whole_blocks_also_in_shorter_ones(max_drafts: int) -> None:
    """A batch near its texts' end is narrower than the engine's K."""
    p, q = (rows(200, WIDTH, seed) for seed in (1, 2))
    ids = torch.zeros(200, WIDTH, dtype=torch.long)
    target_ids = torch.randint(2, (200, WIDTH), generator=torch.Generator().manual_seed(4))
    view = view_of(p, q, ids, target_ids=target_ids, max_drafts=max_drafts)
    found, same = (
        rule_named(f"fly:variant=vllm,theta=0.1{window}").decide(view).accept
        for window in ("", f",window={min(6, max_drafts - 1)}")
    )
    assert torch.equal(found, same)
    # A window as long as the block, or longer, leaves no mismatch.
    assert torch.equal(found, view.match) == (max_drafts > WIDTH)


BEGIN, END = 4, 5


@pytest.mark.parametrize("context", [[0], [BEGIN, 1], [BEGIN, END], [END, BEGIN, 0], [BEGIN, 0, END, 1], [END]])
def test_a_phase_may_begin_and_end_inside_a_block(context: list[int]) -> None:
    """All blocks of begin, end and another token: a token that begins a phase is not in it, one that ends it is."""
    blocks = torch.tensor(list(itertools.product((BEGIN, END, 1), repeat=WIDTH)))
    num = len(blocks)
    # Token 0 is the likeliest, so that only a phase lets any of the drafts through.
    p = torch.tensor([0.5, 0.1, 0.1, 0.1, 0.1, 0.1]).expand(num, WIDTH, -1)
    view = view_of(p, p, blocks, context=torch.tensor([context]).expand(num, -1))
    verdict = rule_named(f"trt_relaxed:delta=1,k={SIZE},begin={BEGIN},end={END}").decide(view)
    for block, accept in zip(blocks.tolist(), verdict.accept.tolist(), strict=True):
        text, expected = list(context), []
        for token in block:
            marks = [each for each in text if each in (BEGIN, END)]
            expected.append(bool(marks) and marks[-1] == BEGIN)
            text.append(token)
        assert accept == expected
