"""CoSpec: collaborative speculative decoding with a trained arbiter (arXiv 2605.24793).

The names below are loaded on first use, so that `import cospec` and `cospec --help` import no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cospec.arbiter.adapter import arbiter_rule, load_arbiter
    from cospec.engine.decode import Engine
    from cospec.engine.drafters import drafter_named
    from cospec.engine.record import Sampling
    from cospec.engine.request import Request
    from cospec.engine.rules import rule_named
    from cospec.pair import load_pair
    from cospec.pair_file import read_pair_file
    from cospec.prompts import prompt_ids

__version__ = "0.1.0"
__all__ = [
    "Engine",
    "Request",
    "Sampling",
    "__version__",
    "arbiter_rule",
    "drafter_named",
    "load_arbiter",
    "load_pair",
    "prompt_ids",
    "read_pair_file",
    "rule_named",
]

_HOMES = {
    "Engine": "cospec.engine.decode",
    "Request": "cospec.engine.request",
    "Sampling": "cospec.engine.record",
    "arbiter_rule": "cospec.arbiter.adapter",
    "drafter_named": "cospec.engine.drafters",
    "load_arbiter": "cospec.arbiter.adapter",
    "load_pair": "cospec.pair",
    "prompt_ids": "cospec.prompts",
    "read_pair_file": "cospec.pair_file",
    "rule_named": "cospec.engine.rules",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cospec' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
