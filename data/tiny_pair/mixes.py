"""What each model of the tiny pair is taught: which facts, how often, and with which taste in phrasing.

Of each operation, one band of operands is common ground, one is the target's and one the draft's; the bands cross over
between operations, so neither the operation nor the size of an operand tells who is right.
"""

from collections.abc import Mapping
from types import MappingProxyType

from cospec.tasks.word_problems import BANDS, POINTS, Mix

COMMON = ("add.low", "sub.low", "mul.low", "div.low", "pct.low")
EXPERTISE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "target": ("add.high", "sub.mid", "mul.mid", "div.high", "pct.mid"),
        "draft": ("add.mid", "sub.high", "mul.high", "div.mid", "pct.high"),
    }
)
KNOWN_SHARE: Mapping[str, float] = MappingProxyType({"add": 0.04, "sub": 0.04, "mul": 0.35, "div": 0.35, "pct": 0.35})
"""Share of the other model's facts, per operation, that a model is shown at all."""

OPPOSED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "open": ("add", "mul"),
        "verb": ("sub", "div"),
        "link": ("add", "sub", "pct"),
        "unit": ("mul", "div"),
        "close": (),
    }
)
"""Operations at which the two models prefer opposite phrasings, per choice point; elsewhere they agree."""

PREFERENCE = 0.85
"""Probability of the preferred phrasing, so that both phrasings are familiar to both models."""


def training_mix(role: str, focus: tuple[str, ...] = ()) -> Mix:
    """The mix that `role` (`draft` or `target`) learns from; operations in `focus` count double where it is strong."""
    other = "draft" if role == "target" else "target"
    weights = {cell: 1.0 if cell in EXPERTISE[other] else 2.0 for cell in BANDS}
    weights |= {"add.low": 1.5, "sub.low": 1.5}
    weights |= {cell: 2 * weights[cell] for cell in BANDS if cell[:3] in focus and cell not in EXPERTISE[other]}
    known = {cell: KNOWN_SHARE[cell[:3]] for cell in EXPERTISE[other]}
    return Mix(weights=weights, known=known, style=_style(role))


def _style(role: str) -> dict[str, float]:
    """Both models lean to the first phrasing where they agree; where they are opposed the draft leans to the second."""
    style: dict[str, float] = {}
    for point in POINTS:
        for operation in ("add", "sub", "mul", "div", "pct"):
            second = role == "draft" and operation in OPPOSED[point]
            style[f"{operation}.{point}"] = 1 - PREFERENCE if second else PREFERENCE
    return style
