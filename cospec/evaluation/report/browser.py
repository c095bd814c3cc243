"""The decision browser: rollouts as coloured text, and the lists that lead into them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from cospec.engine.record import Block, Decision, Rollout
from cospec.evaluation.report.decisions import DecisionSet, Judged, Ranked, stake
from cospec.evaluation.report.text import plain, shortened, shown
from cospec.evaluation.report.tokens import TokenTexts

#: Longer texts are shown in part: their beginning, and the surroundings of the decisions that a list names.
MAX_TOKENS = 1200
_BLOCKS_AROUND = 12
_MAX_PROMPT_CHARS = 3000
_CONTEXT_CHARS = 60

_NOTHING = Markup()

PartKind = Literal["text", "round", "gap", "kept", "fallback"]


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a rollout's text; ``other`` is the candidate that a decision did not take.

    ``prob`` is the keep probability in words and ``tenth`` in tenths, the step of the colour scale; ``anchor`` is set
    where a list leads. A decision is risky where the target all but excludes the draft's token.
    """

    kind: PartKind
    text: Markup = _NOTHING
    other: Markup = _NOTHING
    tenth: int = 0
    is_risky: bool = False
    prob: str = ""
    note: str = ""
    anchor: str | None = None


@dataclass(frozen=True, slots=True)
class ShownRollout:
    """One article of the browser."""

    anchor: str
    id: str
    judged: Judged
    prompt: Markup
    parts: tuple[Part, ...]
    num_tokens: int
    num_hidden_tokens: int

    @property
    def verdict(self) -> str:
        return "not scored" if self.judged.verdict is None else self.judged.verdict.kind.replace("_", " ")


@dataclass(frozen=True, slots=True)
class ListRow:
    """One decision of a list; ``anchor`` is None where the cap left its text out."""

    anchor: str | None
    id: str
    verdict: str
    before: Markup
    taken: Markup
    other: Markup
    decision: Decision
    tenth: int


@dataclass(frozen=True, slots=True)
class Browser:
    """The lists and texts of one rollout file."""

    worst: tuple[ListRow, ...]
    best: tuple[ListRow, ...]
    uncertain: tuple[ListRow, ...]
    rollouts: tuple[ShownRollout, ...]


def browse(decisions: DecisionSet, texts: TokenTexts, prefix: str) -> Browser:
    """Lay out lists and texts; ``prefix`` makes the anchors unique in the page."""
    anchors = {id(judged): f"{prefix}-t{number}" for number, judged in enumerate(decisions.texts)}
    listed = [*decisions.worst, *decisions.best, *decisions.uncertain]
    wanted: dict[int, dict[tuple[int, int], str]] = {key: {} for key in anchors}
    for ranked in listed:
        if text := anchors.get(id(ranked.judged)):
            place = (ranked.block, ranked.decision.position)
            wanted[id(ranked.judged)][place] = f"{text}-b{place[0]}p{place[1]}"

    def rows(ranked: Sequence[Ranked]) -> tuple[ListRow, ...]:
        return tuple(_row(item, texts, wanted.get(id(item.judged), {})) for item in ranked)

    return Browser(
        rows(decisions.worst),
        rows(decisions.best),
        rows(decisions.uncertain),
        tuple(_article(judged, texts, anchors[id(judged)], wanted[id(judged)]) for judged in decisions.texts),
    )


def _row(ranked: Ranked, texts: TokenTexts, anchors: dict[tuple[int, int], str]) -> ListRow:
    rollout, decision = ranked.judged.rollout, ranked.decision
    index = _index(rollout, rollout.blocks[ranked.block], decision.position)
    pieces = texts.pieces(rollout.output_ids[: index + 1])
    taken, other = _candidates(rollout, index, decision, pieces[index], texts)
    before = shortened("".join(pieces[:index]), _CONTEXT_CHARS, keep_end=True)
    verdict = ranked.judged.verdict
    return ListRow(
        anchor=anchors.get((ranked.block, decision.position)),
        id=plain(str(rollout.id)),
        verdict="not scored" if verdict is None else verdict.kind.replace("_", " "),
        before=shown(before, line_breaks=False),
        taken=shown(taken, line_breaks=False),
        other=shown(other, line_breaks=False),
        decision=decision,
        tenth=_tenth(decision),
    )


