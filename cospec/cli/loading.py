"""From the shared options to objects; what can be refused cheaply is refused before any weights are read."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cospec.cli.options import require_pair_choice

if TYPE_CHECKING:
    from cospec.engine.compiled import CompileMode
    from cospec.engine.decode import Engine
    from cospec.engine.record import Bonus, Sampling
    from cospec.engine.rules import Rule
    from cospec.pair import Pair, PairSpec

# --- the pair --------------------------------------------------------------------------------------------------------


def read_pair_spec(
    pair: Path | None,
    draft: str | None,
    target: str | None,
    device: str | None = None,
    dtype: str | None = None,
    attn: str | None = None,
) -> PairSpec:
    """The pair the options describe; ``device``, ``dtype`` and ``attn`` go before what a pair file says of both models.

    ``pair`` is a PAIR.yaml or the word `tiny`. ValueError for a pair named in no or two ways, and for a path that does
    not exist.
    """
    from cospec.pair import ModelSpec, PairSpec
    from cospec.pair_file import override, read_pair_file

    require_pair_choice(pair, draft, target)
    if pair is not None:
        return override(read_pair_file(pair), device, dtype, attn)
    assert draft is not None
    assert target is not None
    return override(PairSpec(ModelSpec(draft), ModelSpec(target)), device, dtype, attn)


def check_passes(compile_mode: CompileMode | None, packed: bool, spec: PairSpec) -> None:
    """ValueError, before models are loaded, for ways to run passes that cannot work where the pair will be."""
    if compile_mode is None and not packed:
        return
    from cospec.engine.compiled import check_compile
    from cospec.engine.packed import check_packing
    from cospec.pair import pick_device

    device_type = pick_device(spec.target.device).type
    if compile_mode is not None:
        check_compile(compile_mode, device_type)
    if compile_mode == "inductor":
        typer.echo("cospec: compiling every kind of pass when it first occurs, some 20 s each on a CPU", err=True)
    if packed:
        check_packing(device_type)


def load_pair_from_options(
    pair: Path | None,
    draft: str | None,
    target: str | None,
    device: str | None = None,
    dtype: str | None = None,
    attn: str | None = None,
) -> Pair:
    """`read_pair_spec`, then the models themselves."""
    from cospec.pair import load_pair, pick_device

    spec = read_pair_spec(pair, draft, target, device, dtype, attn)
    for model in (spec.draft, spec.target):
        pick_device(model.device)
    if not sys.stderr.isatty():
        from transformers.utils import logging

        logging.disable_progress_bar()
    return load_pair(spec)


# --- the rule --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RuleChoice:
    """What decides at a mismatch, as the options put it; checked by `choose_rule`, built by `rule_from_options`."""

    name: str
    arbiter: Path | None = None
    threshold: float = 0.5
    sampled: bool = False


def choose_rule(
    rule: str | None, arbiter: Path | None, threshold: float = 0.5, *, sampled: bool = False, default: str = "strict"
) -> RuleChoice:
    """Check the options against each other and the arbiter's pins for being readable; loads no weights.

    An arbiter implies the rule `arbiter`; without one and without a rule it is ``default``.
    """
    from cospec.engine.rules import rule_named

    name = rule or ("arbiter" if arbiter else default)
    if arbiter is None:
        rule_named(name)
        if threshold != 0.5 or sampled:
            option = "--sampled" if sampled else "--threshold"
            raise ValueError(f"{option} is given, but rule {name!r} has no arbiter: add --arbiter DIR or drop {option}")
        return RuleChoice(name)
    from cospec.arbiter.adapter import read_pins

    if name != "arbiter":
        raise ValueError(f"--rule {name} and --arbiter {arbiter} contradict each other: keep one of them")
    read_pins(arbiter)
    return RuleChoice(name, arbiter, threshold, sampled)


def rule_from_options(choice: RuleChoice, pair: Pair) -> Rule:
    """The rule itself; ValueError if its arbiter was made for another pair."""
    from cospec.engine.rules import rule_named

    if choice.arbiter is None:
        return rule_named(choice.name)
    from cospec.arbiter.adapter import arbiter_rule

    return arbiter_rule(choice.arbiter, pair, choice.threshold, sampled=choice.sampled)


# --- decoding --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """The decoding options of a command; what an engine would refuse is refused here, before models are loaded."""

    sampling: Sampling
    bonus: Bonus | None = None
    num_draft_tokens: int = 5
    cost_ratio: float | None = None
    max_new_tokens: int = 512
    eos_token_ids: tuple[int, ...] | None = None
    stop: tuple[str, ...] = ()
    batch_size: int = 8
    seed: int = 0
    compile_mode: CompileMode | None = None
    packed: bool = False

    def __post_init__(self) -> None:
        from cospec.engine.record import Sampling
        from cospec.engine.text import check_readable

        for name in ("top_k", "top_p", "min_p"):
            if self.sampling.greedy and getattr(self.sampling, name) != getattr(Sampling(), name):
                option = "--" + name.replace("_", "-")
                raise ValueError(
                    f"{option} chooses among tokens to draw from, and temperature 0 draws none: add "
                    f"--temperature above 0, or drop {option}"
                )
        for name in ("num_draft_tokens", "max_new_tokens", "batch_size"):
            if getattr(self, name) < 1:
                option = "--" + name.replace("_", "-")
                raise ValueError(f"{option} is {getattr(self, name)}: it must be at least 1")
        if self.cost_ratio is not None and not 0.0 < self.cost_ratio < float("inf"):
            raise ValueError(f"--cost-ratio is {self.cost_ratio}: it is a share of a target pass's time, above 0")
        check_readable(self.stop)
        if self.packed and self.compile_mode is not None:
            raise ValueError("--packed and --compile both say how passes run: drop one of them")

    def over(self, pair: Pair) -> Pair:
        """The pair to decode with: over packed weights where these are asked for."""
        from cospec.engine.packed import packed_pair

        return packed_pair(pair) if self.packed else pair

    def engine(self, pair: Pair, rule: Rule) -> Engine:
        """An engine with these settings."""
        from cospec.engine.decode import Engine

        self.check_ids(pair)
        if self.bonus and not rule.drafts:
            raise ValueError(f"--bonus is given, but rule {rule.name!r} drafts nothing: drop --bonus")
        names = (field.name for field in dataclasses.fields(self) if field.name != "packed")
        return Engine(self.over(pair), rule, **{name: getattr(self, name) for name in names})

    def check_ids(self, pair: Pair) -> None:
        """ValueError for an ending id that the pair's tokenizer does not have."""
        for token_id in self.eos_token_ids or ():
            if not 0 <= token_id < pair.vocab_size:
                raise ValueError(
                    f"--eos-token-id {token_id} is outside the pair's ids 0..{pair.vocab_size - 1}: no text would ever "
                    "end with it"
                )


def decode_options(
    *,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    repetition_penalty: float,
    eos_token_id: list[int] | None,
    stop: list[str] | None,
    bonus: Bonus | None,
    num_draft_tokens: int,
    cost_ratio: float | None,
    max_new_tokens: int,
    batch_size: int,
    seed: int,
    compile_mode: CompileMode | None = None,
    packed: bool = False,
) -> DecodeOptions:
    """`DecodeOptions` from the options as typer hands them over."""
    from cospec.engine.record import Sampling

    return DecodeOptions(
        sampling=Sampling(temperature, top_k, top_p, min_p, repetition_penalty),
        bonus=bonus,
        num_draft_tokens=num_draft_tokens,
        cost_ratio=cost_ratio,
        max_new_tokens=max_new_tokens,
        eos_token_ids=tuple(eos_token_id) if eos_token_id else None,
        stop=tuple(stop or ()),
        batch_size=batch_size,
        seed=seed,
        compile_mode=compile_mode,
        packed=packed,
    )


def decode_options_of(values: Mapping[str, Any]) -> DecodeOptions:
    """`decode_options` of a command's parameters, its others left aside."""
    return decode_options(**{name: values[name] for name in signature(decode_options).parameters if name in values})
