"""Rules that accept or reject without a draw and have no residual: typical, top_k, trt_relaxed, aasd.

What they write at a rejection is the target's likeliest token; none has a limit in which the text has the target's law.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from cospec.engine.parameters import Parameter
from cospec.engine.rules.base import Greedy, RoundView, Verdict
from cospec.engine.rules.gated import (
    ROUNDING,
    GateRows,
    entropy,
    rows_parameter,
)
from cospec.engine.rules.ratio import at_drafts
from cospec.engine.rules.spec import ParametricRule, RuleInfo
from cospec.pair import Pair


class HardGate(ParametricRule):
    """Accepts the target's likeliest token and what `passes` names; writes that token at a rejection."""

    has_own_bonus = True
    own_bonus_reads_draft = False

    @abstractmethod
    def passes(self, view: RoundView) -> Tensor:
        """(B, N): which positions would be accepted, whatever their token's rank."""

    def decide(self, view: RoundView) -> Verdict:
        best = view.rows.logits.argmax(-1)
        at_best = best[:, : view.valid.shape[1]]
        accept = (self.passes(view) | (view.regions.draft_ids == at_best)) & view.valid
        place = view.num_accepted(accept).clamp_max(best.shape[1] - 1)
        return Verdict(accept, accept.float(), best.gather(1, place[:, None]).squeeze(1))


@dataclass(frozen=True, slots=True)
class Typical(HardGate):
    """Accept what is likely, or not too unlikely where the target is undecided."""

    epsilon: float
    delta: float
    name = "typical"

    @property
    def greedy(self) -> Greedy:
        return "strict"

    def passes(self, view: RoundView) -> Tensor:
        p = view.rows.p[:, : view.valid.shape[1]]
        return at_drafts(p, view) > (self.delta * (-entropy(p)).exp()).clamp_max(self.epsilon)


@dataclass(frozen=True, slots=True)
class TopK(HardGate):
    """Accept the k likeliest tokens of the target."""

    k: int
    name = "top_k"

    @property
    def greedy(self) -> Greedy:
        return "gate"

    def passes(self, view: RoundView) -> Tensor:
        return _among_top(view, self.k)


@dataclass(frozen=True, slots=True)
class TrtRelaxed(HardGate):
    """TensorRT-LLM's relaxed acceptance: among the likeliest and close to the best, inside a phase of thinking."""

    delta: float
    k: int
    begin: int | None
    end: int | None
    name = "trt_relaxed"
    default_bonus = "rule"

    def __post_init__(self) -> None:
        if (self.begin is None) != (self.end is None):
            raise ValueError(f"rule {self.name!r}: begin and end are the token ids around a phase: give both or none")
        if self.begin is not None and self.begin == self.end:
            raise ValueError(f"rule {self.name!r}: begin and end are both {self.begin}: a phase needs two token ids")

    def load(self, pair: Pair) -> None:
        """ValueError for token ids that the pair does not have."""
        for name, token in (("begin", self.begin), ("end", self.end)):
            if token is not None and token >= pair.vocab_size:
                raise ValueError(
                    f"rule {self.spec!r}: {name}={token} is none of the pair's {pair.vocab_size} token ids"
                )

    @property
    def greedy(self) -> Greedy:
        return "gate"

    def passes(self, view: RoundView) -> Tensor:
        if self.k == 1 or self.delta == 0.0:
            # The likeliest token alone, of which there may be two: bfloat16 logits are often tied.
            return view.valid & False
        p = view.rows.raw_p[:, : view.valid.shape[1]]
        close = at_drafts(p, view) >= p.amax(-1) - self.delta
        return self._in_phase(view) & _among_top(view, self.k) & close

    def _in_phase(self, view: RoundView) -> Tensor:
        """(B, N): whether the last phase token in front of a position begins a phase."""
        regions = view.regions
        if self.begin is None or self.end is None:
            return torch.ones_like(view.valid)
        known = torch.arange(regions.ids.shape[1], device=regions.ids.device) < regions.lengths[:, None]
        committed = regions.ids.where(known, -1)
        # One column per position: the committed text, then the drafts in front of it.
        begun, ended = (
            torch.cat([_last(committed == token), _since(regions.draft_ids == token, regions.ids.shape[1])], 1)
            .cummax(1)
            .values[:, : view.valid.shape[1]]
            for token in (self.begin, self.end)
        )
        return begun > ended


@dataclass(frozen=True, slots=True)
class Aasd(GateRows, HardGate):
    """Accept above a threshold that falls with the target's entropy."""

    alpha: float
    beta: float
    rows: str
    name = "aasd"
    gate_reads_draft = False

    @property
    def strict_on_one_hot(self) -> bool:
        return self.beta > ROUNDING

    def passes(self, view: RoundView) -> Tensor:
        p = self.gate_p(view.rows, view.valid.shape[1])
        return at_drafts(p, view) >= torch.minimum(self.beta - self.alpha * entropy(p), p.amax(-1))