def _article(judged: Judged, texts: TokenTexts, anchor: str, anchors: dict[tuple[int, int], str]) -> ShownRollout:
    rollout = judged.rollout
    blocks = _blocks_to_show(rollout, {block for block, _ in anchors})
    parts = tuple(_merged(_parts(rollout, blocks, texts, anchors)))
    num_shown = sum(len(rollout.blocks[number].emitted_ids) for number in blocks)
    return ShownRollout(
        anchor=anchor,
        id=plain(str(rollout.id)),
        judged=judged,
        prompt=shown(shortened(texts.text(rollout.prompt_ids), _MAX_PROMPT_CHARS, keep_end=True)),
        parts=parts,
        num_tokens=len(rollout.output_ids),
        num_hidden_tokens=len(rollout.output_ids) - num_shown,
    )


def _blocks_to_show(rollout: Rollout, wanted: set[int]) -> list[int]:
    """All blocks of a text of usual length, else the first ones and those around a wanted one."""
    if len(rollout.output_ids) <= MAX_TOKENS:
        return list(range(len(rollout.blocks)))
    end = len(rollout.prompt_ids) + MAX_TOKENS // 2
    return [
        number
        for number, block in enumerate(rollout.blocks)
        if block.start < end or any(abs(number - other) <= _BLOCKS_AROUND for other in wanted)
    ]


def _parts(
    rollout: Rollout, blocks: Sequence[int], texts: TokenTexts, anchors: dict[tuple[int, int], str]
) -> Iterator[Part]:
    pieces = texts.pieces(rollout.output_ids)
    previous = -1
    for number in blocks:
        if number != previous + 1:
            yield Part("gap")
        previous = number
        block = rollout.blocks[number]
        yield Part("round")
        decisions = {decision.position: decision for decision in block.decisions}
        for position, token in enumerate(block.emitted_ids):
            index = _index(rollout, block, position)
            decision = decisions.get(position)
            if decision is None:
                yield Part("text", texts.marked(token, pieces[index]))
            else:
                taken, other = _candidates(rollout, index, decision, pieces[index], texts)
                yield _decision_part(decision, taken, other, anchors.get((number, position)))
    if previous != len(rollout.blocks) - 1:
        yield Part("gap")


def _merged(parts: Iterator[Part]) -> Iterator[Part]:
    """Neighbouring texts as one part: most of a text is agreement."""
    run: list[Markup] = []
    for part in parts:
        if part.kind == "text":
            run.append(part.text)
            continue
        if run:
            yield Part("text", Markup("").join(run))
            run = []
        yield part
    if run:
        yield Part("text", Markup("").join(run))


def _decision_part(decision: Decision, taken: str, other: str, anchor: str | None) -> Part:
    first, second = ("draft's", "target's") if decision.kept else ("target's", "draft's")
    note = (
        f"{'kept' if decision.kept else 'fell back'}: the {first} {plain(taken)!r} over the {second} {plain(other)!r}, "
        f"keep probability {decision.keep_prob:.3f}; the target gives the draft's token "
        f"{decision.target_prob_of_draft:.3g}"
    )
    return Part(
        "kept" if decision.kept else "fallback",
        shown(taken),
        shown(other),
        _tenth(decision),
        stake(decision) > 0.5,
        f"{decision.keep_prob:.2f}",
        note,
        anchor,
    )


def _candidates(rollout: Rollout, index: int, decision: Decision, piece: str, texts: TokenTexts) -> tuple[str, str]:
    """The texts of the token that was taken and of the one that was not."""
    # At a rejection a rule may have written a token of its own instead of the target's.
    taken = rollout.output_ids[index]
    other = decision.target_id if decision.kept else decision.draft_id
    before = rollout.output_ids[:index]
    return piece or texts.one(before, taken), texts.one(before, other)


def _index(rollout: Rollout, block: Block, position: int) -> int:
    """Where in the output the token at this position of the block stands."""
    return block.start - len(rollout.prompt_ids) + position


def _tenth(decision: Decision) -> int:
    return round(10 * min(1.0, max(0.0, decision.keep_prob)))
