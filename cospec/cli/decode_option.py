"""`--decode FILE`: a decode config in place of the options for rule, K, bonus and sampling."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cospec.decode_file import DecodeConfig
    from cospec.pair import Pair

DecodeFileOption = Annotated[
    Path | None,
    typer.Option("--decode", metavar="FILE.yaml", help="Rule, K, bonus and sampling as `cospec tune` chose them."),
]

#: Keys of a decode config, and the options that say the same.
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
_RULE: dict[str, tuple[str, ...]] = {"rule": ("rule", "arbiter"), "arbiter": ("arbiter", "rule")}
_COMMON: dict[str, tuple[str, ...]] = {
    "threshold": ("threshold",),
    "num_draft_tokens": ("num_draft_tokens", "cost_ratio"),
    "bonus": ("bonus",),
    "drafter": ("drafter",),
    "sampling": _SAMPLING,
}


def rule_from_file(file: Path, values: Mapping[str, Any], written: Collection[str]) -> dict[str, Any]:
    """A command's parameters with the file's in place of its defaults.

    ValueError naming both places where an option and the file say the same, and for an arbiter that has changed.
    """
    config = _read(file, values, _RULE | _COMMON, written)
    own = {"rule": None if config.arbiter else config.rule, "arbiter": config.arbiter and Path(config.arbiter)}
    return {**values, **own, **_shared(config, values)}


def method_from_file(file: Path, values: Mapping[str, Any], written: Collection[str]) -> dict[str, Any]:
    """The same for a command that compares methods: the file's rule or arbiter is one more of them."""
    config = _read(file, values, _COMMON, written)
    methods, arbiters = str(values["methods"]), list(values["arbiter"] or [])
    if config.arbiter:
        arbiters.append(config.arbiter)
    elif config.rule not in methods.split(","):
        methods = f"{methods},{config.rule}"
    return {**values, "methods": methods, "arbiter": arbiters or None, **_shared(config, values)}


def _read(
    file: Path, values: Mapping[str, Any], keys: Mapping[str, Collection[str]], written: Collection[str]
) -> DecodeConfig:
    from cospec.decode_file import read_decode_file

    config = read_decode_file(file)
    for key, options in keys.items():
        for name in options if getattr(config, key) is not None else ():
            if name in written:
                option = "--" + name.replace("_", "-")
                raise ValueError(f"{option} is given and {file} has `{key}`: drop {option}, or decode without --decode")
    if config.drafter != values.get("drafter", "model") and "drafter" not in values:
        raise ValueError(f"{file} has drafter {config.drafter!r}, and this command drafts with the model only")
    _check_digests(file, config)
    return config


def _check_digests(file: Path, config: DecodeConfig) -> None:
    """ValueError for an arbiter, judge or drafter that is not the one the file was made with."""
    from cospec.cli.methods import arbiter_digest, pinned_drafter, pinned_rule

    files: dict[str, tuple[str | None, Callable[[str], str | None]]] = {
        "arbiter_digest": (config.arbiter, lambda path: arbiter_digest(Path(path))),
        "judge_digest": (config.rule, lambda spec: pinned_rule(spec).digest),
        "drafter_digest": (config.drafter, lambda spec: pinned_drafter(spec).digest),
    }
    for key, (what, digest) in files.items():
        made_with = getattr(config, key)
        if what is not None and made_with is not None and digest(what) != made_with:
            name = key.removesuffix("_digest")
            raise ValueError(f"{name} {what} is not the one that {file} was made with: tune again, or drop its {key}")


def _shared(config: DecodeConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    """What every command takes from a config."""
    found = {"num_draft_tokens": config.num_draft_tokens, **dataclasses.asdict(config.sampling)}
    if config.threshold is not None:
        found["threshold"] = config.threshold
    if config.bonus is not None:
        found["bonus"] = config.bonus
    if "drafter" in values:
        found["drafter"] = config.drafter
    return found


def warn_of_other_pair(file: Path | None, pair: Pair) -> None:
    """A line on stderr where a config was chosen for another pair, whose acceptance and costs say nothing here."""
    from cospec.cli.methods import pair_digest
    from cospec.decode_file import read_decode_file

    if file is None:
        return
    found = read_decode_file(file).provenance.get("pair_digest")
    if found is not None and found != pair_digest(pair):
        typer.echo(f"cospec: warning: {file} was chosen for another pair: tune again for this one", err=True)
