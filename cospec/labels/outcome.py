"""The outcome labeller: continue from both branches of a mismatch and see which answers come out right (ours)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cospec.engine.decode import Engine
from cospec.engine.record import Rollout
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, BlockScorer, rule_named
from cospec.engine.text import cut_at_stop, decode_text
from cospec.labels.record import ContinueWith, LabelScope, MismatchLabel, RolloutLabels, digest, problem_digest
from cospec.pair import Pair
from cospec.scoring import UserScorer, safe_score

CONTINUE_WITH = ("target", "draft", "either", "arbiter")
SCOPES = ("block", "executed")


@dataclass(frozen=True, slots=True)
class _Branch:
    """One continuation to score: the text so far is ``ids`` behind the prompt, token ``ids[-1]`` is the branch."""

    rollout: int
    block: int
    position: int
    side: str
    ids: tuple[int, ...]


class OutcomeLabeller:
    """Labels mismatches by the answers that both branches lead to.

    Only one branch right: 1 or 0. Both right: 1, as keeping is then free speed. Both wrong: no label. With ``either`` a
    branch is right if the target or the draft finishes it rightly: the target alone undervalues a kept token where more
    keeps are needed later. ``scope`` "block" labels every mismatch of a block, each in the state in which the draft's
    tokens before it were kept; "executed" only those that were decided. ``scorer_name`` goes on record with the labels.
    ``failures`` collects the scorer's reasons, ``num_scored`` counts all texts it was given.
    """

    def __init__(
        self,
        pair: Pair,
        scorer: UserScorer,
        *,
        scorer_name: str = "",
        continue_with: ContinueWith = "either",
        scope: LabelScope = "block",
        batch_size: int = 64,
        arbiter: BlockScorer | None = None,
    ) -> None:
        if continue_with not in CONTINUE_WITH:
            raise ValueError(f"continue_with is {continue_with!r}: choose one of {', '.join(CONTINUE_WITH)}")
        if scope not in SCOPES:
            raise ValueError(f"label scope is {scope!r}: choose one of {', '.join(SCOPES)}")
        if (continue_with == "arbiter") != (arbiter is not None):
            raise ValueError("continue_with 'arbiter' and an arbiter directory go together: give both or neither")
        self.pair, self.scorer, self.scorer_name, self.batch_size = pair, scorer, scorer_name, batch_size
        self.continue_with, self.scope, self.arbiter = continue_with, scope, arbiter
        self.num_scored = 0
        self.failures: list[str] = []

    def label(self, rollouts: Sequence[Rollout], rows: Mapping[str | int, Mapping[str, Any]]) -> list[RolloutLabels]:
        """Labels of these rollouts, in order; ``rows`` holds each rollout's scorer row by its id."""
        branches = [b for index, rollout in enumerate(rollouts) for b in _branches(index, rollout, self.scope)]
        right = self._outcomes(branches, rollouts, rows)
        labels: list[list[MismatchLabel]] = [[] for _ in rollouts]
        # The draft's and the target's branch of a mismatch stand next to each other.
        for draft, outcome_draft, outcome_target in zip(branches[::2], right[::2], right[1::2], strict=True):
            label = MismatchLabel(
                draft.block, draft.position, outcome_draft, outcome_target, _worth(outcome_draft, outcome_target)
            )
            labels[draft.rollout].append(label)
        return [
            RolloutLabels(
                rollout.id,
                digest(rollout),
                problem_digest(rows[rollout.id]),
                self.continue_with,
                self.scope,
                self.scorer_name,
                tuple(mine),
            )
            for rollout, mine in zip(rollouts, labels, strict=True)
        ]

    def _outcomes(
        self, branches: Sequence[_Branch], rollouts: Sequence[Rollout], rows: Mapping[str | int, Mapping[str, Any]]
    ) -> list[bool | None]:
        """Whether each branch ends right; None where no verdict was to be had."""
        right: list[bool | None] = [False] * len(branches)
        for who in ("target", "draft") if self.continue_with == "either" else (self.continue_with,):
            # What one continuation got right the other need not try.
            open_ones = [i for i, outcome in enumerate(right) if not outcome]
            texts = self._continue(who, [branches[i] for i in open_ones], rollouts)
            for i, text in zip(open_ones, texts, strict=True):
                verdict = safe_score(self.scorer, text, rows[rollouts[branches[i].rollout].id])
                self.num_scored += 1
                if verdict.is_right:
                    right[i] = True
                elif verdict.is_failure:
                    right[i] = None
                    self.failures.append(verdict.reason)
        return right

    def _continue(self, who: str, branches: Sequence[_Branch], rollouts: Sequence[Rollout]) -> list[str]:
        """The whole text of each branch, finished by ``who``; equal beginnings are continued once."""
        starts = [_foreseen(who, branch, rollouts[branch.rollout]) for branch in branches]
        finished: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
        requests, keys = [], []
        for branch, ids in zip(branches, starts, strict=True):
            rollout, key = rollouts[branch.rollout], (branch.rollout, ids)
            left = rollout.settings.max_new_tokens - len(ids)
            prompt = rollout.prompt_ids + ids
            if key in finished:
                continue
            finished[key] = ids
            ended = ids[-1] in rollout.settings.eos_token_ids
            if not ended and left > 0 and len(prompt) < self.pair.target_context:
                name = f"{rollout.id}/{branch.block}/{branch.position}/{branch.side}"
                requests.append(Request(name, prompt, left))
                keys.append(key)
        for place, continued in self._engine(who, rollouts[0]).run(requests):
            finished[keys[place]] += continued.output_ids
        tokenizer, stops = self.pair.tokenizer, rollouts[0].settings.stop
        # A stop string may begin in front of the branch, where the engine that finishes it does not look.
        texts = {key: cut_at_stop(decode_text(tokenizer, ids), stops) for key, ids in finished.items()}
        return [texts[branch.rollout, ids] for branch, ids in zip(branches, starts, strict=True)]

    def _engine(self, who: str, example: Rollout) -> Engine:
        """The engine that finishes a branch as the rollouts were decoded: same sampling, K, endings and seed."""
        pair, rule = self.pair, rule_named("never")
        if who == "draft":
            pair, rule = self.pair.draft_alone(), rule_named("target")
        elif who == "arbiter":
            assert self.arbiter is not None
            rule = ArbiterRule(self.arbiter)
        settings = example.settings
        return Engine(
            pair,
            rule,
            num_draft_tokens=settings.num_draft_tokens,
            max_new_tokens=settings.max_new_tokens,
            sampling=settings.sampling,
            eos_token_ids=settings.eos_token_ids,
            stop=settings.stop,
            batch_size=self.batch_size,
            seed=settings.seed,
        )


