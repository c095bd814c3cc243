"""Same ids whatever the way: the bundled tiny pair in float32."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from compiled import MODES
from methods import generated
from random_arbiter import random_scorer

from cospec.arbiter.model import separator
from cospec.engine.decode import Engine
from cospec.engine.record import ContextCache, Decision, Rollout
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, Rule, rule_named
from cospec.pair import ModelSpec, Pair, PairSpec, load_pair
from cospec.prompts import prompt_ids
from cospec.tasks.word_problems import generate

LORA_R = 8

Texts = list[list[int]]
#: The name of a check and where its two sides part; None where they are the same.
Check = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Subject:
    """A pair, its prompts and how many tokens are written behind each."""

    pair: Pair
    prompts: Texts
    num_new: int

    def decode(self, rule: Rule | str, prompts: Texts | None = None, **settings: Any) -> list[Rollout]:
        """The prompts decoded together, unless ``settings`` of the engine say otherwise."""
        prompts = self.prompts if prompts is None else prompts
        chosen = rule_named(rule) if isinstance(rule, str) else rule
        engine = Engine(self.pair, chosen, max_new_tokens=self.num_new, **({"batch_size": len(prompts)} | settings))
        return engine.rollouts([Request(place, prompt) for place, prompt in enumerate(prompts)])

    def singles(self, rule: Rule | str) -> list[Rollout]:
        """Every prompt in a run of its own."""
        return [self.decode(rule, [prompt])[0] for prompt in self.prompts]

    def generated(self) -> Texts:
        """The target's texts by transformers, prompt by prompt."""
        ends = self.pair.eos_token_ids
        return [generated(self.pair, [prompt], self.num_new, ends)[0] for prompt in self.prompts]


def tiny_subject(directory: Path, device: torch.device, num_prompts: int, num_new: int, attn: str = "sdpa") -> Subject:
    """The bundled pair in float32 with word problems of different lengths."""
    draft, target = (
        ModelSpec(str(directory / role), dtype="float32", device=str(device), attn=attn) for role in ("draft", "target")
    )
    pair = load_pair(PairSpec(draft, target))
    prompts = [prompt_ids(pair, problem.prompt) for problem in generate(num_prompts, seed=9001)]
    return Subject(pair, prompts, num_new)


def checks(subject: Subject, eager: Subject) -> Iterator[Check]:
    """Every check on the pair; ``eager`` is the same pair with the eager attention."""
    expected = ids_of(subject.decode("target"))

    def same(name: str, found: Sequence[Rollout] | Texts) -> Check:
        texts = [list(text.output_ids) if isinstance(text, Rollout) else text for text in found]
        return name, texts_differ(subject, texts, expected)

    yield same("transformers' generate is our target-only", subject.generated())
    for rule in ("target", "never", "strict"):
        yield same(f"{rule}, each prompt alone, is target-only", subject.singles(rule))
    for rule in ("never", "strict"):
        for k in range(1, 9):
            yield same(f"{rule} with K = {k} is target-only", subject.decode(rule, num_draft_tokens=k))
    for chunk in (1, 5, 16):
        yield same(
            f"strict, prompts in chunks of {chunk}, is target-only", subject.decode("strict", prefill_chunk=chunk)
        )
    yield same("strict in another order and batch size is target-only", shuffled(subject))
    for rule in ("target", "strict"):
        yield same(f"{rule} with eager attention is target-only", eager.decode(rule))
    for cache in ("shared", "own"):
        yield from arbiter_checks(subject, eager, cache)


def arbiter_checks(subject: Subject, eager: Subject, cache: ContextCache) -> Iterator[Check]:
    """An arbiter decides alike in a batch, alone, and with the eager attention."""
    rule, eager_rule = (
        ArbiterRule(random_scorer(each.pair.draft, cache, LORA_R, separator(each.pair.eos_token_ids)))
        for each in (subject, eager)
    )
    batch, name = subject.decode(rule), f"arbiter, {cache} cache"
    yield f"{name}: decisions alone are the batch's", decisions_differ(subject.singles(rule), batch)
    yield f"{name}: decisions with eager attention are the batch's", decisions_differ(eager.decode(eager_rule), batch)
    kept, decided = sum(row.num_kept for row in batch), sum(row.num_mismatches for row in batch)
    one_sided = None if 0 < kept < decided else f"{kept} of {decided} are kept, so nothing was tested"
    yield f"{name}: some mismatches are kept and some are not", one_sided


def graphs_check(subject: Subject) -> tuple[bool | None, str | None]:
    """Whether compiled passes write what plain ones do, and where not; None and the reason where there are none."""
    mode = MODES.get(subject.pair.device.type)
    if mode is None:
        return None, f"nothing compiles passes on {subject.pair.device.type}"
    found = ids_of(subject.decode("strict", compile_mode=mode))
    difference = texts_differ(subject, found, ids_of(subject.decode("strict")))
    return difference is None, difference


def ids_of(rollouts: Sequence[Rollout]) -> Texts:
    return [list(rollout.output_ids) for rollout in rollouts]


def shuffled(subject: Subject) -> list[Rollout]:
    """The prompts decoded in another order, three at a time, and put back into theirs."""
    order = torch.randperm(len(subject.prompts), generator=torch.Generator().manual_seed(1)).tolist()
    found = subject.decode("strict", [subject.prompts[place] for place in order], batch_size=3)
    return [rollout for _, rollout in sorted(zip(order, found, strict=True), key=lambda both: both[0])]


def texts_differ(subject: Subject, found: Texts, expected: Texts) -> str | None:
    """The first place at which two lists of texts part, and how near a tie the target is there."""
    for prompt, mine, other in zip(subject.prompts, found, expected, strict=True):
        if mine != other:
            parted = (i for i, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b)
            same = next(parted, min(len(mine), len(other)))
            tokens = f"{mine[same : same + 3]} for {other[same : same + 3]}"
            margin = _margin(subject.pair, [*prompt, *other[:same]])
            return f"prompt of {len(prompt)}, token {same}: {tokens}; the target's two best are {margin:.2g} apart"
    return None


def decisions_differ(found: Sequence[Rollout], expected: Sequence[Rollout]) -> str | None:
    """The first text in which decisions or ids part, and its first differing decision."""
    for mine, other in zip(found, expected, strict=True):
        if [*map(_bare, mine.decisions)] != [*map(_bare, other.decisions)] or mine.output_ids != other.output_ids:
            both = zip(mine.decisions, other.decisions, strict=False)
            parted = next((f"{a} for {b}" for a, b in both if _bare(a) != _bare(b)), "one has more decisions")
            return f"text {other.id}: {parted}"
    return None


def _bare(decision: Decision) -> tuple[int, int, int, bool]:
    """What of a decision must be the same; probabilities may differ in their last bits."""
    return decision.position, decision.draft_id, decision.target_id, decision.kept


@torch.no_grad()
def _margin(pair: Pair, ids: list[int]) -> float:
    """By how much the target's first choice behind ``ids`` leads the second."""
    logits = pair.target(input_ids=torch.tensor([ids], device=pair.device)).logits[0, -1, : pair.vocab_size]
    first, second = logits.topk(2).values.tolist()
    return first - second
