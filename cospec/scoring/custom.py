"""The user's own scorer: found by name, and kept from stopping a run."""

import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from cospec.scoring.verdict import KINDS, UserScorer, Verdict


def load_scorer(name: str) -> UserScorer:
    """Import the scorer ``package.module:function``; modules in the current directory are found too.

    Raises ValueError when the name has another form, the module cannot be imported, or it has no such callable. Other
    exceptions raised while the module is imported are the user's code speaking, and pass with their traceback.
    """
    module_name, colon, function_name = name.partition(":")
    if not (colon and module_name and function_name):
        raise ValueError(f"scorer {name!r} is not of the form package.module:function")
    module = _import(module_name, name)
    scorer = getattr(module, function_name, None)
    if scorer is None:
        names = [other for other, value in vars(module).items() if callable(value) and not other.startswith("_")]
        known = ", ".join(names) or "none"
        raise ValueError(f"scorer {name!r}: {module_name} has no {function_name!r}; its callables are: {known}")
    if not callable(scorer):
        raise ValueError(f"scorer {name!r} is a {type(scorer).__name__}: name a function of (text, row)")
    if inspect.iscoroutinefunction(scorer):
        raise ValueError(f"scorer {name!r} is an async function: write a plain function of (text, row)")
    return scorer


def source_digest(name: str) -> str | None:
    """Digest of the files of the scorer ``package.module:function``: the module's, and the one that defines it.

    None where there is no file to read.
    """
    scorer = inspect.unwrap(load_scorer(name))
    modules = {name.partition(":")[0], getattr(scorer, "__module__", None) or type(scorer).__module__}
    places = {getattr(sys.modules.get(module), "__file__", None) for module in modules}
    files = sorted(place for place in places if place)
    if not files:
        return None
    found = hashlib.sha256()
    for file in files:
        found.update(Path(file).read_bytes())
    return found.hexdigest()[:16]


def _import(module_name: str, scorer_name: str) -> ModuleType:
    # As `python -m` does; the console script's own directory stands there otherwise.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.insert(0, os.getcwd())
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module_name}.".startswith(f"{error.name}."):
            raise ValueError(
                f"scorer {scorer_name!r}: no module {error.name!r} in {os.getcwd()} or among the installed packages: "
                "check the name, or start the command where the module lies"
            ) from error
        raise ValueError(f"scorer {scorer_name!r}: importing {module_name} failed: {error}: install it") from error
    except (ImportError, SyntaxError) as error:
        raise ValueError(f"scorer {scorer_name!r}: importing {module_name} failed: {error}: mend the module") from error


def safe_score(scorer: UserScorer, text: str, row: Mapping[str, Any]) -> Verdict:
    """Score one text; whatever the scorer returns or raises becomes a verdict.

    Verdict passes; True, False, 0 and 1 are right or wrong; None is a failure; any other value, and any exception, is
    an "error" verdict with the reason. KeyboardInterrupt passes.
    """
    try:
        return _to_verdict(scorer(text, row))
    # Broad on purpose: this is foreign code inside a training step. If it stopped one rank, the others would wait for
    # it in the next collective for ever. SystemExit is no Exception, but generated or careless code does raise it.
    except (Exception, SystemExit) as error:
        return Verdict("error", reason=f"the scorer raised {type(error).__name__}: {error}")


def _checked(verdict: Verdict) -> Verdict:
    """The verdict itself, unless it is of no known kind; what is no text in it becomes text."""
    if verdict.kind not in KINDS:
        known = ", ".join(KINDS)
        return Verdict("error", reason=f"the scorer returned a Verdict of kind {verdict.kind!r}: the kinds are {known}")
    texts: list[object] = [verdict.extracted, verdict.reason]
    if all(isinstance(text, str | None) for text in texts):
        return verdict
    return Verdict(verdict.kind, None if verdict.extracted is None else str(verdict.extracted), str(verdict.reason))


def _to_verdict(value: Any) -> Verdict:
    if isinstance(value, Verdict):
        return _checked(value)
    if value is None:
        return Verdict("error", reason="the scorer returned None")
    # numpy and torch scalars compare like numbers once they are plain ones.
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, bool | int | float) and plain in (0, 1):
        return Verdict("right" if plain else "wrong")
    return Verdict("error", reason=f"the scorer returned {plain!r}: it must be a Verdict, a bool, 0, 1 or None")
