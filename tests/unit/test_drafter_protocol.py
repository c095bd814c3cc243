"""What the engine owes every drafter, shown with one that proposes what a test tells it to, and reads hidden states."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import pytest
import torch
from conftest import VOCAB_SIZE, family_pair, pair_of, random_prompts
from engine_checks import assert_counters, outputs, trace
from reference import Uncached
from torch import Tensor

from cospec.engine.cached_model import PromptPart
from cospec.engine.contexts import Contexts
from cospec.engine.decode import Engine
from cospec.engine.drafters import DRAFTERS, Draft, ModelDrafter, Outcome, RunShape, drafter_named
from cospec.engine.record import Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.engine.sampling import Draws
from cospec.pair import Pair

LAYERS = (0, 1, 2)
NUM_NEW = 14


@functools.cache
def uncached(model: torch.nn.Module) -> Uncached:
    return Uncached(model, VOCAB_SIZE)


class GuessingDrafter:
    """Guesses what the target would say, often wrong and sometimes nothing, and follows the hidden states."""

    spec, runs_draft_model, one_hot, costs_steps = "guess", False, True, False

    def __init__(self, layers: tuple[int, ...] = (), context: int = 10**6) -> None:
        self.layers, self.context = layers, context
        self.bound: list[BoundGuess] = []

    def load(self, pair: Pair, max_drafts: int) -> None:
        self.max_drafts = max_drafts

    def bind(self, run: RunShape) -> BoundGuess:
        self.bound.append(BoundGuess(self, run))
        return self.bound[-1]


class BoundGuess:
    """Holds, for each row, the hidden states of all its positions so far."""

    def __init__(self, drafter: GuessingDrafter, run: RunShape) -> None:
        self.layers, self.context, self.target = drafter.layers, drafter.context, uncached(run.pair.target)
        self.states: list[Tensor] = [torch.empty(0)] * run.num_rows
        self.admitted: list[list[int]] = [[] for _ in range(run.num_rows)]
        self.seen: list[tuple[list[int], Tensor]] = []
        self.widths: list[int] = []

    def admit(self, ids: Tensor, lengths: Mapping[int, int], chunk: int) -> None:
        for row, length in lengths.items():
            self.states[row] = torch.empty(0)
            self.admitted[row] = ids[row, :length].tolist()

    def read(self, ids: Tensor, part: PromptPart) -> None:
        hidden = part.hidden.of(self.layers)
        for place, row in enumerate(part.rows):
            assert int(part.starts[place]) == len(self.states[row])
            self.states[row] = torch.cat([self.states[row], hidden[place, : part.counts[place]]])

    def propose(self, contexts: Contexts, num_steps: int, draws: Draws) -> Draft:
        rows = torch.arange(len(contexts.ids))
        last = contexts.ids[rows, contexts.lengths - 1]
        num = torch.minimum(contexts.limits, (last + contexts.lengths) % 7)
        width = int(num.max())
        self.widths.append(width)
        guesses = torch.zeros(len(rows), width, dtype=torch.long)
        for row in rows.tolist():
            text = contexts.ids[row, : contexts.lengths[row]].tolist()
            if self.layers:
                self.seen.append((text, self.states[row]))
            for place in range(num[row]):
                guesses[row, place] = self.guess([*text, *guesses[row, :place].tolist()])
        return Draft(guesses, num, None, one_hot=True)

    def guess(self, text: Sequence[int]) -> int:
        return (self.target.choice(text) + (sum(text) % 4 == 0)) % VOCAB_SIZE

    def commit(self, outcome: Outcome) -> None:
        assert (outcome.accepted <= outcome.num_drafted).all()
        if not self.layers:
            assert outcome.hidden is None
            return
        assert outcome.hidden is not None
        hidden = outcome.hidden.of(self.layers)
        for row, num in enumerate(outcome.num_emitted.tolist()):
            if outcome.lengths[row] > self.context:
                continue
            assert len(self.states[row]) == int(outcome.lengths[row]) - 1
            self.states[row] = torch.cat([self.states[row], hidden[row, :num]])

    def select_rows(self, rows: Tensor) -> None:
        self.states = [self.states[row] for row in rows.tolist()]


def decoded(
    pair: Pair, drafter: GuessingDrafter, prompts: Sequence[Sequence[int]], **settings: object
) -> list[Rollout]:
    engine = Engine(pair, rule_named("strict"), drafter=drafter, max_new_tokens=NUM_NEW, **settings)
    return engine.rollouts([Request(i, list(prompt)) for i, prompt in enumerate(prompts)])


@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_guessing_drafter_writes_the_targets_text(prompts: list[list[int]], batch_size: int) -> None:
    pair = pair_of(None, family_pair("llama", "sdpa").target)
    drafter = GuessingDrafter()
    found = decoded(pair, drafter, prompts, batch_size=batch_size)
    alone = Engine(pair, rule_named("target"), max_new_tokens=NUM_NEW)
    assert outputs(found) == outputs(alone.rollouts([Request(i, p) for i, p in enumerate(prompts)]))
    for rollout in found:
        assert_counters(rollout)
        assert rollout.settings.drafter == "guess"
    widths = {width for bound in drafter.bound for width in bound.widths}
    assert 0 in widths or batch_size > 1
    assert len({len(block.draft_ids) for rollout in found for block in rollout.blocks}) > 3


def test_company_changes_nothing_of_a_sampled_text(prompts: list[list[int]]) -> None:
    pair, settings = pair_of(None, family_pair("llama", "sdpa").target), {"sampling": Sampling(temperature=1.1)}
    together = decoded(pair, GuessingDrafter(), prompts, batch_size=4, **settings)
    alone = decoded(pair, GuessingDrafter(), prompts, batch_size=1, **settings)
    assert [trace(rollout) for rollout in together] == [trace(rollout) for rollout in alone]
    assert sum(rollout.num_accepted for rollout in alone) > 0


@pytest.mark.parametrize("rule", ["strict", "never", "always"])
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_hidden_states_are_those_of_a_full_forward(family: str, rule: str) -> None:
    """Refills, chunked prompts, full and partly accepted blocks, both forms of the bonus."""
    pair = pair_of(None, family_pair(family, "sdpa").target)
    drafter = GuessingDrafter(LAYERS)
    prompts = random_prompts(1, 9, 2, 17, 5, 30, seed=4)
    engine = Engine(pair, rule_named(rule), drafter=drafter, max_new_tokens=NUM_NEW, batch_size=4, prefill_chunk=6)
    engine.rollouts([Request(i, prompt) for i, prompt in enumerate(prompts)])
    (bound,) = drafter.bound
    assert len(bound.seen) > 20
    for text, states in bound.seen[::3]:
        # The newest token has not been fed yet.
        assert len(states) == len(text) - 1
        if len(states):
            with torch.no_grad():
                full = pair.target(input_ids=torch.tensor([text[:-1]]), output_hidden_states=True).hidden_states
            assert torch.allclose(states, torch.cat([full[layer][0] for layer in LAYERS], -1), atol=1e-3, rtol=1e-3)


def test_rows_beyond_a_drafters_context_are_left_to_the_target() -> None:
    pair = pair_of(None, family_pair("llama", "sdpa").target)
    drafter = GuessingDrafter(LAYERS, context=12)
    found = decoded(pair, drafter, random_prompts(4, 20, 9, seed=2), batch_size=2)
    for rollout in found:
        for block in rollout.blocks:
            assert block.start + len(block.draft_ids) <= 12 or not block.draft_ids
    assert found[0].num_drafted > 0 == found[1].num_drafted
    assert len(drafter.bound[0].admitted[1]) != 20


def test_a_layer_that_is_not_there_is_refused() -> None:
    pair = family_pair("llama", "sdpa")
    with pytest.raises(ValueError, match=r"layer 3 .* has 0 \(the embeddings\) to 2"):
        decoded(pair, GuessingDrafter((3,)), [[5, 6]])


def test_hidden_states_are_not_to_be_had_from_compiled_passes() -> None:
    with pytest.raises(ValueError, match="'guess' reads the target's hidden states, which compiled passes do not give"):
        Engine(
            family_pair("llama", "sdpa"), rule_named("strict"), drafter=GuessingDrafter(LAYERS), compile_mode="inductor"
        )


def test_the_draft_model_is_the_default_drafter() -> None:
    pair = family_pair("llama", "sdpa")
    own = Engine(pair, rule_named("strict"), max_new_tokens=NUM_NEW)
    named = Engine(pair, rule_named("strict"), drafter=drafter_named("model"), max_new_tokens=NUM_NEW)
    assert own.settings == named.settings
    assert own.settings.drafter == ModelDrafter.spec == "model"
    assert Engine(pair, rule_named("target")).settings.drafter is None


def test_a_target_alone_decodes_and_cannot_draft_with_a_model() -> None:
    pair = pair_of(None, family_pair("llama", "sdpa").target)
    assert len(Engine(pair, rule_named("target"), max_new_tokens=4).rollouts([Request(0, [5, 6])])[0].output_ids) == 4
    with pytest.raises(ValueError, match="drafter 'model' needs a draft model, and this pair is a target alone"):
        Engine(pair, rule_named("strict"))


def test_a_cost_ratio_needs_draft_steps() -> None:
    with pytest.raises(ValueError, match=r"cost_ratio is 0.2, and drafter 'guess' has no draft steps"):
        Engine(family_pair("llama", "sdpa"), rule_named("strict"), drafter=GuessingDrafter(), cost_ratio=0.2)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nonsense", "there is no drafter 'nonsense': choose one of model"),
        ("model:some/dir", "'some/dir' is no parameter, and it has no files"),
        ("model:", "ends in a colon"),
        ("model:k=3", "has no parameter 'k': it takes none"),
        ("model:k=3,k=4", "k is given twice"),
        ("model:k=3,stray", "'stray' is no parameter: write param=value"),
    ],
)
def test_specs_that_name_no_drafter_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drafter_named(spec)


def test_every_drafter_of_the_registry_says_what_it_is() -> None:
    for name, info in DRAFTERS.items():
        assert info.name == name
        assert info.about
        assert info.source
        for parameter in info.parameters:
            assert parameter.meaning
            assert parameter.source
            parameter.check(parameter.default)
