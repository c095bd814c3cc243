"""MTP layers as the drafter (DeepSeek-AI 2024, arXiv 2412.19437), applied recursively."""

from __future__ import annotations

from cospec.engine.drafters.head import HeadDrafter
from cospec.engine.heads import DraftHead
from cospec.engine.heads.files import read_config
from cospec.pair import Pair


def mtp_drafter(path: str | None = None) -> HeadDrafter:
    """The MTP layer in a directory, or without one the target's own; ValueError where there is no such directory."""
    if path is not None:
        read_config(path)

    def load(pair: Pair) -> DraftHead:
        from cospec.engine.heads.mtp_files import load_mtp

        return load_mtp(path, pair)

    return HeadDrafter(f"mtp:{path}" if path else "mtp", load)