def _branches(index: int, rollout: Rollout, scope: str) -> Iterator[_Branch]:
    """Both branches of every mismatch to label, the draft's first."""
    for number, block in enumerate(rollout.blocks):
        before = rollout.output_ids[: block.start - len(rollout.prompt_ids)]
        executed = {decision.position for decision in block.decisions}
        # A block that a stop string cut ends there: what was drafted behind it is no part of the text.
        cut = rollout.finish_reason == "stop" and block is rollout.blocks[-1]
        end = block.accepted_len if cut and block.accepted_len == len(block.emitted_ids) else None
        tokens = zip(block.draft_ids[:end], block.target_ids[:end], strict=True)
        for position, (draft, target) in enumerate(tokens):
            if draft == target or (scope == "executed" and position not in executed):
                continue
            kept = before + block.draft_ids[:position]
            yield _Branch(index, number, position, "draft", (*kept, draft))
            yield _Branch(index, number, position, "target", (*kept, target))


def _foreseen(who: str, branch: _Branch, rollout: Rollout) -> tuple[int, ...]:
    """The branch, lengthened by what the recorded rollout already shows of its continuation (greedy only).

    The draft goes on as its own block does, and the target's token at a rejected mismatch was followed by the rest of
    a vanilla rollout.
    """
    block, settings = rollout.blocks[branch.block], rollout.settings
    if not settings.sampling.greedy:
        return branch.ids
    if who == "draft" and branch.side == "draft":
        return branch.ids + block.draft_ids[branch.position + 1 :]
    vanilla = settings.rule in ("never", "strict")
    executed = any(decision.position == branch.position for decision in block.decisions)
    if who == "target" and branch.side == "target" and vanilla and executed:
        return rollout.output_ids
    return branch.ids


def _worth(draft_right: bool | None, target_right: bool | None) -> float | None:
    if draft_right is None or target_right is None or not (draft_right or target_right):
        return None
    return 1.0 if draft_right else 0.0
