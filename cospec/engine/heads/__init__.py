"""Drafting heads: small networks that read a target's hidden states and continue its text."""

from cospec.engine.heads.base import DraftHead

__all__ = ["DraftHead"]
