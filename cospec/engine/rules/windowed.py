"""Rules that look at a window of positions: fly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cospec.engine.parameters import Parameter
from cospec.engine.record import Sampling
from cospec.engine.rules.base import Greedy, RoundView, Verdict
from cospec.engine.rules.gated import entropy
from cospec.engine.rules.ratio import at_drafts
from cospec.engine.rules.spec import ParametricRule, RuleInfo

#: Tokens that the published code and vLLM sum the entropy over.
_TOP = 3
#: The window of the paper, and the longest that vLLM takes by itself.
_WINDOW = 6


@dataclass(frozen=True, slots=True)
class Fly(ParametricRule):
    """Keeps a mismatch where the target is undecided and goes along with the draft afterwards."""

    window: int | None
    theta: float
    variant: str
    name = "fly"

    @property
    def greedy(self) -> Greedy:
        return "gate"

    def decide(self, view: RoundView) -> Verdict:
        keep = view.mismatch & self._undecided(view) & self._clean(view)
        if not view.rows.sampling.greedy:
            # A token that sampling excludes stays out; a greedy row excludes all but one.
            keep &= (at_drafts(view.rows.p, view) > 0) | view.rows.greedy[:, :, 0]
        return Verdict(view.match | keep, keep.float())

    def _undecided(self, view: RoundView) -> Tensor:
        """(B, N): the target's entropy at temperature 1 is at least theta."""
        p = view.rows.raw_p[:, : view.valid.shape[1]]
        if self.variant == "paper":
            return entropy(p) / math.log(p.shape[-1]) >= self.theta
        return entropy(p.topk(min(_TOP, p.shape[-1]), dim=-1).values) >= self.theta

    def _clean(self, view: RoundView) -> Tensor:
        """(B, N): the window fits into the block, and none of its positions is a mismatch."""
        width = view.valid.shape[1]
        places = torch.arange(1, width + 1, device=view.valid.device)
        before = torch.nn.functional.pad(view.mismatch.long().cumsum(1), (1, 0))
        window = self._window(view.max_drafts)
        num_followers = max(0, window - (self.variant == "code"))
        behind = before[:, (places + num_followers).clamp_max(width)] - before[:, places]
        return (behind == 0) & (places + window <= view.regions.num_positions[:, None])

    def _window(self, num_positions: int) -> int:
        """The window in blocks of up to ``num_positions``."""
        if self.window is not None:
            return self.window
        return min(_WINDOW, num_positions - 1) if self.variant == "vllm" else _WINDOW

    def same_as_strict(self, sampling: Sampling, num_positions: int) -> str | None:
        window = self._window(num_positions)
        if window < num_positions:
            return None
        return (
            f"rule {self.spec!r} decides exactly as strict does: no position of a block of {num_positions} has a "
            f"window of {window} behind it; draft more tokens, or set a smaller window"
        )


INFOS = (
    RuleInfo(
        name="fly",
        summary="Keeps a mismatch where the target is undecided and the next tokens match.",
        formula="keep a mismatch at j iff H(p_j) / ln V >= theta, no mismatch at j+1..j+window, j+window <= n",
        source="Li et al., ICLR 2026 (2511.22972); vLLM",
        greedy="gate: entropies are of the target's probabilities at temperature 1; a rejection writes argmax p",
        drafters="any; also one-hot. Blocks must be longer than the window, or it decides as strict does",
        make=Fly,
        parameters=(
            Parameter(
                "window",
                None,
                "positions behind a kept mismatch that must match; barred at the block's end. none: 6, with "
                "variant=vllm one less than the longest block if that is shorter",
                "paper, vLLM",
                kind="int",
                low=0,
                grid=(4, 2, 1),
            ),
            Parameter("theta", 0.3, "least entropy of the target, as the variant measures it", "paper", low=0.0),
            Parameter(
                "variant",
                "paper",
                "paper: whole entropy by ln V; vllm: nats over the 3 likeliest tokens; code: so too, one follower less",
                "the authors' paper and code differ",
                kind="choice",
                choices=("paper", "code", "vllm"),
            ),
        ),
        strict_point="fly:theta=inf",
        relaxed_point="window=0, theta=0, on the support of p",
    ),
)
