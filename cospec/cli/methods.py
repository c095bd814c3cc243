"""The methods of `cospec eval`: chosen by name, built over a pair, and described for the record of the run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cospec.cli.loading import DecodeOptions, RuleChoice, choose_rule, rule_from_options
from cospec.cli.options import named_directory
from cospec.jsonl import dumps
from cospec.prompt_rows import PromptRow

if TYPE_CHECKING:
    from cospec.evaluation import Method
    from cospec.pair import Pair


def choose_methods(methods: str, arbiters: Sequence[str], threshold: float) -> dict[str, RuleChoice]:
    """Rule choices by method name, the target first; arbiters are called after their directory unless named.

    A method is called as it is written, such as `cactus:delta=0.25`.
    """
    from cospec.engine.rules import RULES, rule_named, split_specs

    chosen: dict[str, RuleChoice] = {"target": RuleChoice("target")}
    specs: list[str] = []
    for name in split_specs(methods):
        base = name.partition(":")[0]
        if not name:
            raise ValueError(f"--methods {methods!r} has an empty name: write names with commas, such as draft,strict")
        if base == "arbiter":
            raise ValueError("method 'arbiter' needs a directory: use --arbiter DIR instead")
        if name != "draft" and base.partition(",")[0] not in RULES:
            known = ", ".join(["draft", *(rule for rule, info in RULES.items() if info.make or info.open)])
            raise ValueError(f"there is no method {name!r}: choose from {known}, or add --arbiter DIR")
        specs.append(name if name == "draft" else rule_named(name).spec)
        if specs.count(specs[-1]) > 1:
            raise ValueError(f"--methods {methods!r} names {name} twice: drop one")
        chosen[name] = RuleChoice("draft") if name == "draft" else choose_rule(name, None)
    if threshold != 0.5 and not arbiters:
        raise ValueError("--threshold is given, but there is no arbiter: add --arbiter DIR or drop --threshold")
    for text in arbiters:
        given, directory = named_directory(text)
        name = given or directory.resolve().name
        if name in chosen:
            raise ValueError(f"--arbiter {text}: method {name!r} is there already; give another name: NAME={directory}")
        chosen[name] = choose_rule(None, directory, threshold)
    return chosen


def check_methods(options: DecodeOptions, choices: Mapping[str, RuleChoice], *, from_file: bool = False) -> None:
    """ValueError for options of drafting where no method drafts, and for methods that do not go with the options.

    A decode config has K and drafter (``from_file``) also where its choice is the target alone.
    """
    from cospec.engine.rules import rule_named

    for choice in choices.values():
        options.check_rule(choice)
    alone = [
        choice.arbiter is None and (choice.name == "draft" or not rule_named(choice.name).drafts)
        for choice in choices.values()
    ]
    own_bonus = [choice.bonus is not None for choice in choices.values()]
    useless = {
        "--bonus": options.bonus is not None and all(map(or_, alone, own_bonus)),
        "--cost-ratio": options.cost_ratio is not None and all(alone),
        "--drafter": not from_file and options.drafter is not None and all(alone),
        "--num-draft-tokens": not from_file and options.num_draft_tokens != 5 and all(alone),
    }
    for option in [option for option, is_useless in useless.items() if is_useless]:
        raise ValueError(f"{option} is given, but nothing here drafts ({', '.join(choices)}): drop {option}")


def build_methods(choices: Mapping[str, RuleChoice], pair: Pair, options: DecodeOptions) -> list[Method]:
    """The methods with their rules, arbiters loaded; ValueError for an arbiter of another pair."""
    return [_build(name, choice, pair, options) for name, choice in choices.items()]


def _build(name: str, choice: RuleChoice, pair: Pair, options: DecodeOptions) -> Method:
    from cospec.evaluation import Method

    if choice.name == "draft":
        return Method(name, "draft")
    if choice.name == "target":
        return Method(name, "target")
    return Method(name, rule_from_options(choice, pair), choice.bonus or options.bonus)


def describe(
    pair: Pair, options: DecodeOptions, choices: Mapping[str, RuleChoice], methods: Sequence[Method]
) -> dict[str, Any]:
    """What decides the results besides the problems, as JSON: common settings, and each method's under "methods"."""
    from cospec.evaluation.environment import environment

    return {
        **describe_pair(pair),
        **describe_decoding(options),
        "methods": {method.name: _describe_method(method, choices[method.name]) for method in methods},
        "environments": [environment(pair.device)],
    }


