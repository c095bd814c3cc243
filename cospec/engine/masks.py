"""4-D attention masks in the form that a model's attention takes, its sliding windows included."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from cospec.windows import window_of


@dataclass(frozen=True, slots=True)
class Masks:
    """Makes the masks of one model: its sliding ``window`` and ``kinds`` of layers, if it has any.

    ``additive`` is the dtype of the additive masks that eager attention takes, None where bool ones are taken.
    """

    window: int | None
    kinds: tuple[str, ...]
    additive: torch.dtype | None

    @classmethod
    def of(cls, model: PreTrainedModel) -> Masks:
        """Raises ValueError for an attention implementation that ignores 4-D masks."""
        config, implementation = model.config.get_text_config(), model.config._attn_implementation
        if implementation not in ("sdpa", "eager"):
            raise ValueError(
                f"attention implementation {implementation!r} cannot take the engine's 4-D mask: set attn to 'sdpa' or "
                "'eager'"
            )
        kinds = tuple(sorted(set(getattr(config, "layer_types", None) or ())))
        return cls(window_of(config), kinds, next(model.parameters()).dtype if implementation == "eager" else None)

    def __call__(self, allowed: Tensor, positions: Tensor, key_positions: Tensor) -> Tensor | dict[str, Tensor]:
        """The mask of a pass, or one for each kind of layer where some have a sliding window.

        ``allowed`` (R, T, S) is True where a query at ``positions`` (R, T) may attend to a key at ``key_positions``
        (R or 1, S).
        """
        if self.window is None:
            return self._in_form(allowed)
        near = allowed & (key_positions[:, None] > positions[..., None] - self.window)
        if not self.kinds:
            return self._in_form(near)
        return {kind: self._in_form(near if kind == "sliding_attention" else allowed) for kind in self.kinds}

    def _in_form(self, allowed: Tensor) -> Tensor:
        """(R, 1, T, S): bool for sdpa, additive for eager."""
        if self.additive is None:
            return allowed[:, None]
        return torch.where(allowed[:, None], 0.0, torch.finfo(self.additive).min).to(self.additive)
