"""Sliding attention windows: which models have one, and which of them the engine gives masks of their own."""

from __future__ import annotations

from transformers import PretrainedConfig

#: Families whose windowed layers are given masks of their own; tests/unit/test_windows.py holds each to the text that
#: transformers writes beyond the window. Others are held to their window, where it makes no difference.
WINDOWED = frozenset({"gemma2", "gemma3_text", "mistral", "qwen2", "qwen3", "smollm3"})


def window_of(config: PretrainedConfig) -> int | None:
    """How many tokens, itself included, a token sees in the model's sliding layers; None if it has no such layers."""
    kinds = getattr(config, "layer_types", None) or []
    window = getattr(config, "sliding_window", None)
    slides = (not kinds or "sliding_attention" in kinds) and getattr(config, "use_sliding_window", True)
    return int(window) if window and slides else None
