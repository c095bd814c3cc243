"""From logits to processed rows, and every random draw of the engine.

A draw depends on (seed, request, round, position, stream) alone, so a request's text depends on neither its batch nor
its neighbours, and rules can be compared with one another draw by draw (ours, method section 1).
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import Protocol

import torch
from torch import Tensor

from cospec.engine.record import Sampling

_ALL_BITS = (1 << 64) - 1


class Stream(IntEnum):
    """Separate streams, so that one rule's use of a draw never shifts another's."""

    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3
    ARBITER = 4


class Draws(Protocol):
    """The engine's only source of randomness; a test can enumerate it."""

    def categorical(self, probs: Tensor, keys: Tensor, stream: Stream, position: int | Tensor) -> Tensor:
        """One id per row of ``probs`` (B, V), given the rows' round keys (B,) and one position or each row's (B,)."""
        ...

    def bernoulli(self, probs: Tensor, keys: Tensor, stream: Stream, position: int) -> Tensor:
        """True with probability ``probs`` (B,), per row."""
        ...


class CounterDraws:
    """Counter-based draws: a hash of the key, the stream and the position gives the uniform number."""

    def categorical(self, probs: Tensor, keys: Tensor, stream: Stream, position: int | Tensor) -> Tensor:
        cumulative = probs.cumsum(-1, dtype=torch.float64)
        total = cumulative[:, -1:]
        # Below the whole mass, which rounding might reach.
        points = torch.minimum(uniform(keys, stream, position)[:, None] * total, total.nextafter(total.new_zeros(())))
        # right=True skips ids of probability 0, also at a draw of exactly 0.
        ids = torch.searchsorted(cumulative, points, right=True).squeeze(-1)
        return ids.clamp_max(probs.shape[-1] - 1)

    def bernoulli(self, probs: Tensor, keys: Tensor, stream: Stream, position: int) -> Tensor:
        return uniform(keys, stream, position) < probs.double()


def uniform(keys: Tensor, stream: Stream, position: int | Tensor) -> Tensor:
    """Uniform numbers in [0, 1) in float64, one per key (B,), at one position or each key's (B,)."""
    bits = mix(mix(keys + int(stream)) + position)
    return ((bits >> 11) & ((1 << 53) - 1)).double() * 2.0**-53


def request_key(seed: int, request: str | int) -> int:
    """A signed 64-bit key of a request, the same on every machine."""
    digest = hashlib.blake2b(f"{seed}\0{request!r}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def round_key(key: int, number: int) -> int:
    """The key of a request's round: splitmix64's finaliser once more, on the host, where the next round begins."""
    x = (key + number * 0x632BE5AB + 0x9E3779B97F4A7C15) & _ALL_BITS
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _ALL_BITS
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _ALL_BITS
    return _signed(x ^ (x >> 31))


def mix(x: Tensor) -> Tensor:
    """The splitmix64 finaliser (Steele et al. 2014) on int64 tensors, whose arithmetic wraps."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shift_right(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift_right(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift_right(x, 31)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _shift_right(x: Tensor, bits: int) -> Tensor:
    # torch shifts int64 arithmetically; masking the copied sign bits makes it a logical shift.
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def processed_rows(logits: Tensor, sampling: Sampling) -> Tensor:
    """Temperature, top-k, top-p, min-p in this order, renormalised: logits (..., V) to probabilities (..., V), float32.

    Greedy rows are one-hot at the argmax. A token tied with the k-th largest logit stays. min-p (Nguyen et al. 2024)
    drops ids below its share of the likeliest one's probability.
    """
    logits = logits.float()
    if sampling.greedy:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    logits = logits / sampling.temperature
    if 0 < sampling.top_k < logits.shape[-1]:
        kth = logits.topk(sampling.top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < kth, float("-inf"))
    if sampling.top_p < 1.0 and logits.device.type == "cpu" and logits.shape[-1] > _WIDE:
        rows = logits.reshape(-1, logits.shape[-1])
        return _rows_of_heads(rows, sampling).reshape(logits.shape)
    return _cut_rows(logits, sampling)


#: From so many tokens on a CPU looks at the likeliest `_HEAD` first, and sorts all only where these are not enough.
_WIDE, _HEAD = 4096, 256


def _cut_rows(logits: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities of logits (..., V) behind top-p and min-p."""
    if sampling.top_p < 1.0:
        ordered, order = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)
        cut = torch.zeros_like(order, dtype=torch.bool).scatter(-1, order, _behind(ordered, sampling.top_p))
        logits = logits.masked_fill(cut, float("-inf"))
    return _cut_unlikely(logits, sampling.min_p)


def _rows_of_heads(logits: Tensor, sampling: Sampling) -> Tensor:
    """`_cut_rows` of (R, V), for most rows by the likeliest tokens alone; the route of a row depends on it alone."""
    probs = logits.softmax(-1)
    # By ascending id, so that a stable sort puts equal tokens in the order that one of all tokens does.
    ids = probs.topk(_HEAD, dim=-1).indices.sort(-1).values
    ordered, order = probs.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    ids = ids.gather(-1, order)
    behind = _behind(ordered, sampling.top_p)
    head = logits.gather(-1, ids).masked_fill(behind, float("-inf"))
    rows = torch.zeros_like(logits).scatter_(-1, ids, _cut_unlikely(head, sampling.min_p))
    least = ordered.masked_fill(behind, torch.inf).amin(-1)
    # Tokens as likely as the last that stays may be outside the head, with smaller ids.
    open_ended = (ordered[:, -1] >= least).nonzero().squeeze(-1)
    if len(open_ended):
        rows[open_ended] = _cut_rows(logits[open_ended], sampling)
    return rows


def _behind(ordered: Tensor, top_p: float) -> Tensor:
    """Which tokens of descending probabilities (..., V) go: those in front of which there is top_p of the mass already.

    The first one always stays, also where float32 knows top_p as 0.
    """
    behind = ordered.cumsum(-1) - ordered >= top_p
    behind[..., 0] = False
    return behind


def _cut_unlikely(logits: Tensor, min_p: float) -> Tensor:
    """Probabilities of logits (..., V) without those below ``min_p`` of the likeliest."""
    if min_p > 0.0:
        probs = logits.softmax(-1)
        logits = logits.masked_fill(probs < min_p * probs.amax(-1, keepdim=True), float("-inf"))
    return logits.softmax(-1)


def residual_rows(p: Tensor, q: Tensor) -> Tensor:
    """``norm([p - q]_+)`` (..., V) (Leviathan et al. 2023); where rounding leaves no mass, p itself."""
    return normalised((p - q).clamp_min(0.0), p)


def normalised(excess: Tensor, instead: Tensor) -> Tensor:
    """``excess`` (..., V) divided by its mass; ``instead`` where there is none."""
    mass = excess.sum(-1, keepdim=True)
    return torch.where(mass > 0, excess / mass.clamp_min(torch.finfo(excess.dtype).tiny), instead)
