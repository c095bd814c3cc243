"""Drafters by name: what proposes a block. A new one is one file and one entry here."""

from __future__ import annotations

from cospec.engine.drafters import ngram, retrieval
from cospec.engine.drafters.base import BoundDrafter, Draft, Drafter, Outcome, RunShape, check_use
from cospec.engine.drafters.eagle3 import eagle3_drafter
from cospec.engine.drafters.model import BoundModelDrafter, ModelDrafter
from cospec.engine.drafters.mtp import mtp_drafter
from cospec.engine.drafters.ngram import NgramDrafter
from cospec.engine.drafters.none import NoDrafter
from cospec.engine.drafters.retrieval import RetrievalDrafter
from cospec.engine.drafters.spec import DrafterInfo
from cospec.engine.parameters import offer

__all__ = [
    "DRAFTERS",
    "BoundDrafter",
    "BoundModelDrafter",
    "Draft",
    "Drafter",
    "DrafterInfo",
    "ModelDrafter",
    "NgramDrafter",
    "NoDrafter",
    "Outcome",
    "RetrievalDrafter",
    "RunShape",
    "check_use",
    "drafter_named",
]

_ALL = (
    DrafterInfo(
        "model",
        "the pair's draft model",
        "Leviathan et al. 2023 (arXiv 2211.17192), Chen et al. 2023 (arXiv 2302.01318)",
        ModelDrafter,
    ),
    DrafterInfo(
        "ngram",
        "copies what followed the last tokens earlier in prompt and text",
        "prompt lookup decoding (Saxena 2023)",
        NgramDrafter,
        ngram.PARAMETERS,
    ),
    DrafterInfo(
        "retrieval",
        "what usually follows the last tokens in a datastore of texts",
        "REST (He et al. 2023, arXiv 2311.08252)",
        RetrievalDrafter,
        retrieval.PARAMETERS,
        files="a datastore, as `cospec datastore build` writes it",
    ),
    DrafterInfo(
        "eagle3",
        "a head on three of the target's layers",
        "Li et al. 2025 (arXiv 2503.01840)",
        eagle3_drafter,
        files="the directory or Hub id of an EAGLE-3 head",
    ),
    DrafterInfo(
        "mtp",
        "the MTP layer that the target ships, or a trained one",
        "DeepSeek-AI 2024 (arXiv 2412.19437)",
        mtp_drafter,
        files="the directory or Hub id of an MTP layer",
        files_optional=True,
    ),
)
#: In the order in which docs list them.
DRAFTERS: dict[str, DrafterInfo] = {info.name: info for info in _ALL}


def drafter_named(spec: str) -> Drafter:
    """The drafter of a spec, such as `ngram:max_match=4`; what it reads from files is loaded by the engine.

    ValueError for a name, path or parameter that cannot be.
    """
    name, colon, text = spec.strip().partition(":")
    if name not in DRAFTERS:
        raise ValueError(f"there is no drafter {name!r}: {offer(name, DRAFTERS, 'choose one of')}")
    if colon and not text.strip():
        raise ValueError(f"drafter {spec!r} ends in a colon: write {name}:param=value, or {name} alone")
    return DRAFTERS[name].read(text)
