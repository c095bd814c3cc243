"""From the shared options to objects; what can be refused cheaply is refused before any weights are read."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cospec.cli.options import DraftUse, require_pair_choice

if TYPE_CHECKING:
    from cospec.engine.compiled import CompileMode
    from cospec.engine.decode import Engine
    from cospec.engine.drafters import Drafter
    from cospec.engine.record import Bonus, Sampling
    from cospec.engine.rules import Rule
    from cospec.evaluation import EvalSettings
    from cospec.pair import Pair, PairSpec

# --- the pair --------------------------------------------------------------------------------------------------------


def read_pair_spec(
    pair: Path | None,
    draft: str | None,
    target: str | None,
    device: str | None = None,
    dtype: str | None = None,
    attn: str | None = None,
    *,
    draft_use: DraftUse = "needed",
) -> PairSpec:
    """The pair the options describe; ``device``, ``dtype`` and ``attn`` go before what a pair file says of both models.

    ``pair`` is a PAIR.yaml or the word `tiny`; with ``draft_use`` none, its draft is left aside. ValueError for a pair
    named in no or two ways, for a path that does not exist, and for a draft that is needed and not there.
    """
    from cospec.pair import ModelSpec, PairSpec
    from cospec.pair_file import override, read_pair_file

    require_pair_choice(pair, draft, target, draft_use)
    if pair is not None:
        spec = read_pair_file(pair)
    else:
        assert target is not None
        spec = PairSpec(None if draft is None else ModelSpec(draft), ModelSpec(target))
    if draft_use == "none":
        spec = dataclasses.replace(spec, draft=None)
    if draft_use == "needed" and spec.draft is None:
        raise ValueError(f"{pair} has no draft, and this needs one: name one in it, or use a --drafter without a model")
    return override(spec, device, dtype, attn)


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
    *,
    draft_use: DraftUse = "needed",
) -> Pair:
    """`read_pair_spec`, then the models themselves."""
    from cospec.pair import load_pair, pick_device

    spec = read_pair_spec(pair, draft, target, device, dtype, attn, draft_use=draft_use)
    for model in spec.models.values():
        pick_device(model.device)
    if not sys.stderr.isatty():
        from transformers.utils import logging

        logging.disable_progress_bar()
    return load_pair(spec)


# --- the rule --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RuleChoice:
    """What decides at a mismatch, as the options put it; checked by `choose_rule`, built by `rule_from_options`.

    ``bonus`` None is that of the options that all methods share.
    """

    name: str
    arbiter: Path | None = None
    threshold: float = 0.5
    sampled: bool = False
    bonus: Bonus | None = None


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
            if name.startswith("judge:") and not sampled:
                raise ValueError(f"--threshold is an arbiter's: write {name.partition(',')[0]},threshold={threshold}")
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
    drafter: str | None = None

    def __post_init__(self) -> None:
        from cospec.engine.drafters import check_use
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
        check_use(self.make_drafter(), arbiter=False, cost_ratio=self.cost_ratio)
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
        names = (field.name for field in dataclasses.fields(self) if field.name not in ("drafter", "packed"))
        settings = {name: getattr(self, name) for name in names}
        return Engine(self.over(pair), rule, drafter=self.make_drafter(), **settings)

    def make_drafter(self) -> Drafter:
        """The drafter; ValueError for a spec that names none."""
        from cospec.engine.drafters import drafter_named

        return drafter_named(self.drafter or "model")

    def draft_use(self, choices: Iterable[RuleChoice]) -> DraftUse:
        """Whether methods of these choices need the pair's draft model; ValueError for what does not go together."""
        from cospec.engine.drafters import check_use
        from cospec.engine.rules import rule_named

        drafter, use = self.make_drafter(), set[DraftUse]()
        for choice in choices:
            check_use(drafter, arbiter=choice.arbiter is not None, cost_ratio=self.cost_ratio)
            if choice.name == "draft" or choice.arbiter is not None:
                use.add("needed")
            elif rule_named(choice.name).drafts:
                use.add("needed" if drafter.runs_draft_model else "none")
        return "needed" if "needed" in use else "none" if use else "optional"

    def eval_settings(self, repeats: int, *, raw: bool, workers: int) -> EvalSettings:
        """The same for methods side by side; each method has its own bonus."""
        from cospec.evaluation import EvalSettings

        return EvalSettings(
            num_draft_tokens=self.num_draft_tokens,
            max_new_tokens=self.max_new_tokens,
            sampling=self.sampling,
            eos_token_ids=self.eos_token_ids,
            stop=self.stop,
            cost_ratio=self.cost_ratio,
            drafter=self.make_drafter(),
            batch_size=self.batch_size,
            seed=self.seed,
            repeats=repeats,
            raw=raw,
            workers=workers,
        )

    def check_rule(self, choice: RuleChoice) -> None:
        """ValueError for a rule that does not go with these settings; needs no models."""
        from cospec.engine.rules import check_bonus, rule_named

        if choice.arbiter is None and choice.name != "draft":
            rule = rule_named(choice.name)
            rule.check_sampling(self.sampling)
            bonus = choice.bonus or self.bonus
            if rule.drafts:
                check_bonus(bonus, rule)
                rule.check_drafter(bonus or rule.default_bonus, one_hot=self.make_drafter().one_hot)

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
    drafter: str | None = None,
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
        drafter=_own_spec(drafter),
    )


def _own_spec(drafter: str | None) -> str | None:
    """The canonical spec, None for the draft model, which nobody has to name."""
    from cospec.engine.drafters import ModelDrafter, drafter_named

    spec = None if drafter is None else drafter_named(drafter).spec
    return None if spec == ModelDrafter.spec else spec


def decode_options_of(values: Mapping[str, Any]) -> DecodeOptions:
    """`decode_options` of a command's parameters, its others left aside."""
    return decode_options(**{name: values[name] for name in signature(decode_options).parameters if name in values})
