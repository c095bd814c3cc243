"""What rules with a gate on both models' rows share: which rows the gate looks at, and distances between rows."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from cospec.engine.parameters import Parameter
from cospec.engine.rules.base import Greedy, Rule
from cospec.engine.rules.rows import Rows

#: A threshold that is closer to its limit may be rounded to it in float32.
ROUNDING = 1e-6


class GateRows(Rule):
    """A gate on ``rows``: "raw" (the models' softmax at temperature 1) or "processed" (what tokens are drawn from).

    Processed rows are one-hot at temperature 0: there a gate on them decides as strict, or is refused, as it would
    accept everything or nothing.
    """

    rows: str
    #: Whether the gate looks at the drafter's rows too.
    gate_reads_draft: ClassVar[bool] = True

    @property
    def greedy(self) -> Greedy:
        if self.rows == "raw":
            return "gate"
        return "strict" if self.strict_on_one_hot else "refused"

    @property
    @abstractmethod
    def strict_on_one_hot(self) -> bool:
        """Whether, of one-hot rows, it accepts the target's token and no other."""

    def greedy_remedy(self) -> str:
        return "set rows=raw, or "

    @property
    def leans_on_draft(self) -> bool:
        return self.gate_reads_draft

    @property
    def needs_draft_logits(self) -> bool:
        return self.rows == "raw" and self.gate_reads_draft

    def gate_p(self, rows: Rows, num: int) -> Tensor:
        """The target's rows (B, num, V) for the gate."""
        return (rows.raw_p if self.rows == "raw" else rows.p)[:, :num]

    def gate_q(self, rows: Rows, num: int) -> Tensor:
        """The drafter's rows (B, num, V) for the gate."""
        return (rows.raw_q if self.rows == "raw" else rows.q)[:, :num]


def rows_parameter(default: str, source: str) -> Parameter:
    """The parameter ``rows`` of `GateRows`."""
    return Parameter(
        "rows",
        default,
        "what the gate looks at: raw probabilities at temperature 1, or the rows that tokens are drawn from",
        source,
        kind="choice",
        choices=("raw", "processed"),
    )


def total_variation(p: Tensor, q: Tensor) -> Tensor:
    """``sum [p - q]+`` over the last dimension, kept as one column."""
    return (p - q).clamp_min(0.0).sum(-1, keepdim=True)


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) in nats over the last dimension, kept as one column; infinite where q lacks a token of p."""
    return (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(-1, keepdim=True).clamp_min(0.0)


def js_divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence in nats, at most ln 2, over the last dimension, kept as one column."""
    middle = (p + q) / 2
    return (kl_divergence(p, middle) + kl_divergence(q, middle)) / 2


def entropy(p: Tensor) -> Tensor:
    """-sum p ln p over the last dimension."""
    return torch.special.entr(p).sum(-1)