def _among_top(view: RoundView, k: int) -> Tensor:
    """(B, N): the draft's token is at least as likely as the k-th likeliest, which no temperature changes."""
    logits = view.rows.logits[:, : view.valid.shape[1]]
    return at_drafts(logits, view) >= logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1]


def _last(flags: Tensor) -> Tensor:
    """(B, 1): the last column that is set, -1 if none is."""
    places = torch.arange(flags.shape[1], device=flags.device)
    return places.where(flags, -1).amax(1, keepdim=True)


def _since(flags: Tensor, start: int) -> Tensor:
    """(B, N): each set column's number, counted from ``start``, else -1."""
    places = start + torch.arange(flags.shape[1], device=flags.device)
    return places.where(flags, -1)


_NOT_STRICT = "; a rejection writes the target's likeliest token"


INFOS = (
    RuleInfo(
        name="typical",
        summary="Accepts what is likely, or not too unlikely where the target is undecided" + _NOT_STRICT + ".",
        formula="accept iff p(x) > min(epsilon, delta exp(-H(p))) or x = argmax p, else argmax p",
        source="Cai et al. 2024 (2401.10774), Medusa; vLLM's sampler",
        greedy="strict: p is one-hot, so that only its argmax passes",
        drafters="any; q plays no part",
        make=Typical,
        parameters=(
            Parameter(
                "epsilon",
                0.09,
                "enough in any case; delta is usually its square root",
                "Medusa, vLLM",
                low=0.0,
                high=1.0,
                grid=(0.3, 0.09, 0.03),
            ),
            Parameter(
                "delta", 0.3, "factor of exp(-H(p)), the likelihood of a typical token", "Medusa", low=0.0, high=1.0
            ),
        ),
        relaxed_point="epsilon=0 or delta=0, on the support of p",
    ),
    RuleInfo(
        name="top_k",
        summary="Accepts the target's k likeliest tokens" + _NOT_STRICT + ".",
        formula="accept iff p(x) >= the k-th largest p, else argmax p",
        source="CACTUS' code (baseline)",
        greedy="gate: ranks are the same at every temperature",
        drafters="any; q plays no part",
        make=TopK,
        parameters=(
            Parameter("k", 2, "how many tokens pass", "ours: the source names none", kind="int", low=1, grid=(2, 3, 5)),
        ),
        relaxed_point="k >= the vocabulary",
    ),
    RuleInfo(
        name="trt_relaxed",
        summary="Accepts tokens close to the target's best while it thinks" + _NOT_STRICT + ".",
        formula="accept iff x is among the k likeliest and p(x) >= max p - delta (outside a phase, and with k=1 or "
        "delta=0: x = argmax p)",
        source="TensorRT-LLM, relaxed acceptance of DeepSeek-R1 MTP",
        greedy="gate: probabilities are at temperature 1 anyway",
        drafters="any; q plays no part",
        make=TrtRelaxed,
        parameters=(
            Parameter(
                "delta",
                0.6,
                "how far below the best a probability may be",
                "TensorRT-LLM's docs",
                low=0.0,
                high=1.0,
                grid=(0.1, 0.3, 0.6),
            ),
            Parameter("k", 10, "how many tokens may pass", "TensorRT-LLM's docs", kind="int", low=1),
            Parameter(
                "begin", None, "token id that begins a phase; none: the whole text is one", "ours", kind="int", low=0
            ),
            Parameter("end", None, "token id that ends a phase", "ours", kind="int", low=0),
        ),
        relaxed_point="k >= the vocabulary and delta=1",
    ),
    RuleInfo(
        name="aasd",
        summary="Accepts above a threshold that falls with the target's entropy" + _NOT_STRICT + ".",
        formula="accept iff p(x) >= min(beta - alpha H(p), max p), else argmax p",
        source="Wang et al., EMNLP 2025 (2505.13204); formula after third-party code",
        greedy="gate: probabilities at temperature 1; rows=processed: strict with beta > 0, otherwise refused",
        drafters="any; q plays no part",
        make=Aasd,
        parameters=(
            Parameter(
                "alpha",
                0.1,
                "how much a nat of entropy lowers the threshold",
                "paper, for Llama 3",
                low=0.0,
                open_high=True,
                grid=(0.05, 0.1, 0.2),
            ),
            Parameter(
                "beta",
                0.1,
                "threshold where the target is certain",
                "paper, for Llama 3",
                open_low=True,
                open_high=True,
            ),
            rows_parameter("raw", "ours: the source does not say"),
        ),
        relaxed_point="beta to -infinity",
    ),
)
