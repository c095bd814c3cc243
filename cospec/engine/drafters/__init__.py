"""Drafters: what proposes a block."""

from cospec.engine.drafters.model import Draft, ModelDrafter

__all__ = ["Draft", "ModelDrafter"]
