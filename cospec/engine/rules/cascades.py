"""Speculative cascades (Narasimhan et al., ICLR 2025): defer to the drafter by row (chow, diff, opt) or by token."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from cospec.engine.parameters import Parameter
from cospec.engine.rules.fixed import FixedRule
from cospec.engine.rules.gated import ROUNDING, GateRows, rows_parameter, total_variation
from cospec.engine.rules.rows import Rows
from cospec.engine.rules.spec import RuleInfo


class RowCascade(GateRows, FixedRule):
    """pi is p where the row is deferred to the target, else q."""

    alpha: float

    @property
    def strict_on_one_hot(self) -> bool:
        return self.alpha < -ROUNDING

    @abstractmethod
    def uses_target(self, rows: Rows, num: int) -> Tensor:
        """(B, num, 1): where the target's row is taken."""

    def law(self, rows: Rows, num: int) -> Tensor:
        return torch.where(self.uses_target(rows, num), rows.p[:, :num], rows.q[:, :num])


class TokenCascade(GateRows, FixedRule):
    """pi is q on the acceptable tokens, and p shares out what q has on the others."""

    alpha: float
    gate_reads_draft = False

    @property
    def strict_on_one_hot(self) -> bool:
        return self.alpha < 1.0

    @abstractmethod
    def acceptable(self, rows: Rows, num: int) -> Tensor:
        """(B, num, V): the set A."""

    def law(self, rows: Rows, num: int) -> Tensor:
        accepted, q = self.acceptable(rows, num), rows.q[:, :num]
        return q.where(accepted, 0.0) + self._shared_out(accepted, rows, num)

    def excess(self, law: Tensor, rows: Rows, num: int) -> Tensor:
        # pi - q is what p shares out on A: as a difference it would drown in q where little is shared out.
        accepted, q = self.acceptable(rows, num), rows.q[:, :num]
        return (self._shared_out(accepted, rows, num) - q.masked_fill(accepted, 0.0)).clamp_min(0.0)

    def _shared_out(self, accepted: Tensor, rows: Rows, num: int) -> Tensor:
        share = rows.q[:, :num].masked_fill(accepted, 0.0).sum(-1, keepdim=True)
        # Exactly 1 where A is empty, so that pi is p to the last bit.
        return torch.where(accepted.any(-1, keepdim=True), share, 1.0) * rows.p[:, :num]


@dataclass(frozen=True, slots=True)
class Chow(RowCascade):
    """Defer where the drafter is not confident."""

    alpha: float
    rows: str
    name = "cascade_chow"

    def uses_target(self, rows: Rows, num: int) -> Tensor:
        return _top(self.gate_q(rows, num)) < 1.0 - self.alpha


@dataclass(frozen=True, slots=True)
class Diff(RowCascade):
    """Defer where the drafter is less confident than the target."""

    alpha: float
    rows: str
    name = "cascade_diff"

    def uses_target(self, rows: Rows, num: int) -> Tensor:
        return _top(self.gate_q(rows, num)) < _top(self.gate_p(rows, num)) - self.alpha


@dataclass(frozen=True, slots=True)
class Opt(RowCascade):
    """As Diff, the margin weighed by how often the target would reject."""

    alpha: float
    rows: str
    name = "cascade_opt"

    def uses_target(self, rows: Rows, num: int) -> Tensor:
        gate_p, gate_q = self.gate_p(rows, num), self.gate_q(rows, num)
        # Of the rows in use; those of a greedy request are one-hot and say only whether the tokens differ.
        distance = total_variation(rows.p[:, :num], rows.q[:, :num])
        distance = torch.where(rows.greedy, total_variation(gate_p, gate_q), distance)
        return _top(gate_q) < _top(gate_p) - self.alpha * distance


@dataclass(frozen=True, slots=True)
class TokenV1(TokenCascade):
    """A: the drafter finds the token nearly as likely as the target its best."""

    alpha: float
    rows: str
    name = "cascade_v1"
    gate_reads_draft = True

    @property
    def strict_on_one_hot(self) -> bool:
        return self.alpha < -ROUNDING

    def acceptable(self, rows: Rows, num: int) -> Tensor:
        return self.gate_q(rows, num) >= _top(self.gate_p(rows, num)) - self.alpha


@dataclass(frozen=True, slots=True)
class TokenV2(TokenCascade):
    """A: the target finds the token nearly as likely as its best, by difference."""

    alpha: float
    rows: str
    name = "cascade_v2"

    @property
    def strict_on_one_hot(self) -> bool:
        return self.alpha < 1.0 - ROUNDING

    def acceptable(self, rows: Rows, num: int) -> Tensor:
        gate_p = self.gate_p(rows, num)
        return gate_p >= _top(gate_p) - self.alpha


