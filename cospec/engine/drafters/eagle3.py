"""EAGLE-3 heads as the drafter (Li et al. 2025, arXiv 2503.01840), in chains."""

from __future__ import annotations

from cospec.engine.drafters.head import HeadDrafter
from cospec.engine.heads import DraftHead
from cospec.engine.heads.files import read_config
from cospec.pair import Pair


def eagle3_drafter(path: str) -> HeadDrafter:
    """The head in a directory or Hub repository; ValueError where there is none."""
    read_config(path)

    def load(pair: Pair) -> DraftHead:
        from cospec.engine.heads.eagle3_files import load_eagle3

        return load_eagle3(path, pair)

    return HeadDrafter(f"eagle3:{path}", load)
