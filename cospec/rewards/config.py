"""The constants of the reward (method section 4)."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class RewardConfig:
    """All of them are ours; the paper describes the terms in words only.

    ``alpha`` weighs the accepted span of a right rollout, ``lambda_risk`` keeping what the target finds unlikely,
    ``lambda_fb`` falling back, ``c_keep`` keeping at all, the last three in wrong rollouts. The risk rises from 0 at
    the target probability ``tau`` to 1 at ``p_min``. ``reading`` gives every decision its own signal, or the whole
    rollout one scalar.
    """

    alpha: float = 1.0
    lambda_risk: float = 1.0
    lambda_fb: float = 0.3
    c_keep: float = 0.0
    tau: float = 0.05
    p_min: float = 1e-4
    reading: Literal["decision", "rollout"] = "decision"

    def __post_init__(self) -> None:
        for name in ("alpha", "lambda_risk", "lambda_fb", "c_keep"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(
                    f"reward.{name} is {value}: a negative weight would turn its term round; use a number >= 0"
                )
        if not 0 < self.p_min < self.tau <= 1:
            raise ValueError(
                f"reward.p_min is {self.p_min} and reward.tau is {self.tau}: the risk rises from tau down to p_min, "
                "so choose 0 < p_min < tau <= 1"
            )
        if self.reading not in ("decision", "rollout"):
            raise ValueError(f"reward.reading is {self.reading!r}: use 'decision' or 'rollout'")
        if self.reading == "rollout" and self.c_keep != 0:
            raise ValueError(
                f"reward.c_keep is {self.c_keep}, but the rollout reading has no such term: set it to 0, or use "
                "reward.reading=decision"
            )
