"""CoSpec: collaborative speculative decoding with a trained arbiter (arXiv 2605.24793).

The names below are loaded on first use, so that `import cospec` and `cospec --help` import no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cospec.arbiter.adapter import load_arbiter
    from cospec.engine.decode import Engine
    from cospec.pair import load_pair

__version__ = "0.1.0"
__all__ = ["Engine", "__version__", "load_arbiter", "load_pair"]

_HOMES = {
    "Engine": "cospec.engine.decode",
    "load_arbiter": "cospec.arbiter.adapter",
    "load_pair": "cospec.pair",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cospec' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
