"""What the engine returns: decisions, blocks, rollouts. All that comes after reads these."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

FinishReason = Literal["eos", "stop", "length"]
#: What follows a fully accepted block: a draft token decided like any other, the target's own token, or one drawn from
#: the rule's own law.
Bonus = Literal["arbitrated", "target", "rule"]
ContextCache = Literal["own", "shared"]

#: Temperatures and penalties beyond would leave float32: logits divided by both overflow, and a row of inf has no law.
_LEAST, _MOST = 1e-10, 1e10


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen from a row of logits; temperature 0 is greedy.

    top_k 0, top_p 1, min_p 0 and repetition_penalty 1 are off. The penalty holds for the ids of prompt and text.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature != 0.0 and not _LEAST <= self.temperature <= _MOST:
            raise ValueError(
                f"temperature is {self.temperature}: it must be 0 (greedy) or lie in [{_LEAST:g}, {_MOST:g}]"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}: it must be >= 0 (0 switches it off)")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p is {self.top_p}: it must lie in (0, 1] (1 switches it off)")
        if not 0.0 <= self.min_p <= 1.0:
            raise ValueError(f"min_p is {self.min_p}: it must lie in [0, 1] (0 switches it off)")
        if not _LEAST <= self.repetition_penalty <= _MOST:
            raise ValueError(
                f"repetition_penalty is {self.repetition_penalty}: it must lie in [{_LEAST:g}, {_MOST:g}] (1 switches "
                "it off)"
            )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides a rollout's tokens apart from the weights and the prompt.

    ``drafter`` is the spec of what drafted, None where the rule drafts nothing.
    """

    seed: int
    rule: str
    num_draft_tokens: int
    bonus: Bonus
    max_new_tokens: int
    sampling: Sampling
    eos_token_ids: tuple[int, ...]
    threshold: float | None = None
    sampled_decisions: bool = False
    context_cache: ContextCache | None = None
    stop: tuple[str, ...] = ()
    cost_ratio: float | None = None
    drafter: str | None = "model"


@dataclass(frozen=True, slots=True)
class Decision:
    """An executed mismatch (method section 1).

    ``position`` is 0-based in its block; ``target_prob_of_draft`` is the target's softmax at temperature 1, before any
    processing; ``keep_prob`` is what the rule gave the draft's token (1 or 0 for the constant rules).
    """

    position: int
    draft_id: int
    target_id: int
    target_prob_of_draft: float
    keep_prob: float
    kept: bool


@dataclass(frozen=True, slots=True)
class Block:
    """One round of one sequence. ``start`` counts the tokens before it, prompt included.

    ``draft_ids`` and ``target_ids`` have n entries each (n may be 0); a target bonus is in ``emitted_ids`` only.
    ``accepted_len`` is L of the method, cut at the first committed ending.
    """

    start: int
    draft_ids: tuple[int, ...]
    target_ids: tuple[int, ...]
    decisions: tuple[Decision, ...]
    accepted_len: int
    emitted_ids: tuple[int, ...]


def cut_block(block: Block, num_tokens: int) -> Block:
    """The block as if it had ended behind its first ``num_tokens`` committed tokens: later decisions never happened."""
    return dataclasses.replace(
        block,
        decisions=tuple(decision for decision in block.decisions if decision.position < num_tokens),
        accepted_len=min(block.accepted_len, num_tokens),
        emitted_ids=block.emitted_ids[:num_tokens],
    )


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds from admission to the end; ``prefill_s`` is shared by the rows admitted together.

    ``active_s`` is this row's share of the engine's work: the seconds of every prefill and every round divided evenly
    among the rows that took part, so that it adds up to the engine's whole time over the rows of a run. ``draft_s``,
    ``target_s`` and ``arbiter_s`` are the parts of it that rounds spent there. ``cpu_s`` is the processor time of this
    process in it, all threads together; 0 where another device does the work.
    """

    wall_s: float = 0.0
    prefill_s: float = 0.0
    active_s: float = 0.0
    draft_s: float = 0.0
    target_s: float = 0.0
    arbiter_s: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rollout:
    """One finished request.

    ``output_ids`` includes the EOS that ended it, or the token that completed the stop string ``stop``; ``text`` ends
    before either.
    """

    id: str | int
    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    text: str
    blocks: tuple[Block, ...]
    finish_reason: FinishReason
    settings: Settings
    timings: Timings
    stop: str | None = None

    @property
    def num_rounds(self) -> int:
        return len(self.blocks)

    @property
    def num_drafted(self) -> int:
        return sum(len(block.draft_ids) for block in self.blocks)

    @property
    def num_accepted(self) -> int:
        return sum(block.accepted_len for block in self.blocks)

    @property
    def num_mismatches(self) -> int:
        return sum(len(block.decisions) for block in self.blocks)

    @property
    def num_kept(self) -> int:
        return sum(decision.kept for block in self.blocks for decision in block.decisions)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        return tuple(decision for block in self.blocks for decision in block.decisions)

    def to_json(self) -> dict[str, Any]:
        """A JSON-ready mapping from which `rollout_from_json` rebuilds an equal rollout."""
        return dataclasses.asdict(self)


def rollout_from_json(row: Mapping[str, Any]) -> Rollout:
    """Rebuild a rollout; a missing or unknown field raises ValueError naming the row's id."""
    try:
        settings = dict(row["settings"])
        settings["sampling"] = Sampling(**settings["sampling"])
        settings["eos_token_ids"] = tuple(settings["eos_token_ids"])
        settings["stop"] = tuple(settings.get("stop", ()))
        fields = dict(row)
        fields |= {
            "prompt_ids": tuple(row["prompt_ids"]),
            "output_ids": tuple(row["output_ids"]),
            "blocks": tuple(_blocks(row["blocks"])),
            "settings": Settings(**settings),
            "timings": Timings(**row["timings"]),
        }
        return Rollout(**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"rollout {row.get('id')!r} is not a record of this version ({error}): write it again with `cospec rollout`"
        ) from error


def _blocks(rows: Iterable[Mapping[str, Any]]) -> Iterable[Block]:
    for row in rows:
        yield Block(
            start=row["start"],
            draft_ids=tuple(row["draft_ids"]),
            target_ids=tuple(row["target_ids"]),
            decisions=tuple(Decision(**decision) for decision in row["decisions"]),
            accepted_len=row["accepted_len"],
            emitted_ids=tuple(row["emitted_ids"]),
        )
