"""Ways of decoding over a pair, ours and transformers', under one interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from transformers import GenerationConfig

from cospec.arbiter.model import ArbiterScorer
from cospec.engine.compiled import CompileMode
from cospec.engine.decode import Engine
from cospec.engine.metrics import Acceptance, acceptance
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, Rule, rule_named
from cospec.pair import Pair

Prompts = Sequence[list[int]]


@dataclass(frozen=True, slots=True)
class Written:
    """The texts of the prompts, in their order; the acceptance where the engine counts it."""

    output_ids: list[list[int]]
    acceptance: Acceptance | None = None


class Method(Protocol):
    @property
    def engine(self) -> str: ...

    @property
    def scorer(self) -> ArbiterScorer | None:
        """The arbiter that takes part, if one does."""
        ...

    def write(self, prompts: Prompts, num_new: int, together: int) -> Written:
        """Continue prompts of one length by ``num_new`` tokens each, ``together`` at a time."""
        ...


@dataclass(frozen=True, slots=True)
class Ours:
    """The engine of this package with one rule."""

    pair: Pair
    rule: Rule
    num_draft_tokens: int
    engine: str = "cospec"
    compile_mode: CompileMode | None = None

    @property
    def scorer(self) -> ArbiterScorer | None:
        scorer = self.rule.scorer if isinstance(self.rule, ArbiterRule) else None
        assert scorer is None or isinstance(scorer, ArbiterScorer)
        return scorer

    def write(self, prompts: Prompts, num_new: int, together: int) -> Written:
        engine = Engine(
            self.pair,
            self.rule,
            num_draft_tokens=self.num_draft_tokens,
            max_new_tokens=num_new,
            batch_size=together,
            compile_mode=self.compile_mode,
        )
        rollouts = engine.rollouts([Request(place, prompt) for place, prompt in enumerate(prompts)])
        return Written([list(rollout.output_ids) for rollout in rollouts], acceptance(rollouts))


@dataclass(frozen=True, slots=True)
class Transformers:
    """`generate`, alone or with the draft as its assistant, in blocks of ``num_draft_tokens``."""

    pair: Pair
    num_draft_tokens: int | None
    engine: str = "transformers"
    scorer: None = None

    def write(self, prompts: Prompts, num_new: int, together: int) -> Written:
        written = []
        for start in range(0, len(prompts), together):
            written += generated(self.pair, prompts[start : start + together], num_new, (), self.num_draft_tokens)
        return Written(written)


def generated(
    pair: Pair, prompts: Prompts, num_new: int, eos_ids: Sequence[int], num_draft_tokens: int | None = None
) -> list[list[int]]:
    """Greedy texts by transformers' `generate` behind prompts of one length; padding behind an end is left on."""
    ids = torch.tensor(list(prompts), device=pair.device)
    wanted = GenerationConfig(
        do_sample=False, max_new_tokens=num_new, eos_token_id=list(eos_ids) or None, pad_token_id=0
    )
    # What a call leaves unset is filled from the models' own configs, and an assistant is set up by nothing else: its
    # defaults would vary the length of its blocks and end them where it is unsure.
    steady = GenerationConfig(
        num_assistant_tokens=num_draft_tokens,
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=0.0,
    )
    own = pair.target.generation_config, pair.draft.generation_config
    pair.target.generation_config = GenerationConfig()
    pair.draft.generation_config = steady if num_draft_tokens else own[1]
    try:
        output = pair.target.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            generation_config=wanted,
            **({"assistant_model": pair.draft} if num_draft_tokens else {}),
        )
    finally:
        pair.target.generation_config, pair.draft.generation_config = own
    return output[:, ids.shape[1] :].tolist()


def all_methods(pair: Pair, shared: ArbiterScorer, own: ArbiterScorer, num_draft_tokens: int) -> dict[str, Method]:
    """Every method by the name that the cases use."""
    rules: dict[str, Rule] = {name: rule_named(name) for name in ("target", "strict")}
    rules |= {"arbiter shared": ArbiterRule(shared), "arbiter own": ArbiterRule(own)}
    methods: dict[str, Method] = {name: Ours(pair, rule, num_draft_tokens) for name, rule in rules.items()}
    methods |= {"generate": Transformers(pair, None), "assisted": Transformers(pair, num_draft_tokens)}
    return methods
