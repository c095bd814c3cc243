"""What one round works on."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from cospec.engine.batch_sampling import BatchSampling


@dataclass(frozen=True, slots=True)
class Contexts:
    """The committed tokens: ``ids`` (B, C), of which the first ``lengths`` (B,) of each row are real.

    ``limits`` (B,) is the most tokens each row may draft in this round (0: the target writes alone), ``room`` (B,) the
    most it may commit; ``keys`` (B,) are the round keys of the random draws. What the host knows and a device would
    have to be waited for: ``longest`` of the lengths, and ``num_lacking``, the most committed tokens that a drafter's
    cache lacks of any row.
    """

    ids: Tensor
    lengths: Tensor
    limits: Tensor
    room: Tensor
    keys: Tensor
    sampling: BatchSampling
    longest: int
    num_lacking: int
