"""`--decode FILE`: a decode config in place of the options for rule, K, bonus and sampling."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from cospec.cli.loading import RuleChoice
    from cospec.decode_file import DecodeConfig
    from cospec.pair import Pair

DecodeFileOption = Annotated[
    Path | None,
    typer.Option("--decode", metavar="FILE.yaml", help="Rule, K, bonus and sampling as `cospec tune` chose them."),
]

#: Keys of a decode config, and the options that say the same: those that all methods share, and the rule's own.
_SHARED: dict[str, tuple[str, ...]] = {
    "num_draft_tokens": ("num_draft_tokens", "cost_ratio"),
    "drafter": ("drafter",),
    "sampling": ("temperature", "top_k", "top_p", "min_p", "repetition_penalty"),
}
_RULE: dict[str, tuple[str, ...]] = {
    "rule": ("rule", "arbiter"),
    "arbiter": ("arbiter", "rule"),
    "threshold": ("threshold",),
    "bonus": ("bonus",),
}


def rule_from_file(file: Path, values: Mapping[str, Any], written: Collection[str]) -> dict[str, Any]:
    """A command's parameters with the file's in place of its defaults.

    ValueError naming both places where an option and the file say the same, and for an arbiter that has changed.
    """
    from cospec.engine.rules import rule_named

    config = _read(file, values, _RULE | _SHARED, written)
    own: dict[str, Any] = {name: getattr(config, name) for name in ("threshold", "bonus")}
    own = {name: value for name, value in own.items() if value is not None}
    own |= {"rule": None if config.arbiter else config.rule, "arbiter": config.arbiter and Path(config.arbiter)}
    # The target alone has one for the methods that an evaluation compares it with.
    drafts = config.arbiter is not None or rule_named(config.rule).drafts
    unused = {} if drafts or "drafter" not in values else {"drafter": None}
    return {**values, **own, **_shared(config, values), **unused}


def settings_from_file(file: Path, values: Mapping[str, Any], written: Collection[str]) -> dict[str, Any]:
    """The same for a command that compares methods: what they share; the rest is for `method_from_file`."""
    return {**values, **_shared(_read(file, values, _SHARED, written), values)}


def method_from_file(file: Path, others: Mapping[str, RuleChoice]) -> dict[str, RuleChoice]:
    """The file's rule or arbiter by name, with its own threshold and bonus.

    A rule that is among the ``others`` has its name. ValueError for an arbiter that is called as one of them.
    """
    from cospec.cli.loading import choose_rule
    from cospec.decode_file import read_decode_file
    from cospec.engine.rules import ArbiterRule, rule_named

    config = read_decode_file(file)
    if config.arbiter is not None:
        name = Path(config.arbiter).resolve().name
        if name in others:
            raise ValueError(f"method {name!r} is there already, and {file} has another: write --arbiter NAME=DIR")
        threshold = 0.5 if config.threshold is None else config.threshold
        choice = choose_rule(None, Path(config.arbiter), threshold)
        return {name: replace(choice, bonus=config.bonus or ArbiterRule.default_bonus)}
    rule = rule_named(config.rule)
    named = {name: rule_named(other.name).spec for name, other in others.items() if _is_rule(other)}
    name = next((name for name, spec in named.items() if spec == rule.spec), config.rule)
    bonus = (config.bonus or rule.default_bonus) if rule.drafts else None
    return {name: replace(choose_rule(config.rule, None), bonus=bonus)}


def _is_rule(choice: RuleChoice) -> bool:
    return choice.arbiter is None and choice.name != "draft"


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
        if what is None or made_with is None:
            continue
        found = digest(what)
        if found is None:
            raise ValueError(
                f"{what} has no files here, and {file} has a {key} of some: bring them back, or drop {key}"
            )
        if found != made_with:
            name = key.removesuffix("_digest")
            raise ValueError(f"{name} {what} is not the one that {file} was made with: tune again, or drop its {key}")


def _shared(config: DecodeConfig, values: Mapping[str, Any]) -> dict[str, Any]:
    """What every command takes from a config."""
    drafter = {"drafter": config.drafter} if "drafter" in values else {}
    return {"num_draft_tokens": config.num_draft_tokens, **asdict(config.sampling), **drafter}


def warn_of_other_pair(file: Path | None, pair: Pair) -> None:
    """A line on stderr where a config was chosen for another pair, whose acceptance and costs say nothing here."""
    from cospec.cli.methods import pair_digest
    from cospec.decode_file import read_decode_file

    if file is None:
        return
    found = read_decode_file(file).provenance.get("pair_digest")
    # A draft model that does not draft was not loaded when the file was made; here another method may need it.
    if found is not None and found not in [pair_digest(pair, draft=draft) for draft in (True, False)]:
        typer.echo(f"cospec: warning: {file} was chosen for another pair: tune again for this one", err=True)