def describe_pair(pair: Pair) -> dict[str, Any]:
    """What the models are, where they are and in which form."""
    return {
        "pair": asdict(pair.spec),
        "pair_digest": pair_digest(pair),
        "device": pair.device.type,
        "dtype": str(next(pair.target.parameters()).dtype),
        "attn": pair.target.config._attn_implementation,
    }


def describe_decoding(options: DecodeOptions) -> dict[str, Any]:
    """The part of `describe` that needs no models: how all methods decode."""
    # The bonus is each method's own.
    found = {key: value for key, value in asdict(options).items() if key != "bonus"}
    pinned = pinned_drafter(options.drafter or "model")
    return found | ({"drafter_digest": pinned.digest} if pinned.digest else {})


def _describe_method(method: Method, choice: RuleChoice) -> dict[str, Any]:
    described: dict[str, Any] = {"rule": method.rule_name, "bonus": method.bonus_in_use}
    if choice.arbiter is not None:
        found = arbiter_digest(choice.arbiter)
        described |= {"threshold": choice.threshold, "arbiter": str(choice.arbiter.resolve()), "arbiter_digest": found}
    elif (pinned := pinned_rule(choice.name)).digest is not None:
        described["judge_digest"] = pinned.digest
    return described


@dataclass(frozen=True, slots=True)
class Pinned:
    """A rule's or drafter's ``spec``, its directory as an absolute path, and a ``digest`` of the files it names.

    A Hub repository's digest is its commit's; None where the spec names no files.
    """

    spec: str
    digest: str | None


def pinned_rule(spec: str) -> Pinned:
    """What a rule's spec names."""
    from cospec.engine.rules import RULES

    name, _, text = spec.partition(":")
    return _pinned(name, text, RULES[name].taken_apart(text)[0] if name in RULES else None)


def pinned_drafter(spec: str) -> Pinned:
    """What a drafter's spec names."""
    from cospec.engine.drafters.spec import taken_apart

    name, _, text = spec.partition(":")
    return _pinned(name, text, taken_apart(text)[0])


def _pinned(name: str, text: str, place: str | None) -> Pinned:
    if place is None:
        return Pinned(f"{name}:{text}" if text else name, None)
    if Path(place).is_dir():
        return Pinned(f"{name}:{text.replace(place, str(Path(place).resolve()), 1)}", arbiter_digest(Path(place)))
    from cospec.engine.heads.files import CONFIG_NAME, find

    config = find(place, CONFIG_NAME)
    return Pinned(f"{name}:{text}", config.parent.name[:16] if config else None)


def pair_digest(pair: Pair, *, draft: bool = True) -> str:
    """Digest of the pair's pins: names, configs, a sample of the weights, tokenizer.

    Without ``draft``, of the target's alone.
    """
    from cospec.pins import model_pins

    pins = [asdict(pin) for role, pin in model_pins(pair).items() if draft or role != "draft"]
    return digest([dumps([*pins, pair.tokenizer_digest]).encode()])


def arbiter_digest(directory: Path) -> str:
    """Digest of an arbiter's or a head's weights and configs; a datastore's config has digests of all it holds."""
    kinds, pickled = (".safetensors", ".json"), "pytorch_model.bin"
    files = sorted(file for file in directory.iterdir() if file.suffix in kinds or file.name == pickled)
    return digest(file.read_bytes() for file in files)


def describe_rows(rows: Sequence[PromptRow]) -> dict[str, Any]:
    """Number and digest of the problems; the digest changes with any prompt or gold answer."""
    found = digest(dumps(row.scorer_row()).encode() for row in rows)
    return {"num_problems": len(rows), "problems_digest": found}


def digest(parts: Iterable[bytes]) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of all parts behind one another."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()[:16]