@dataclass(frozen=True, slots=True)
class TokenV3(TokenCascade):
    """A: the target finds the token nearly as likely as its best, by ratio."""

    alpha: float
    rows: str
    name = "cascade_v3"

    def acceptable(self, rows: Rows, num: int) -> Tensor:
        gate_p = self.gate_p(rows, num)
        return gate_p >= (1.0 - self.alpha) * _top(gate_p)


def _top(rows: Tensor) -> Tensor:
    return rows.amax(-1, keepdim=True)


_SOURCE = "Narasimhan et al., ICLR 2025 (2405.19261)"
_RAW = rows_parameter("raw", "the authors' notebook; the survey's code takes processed rows")
_PROCESSED = "; rows=processed: strict with {}, otherwise refused"
_ROW_GREEDY = "gate: the row decides between argmax q and argmax p" + _PROCESSED.format("alpha < 0")
_TOKEN_GREEDY = "gate: the draft's token is accepted iff it is in A or is argmax p" + _PROCESSED
_ROW_DRAFTERS = "drafters with a distribution; with one-hot q the gate says next to nothing"
_UNNAMED = "ours: the source names none"


def _alpha(default: float, meaning: str, source: str, high: float, grid: tuple[float, ...]) -> Parameter:
    return Parameter("alpha", default, meaning, source, high=high, grid=grid)


def _row(name: str, make: type[RowCascade], gate: str, equation: str, summary: str, alpha: Parameter) -> RuleInfo:
    return RuleInfo(
        name=name,
        summary=summary,
        formula=f"pi = p where {gate}, else q",
        source=f"{_SOURCE}, {equation}",
        greedy=_ROW_GREEDY,
        drafters=_ROW_DRAFTERS,
        make=make,
        parameters=(alpha, _RAW),
        strict_point=f"{name}:alpha=-inf",
        relaxed_point="alpha=inf" if alpha.high == math.inf else "alpha=1",
    )


def _token(name: str, make: type[TokenCascade], gate: str, equation: str, summary: str, alpha: Parameter) -> RuleInfo:
    return RuleInfo(
        name=name,
        summary=summary,
        formula=f"pi(y) = q(y) [y in A] + q(not A) p(y), A = {{y: {gate}}}",
        source=f"{_SOURCE}, {equation}",
        greedy=_TOKEN_GREEDY.format("alpha < 1" if make is not TokenV1 else "alpha < 0"),
        drafters="any" if make is not TokenV1 else _ROW_DRAFTERS,
        make=make,
        parameters=(alpha, _RAW),
        strict_point=f"{name}:alpha=-inf",
        relaxed_point="alpha=1",
    )


INFOS = (
    _row(
        "cascade_chow",
        Chow,
        "max q < 1 - alpha",
        "eq. 2",
        "The drafter's row wherever the drafter is confident.",
        _alpha(0.3, "how far below 1 the drafter's best may be", _UNNAMED, 1.0, (0.1, 0.3, 0.6)),
    ),
    _row(
        "cascade_diff",
        Diff,
        "max q < max p - alpha",
        "eq. 5",
        "The drafter's row wherever it is about as confident as the target.",
        _alpha(0.0, "how far the drafter's best may be below the target's", _UNNAMED, 1.0, (-0.2, 0.0, 0.2)),
    ),
    _row(
        "cascade_opt",
        Opt,
        "max q < max p - alpha TV(p, q)",
        "eq. 10",
        "As cascade_diff, the margin weighed by the distance of the rows.",
        _alpha(0.0, "weight of the distance; larger defers more to the drafter", "survey", math.inf, (-0.1, 0.0, 0.05)),
    ),
    _token(
        "cascade_v1",
        TokenV1,
        "q(y) >= max p - alpha",
        "eq. 13",
        "The drafter's share of the tokens it finds about as likely as the target its best.",
        _alpha(0.2, "margin below the target's best", _UNNAMED, 1.0, (0.0, 0.2, 0.4)),
    ),
    _token(
        "cascade_v2",
        TokenV2,
        "p(y) >= max p - alpha",
        "eq. 14",
        "The drafter's share of the target's likeliest tokens, by difference.",
        _alpha(0.2, "margin below the target's best", _UNNAMED, 1.0, (0.0, 0.2, 0.4)),
    ),
    _token(
        "cascade_v3",
        TokenV3,
        "p(y) >= (1 - alpha) max p",
        "eq. 15",
        "The drafter's share of the target's likeliest tokens, by ratio; alpha = 0 is not strict, it sharpens.",
        _alpha(0.35, "relative margin below the target's best", "survey's grid (2607.08690)", 1.0, (0.0, 0.35, 0.8)),
    ),
)
