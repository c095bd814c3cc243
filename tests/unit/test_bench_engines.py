"""The contenders of `cospec bench` on tiny random models: same texts, fair settings, honest timing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import torch
from conftest import family_pair, late_ids, random_prompts
from transformers import GenerationConfig

from cospec.arbiter.model import ArbiterScorer, LoraSpec, new_arbiter, separator
from cospec.engine.decode import Engine
from cospec.engine.drafters import drafter_named
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule, rule_named
from cospec.evaluation.bench.cells import CellKey, Measured, sample_of
from cospec.evaluation.bench.forwards import ForwardTimer
from cospec.evaluation.bench.limit import limit_shares
from cospec.evaluation.bench.memory import peak_mb, reset_peak
from cospec.evaluation.bench.ours import OurContender
from cospec.evaluation.bench.probe import EngineProbes, tiled
from cospec.evaluation.bench.rounds import Repeat
from cospec.evaluation.bench.transformers_engine import GenerateContender, assisted_refusal
from cospec.evaluation.bench.vllm_engine import VllmContender, VllmEnded, able, vllm_engines, vllm_version
from cospec.evaluation.bench.workload import Workload
from cospec.pair import Pair

K = 3
CPU = torch.device("cpu")


def work_of(pair: Pair, eos: bool = False, cap: int = 20) -> Workload:
    """Four ragged prompts; with ``eos`` two of the texts end early."""
    requests = tuple(Request(index, ids) for index, ids in enumerate(random_prompts(3, 9, 5, 14)))
    texts = [r.output_ids for r in Engine(pair, rule_named("target"), max_new_tokens=cap).rollouts(requests)]
    return Workload(requests, cap, K, late_ids(texts) if eos else ())


@pytest.fixture(scope="module")
def pair() -> Pair:
    return family_pair("llama", "sdpa")


def arbiter(pair: Pair, context_cache: str) -> ArbiterRule:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = new_arbiter(pair.draft, context_cache, LoraSpec(r=4, alpha=8))
    return ArbiterRule(ArbiterScorer(net, separator((2,))))


def assert_told_apart(pair: Pair, measured: Measured) -> None:
    assert measured.forwards is not None
    assert 0 < measured.forwards.total_s <= measured.seconds
    assert not pair.target._forward_hooks
    assert not pair.draft._forward_pre_hooks


# --- same texts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eos", [False, True])
def test_every_engine_writes_what_the_target_alone_writes(pair: Pair, eos: bool) -> None:
    work = work_of(pair, eos)
    wanted = OurContender(pair, work, "target", rule_named("target"), 1).run().output_ids
    assert len({len(ids) for ids in wanted}) == (3 if eos else 1)
    contenders = [OurContender(pair, work, "strict", rule_named("strict"), batch) for batch in (1, 3)]
    contenders.append(OurContender(pair, work, "n", rule_named("strict"), 3, drafter=drafter_named("ngram")))
    contenders += [GenerateContender(pair, work, (batch,)) for batch in (1, 3)]
    contenders.append(GenerateContender(pair, work, (1, 3), assisted=True))
    for contender in contenders:
        measured = contender.run()
        assert measured.output_ids == wanted, contender.keys
        assert_told_apart(pair, measured)


def test_assisted_generation_stands_for_every_batch_size(pair: Pair) -> None:
    contender = GenerateContender(pair, work_of(pair), (1, 8), assisted=True)
    assert contender.keys == (CellKey("transformers", "assisted", 1), CellKey("transformers", "assisted", 8))
    assert contender.note(contender.keys[0]) is None
    assert "prompt by prompt" in (contender.note(contender.keys[1]) or "")


def test_the_drafts_own_config_does_not_change_assisted_generation(pair: Pair) -> None:
    work = work_of(pair)
    contender = GenerateContender(pair, work, (1,), assisted=True)
    usual = contender.run()
    before = pair.draft.generation_config, pair.target.generation_config
    odd = GenerationConfig(
        num_assistant_tokens=1,
        num_assistant_tokens_schedule="heuristic",
        assistant_confidence_threshold=0.99,
        repetition_penalty=3.0,
        do_sample=True,
        temperature=2.0,
        max_length=7,
    )
    try:
        pair.draft.generation_config = pair.target.generation_config = odd
        again = contender.run()
        assert pair.draft.generation_config is pair.target.generation_config is odd
    finally:
        pair.draft.generation_config, pair.target.generation_config = before
    assert (again.output_ids, again.num_rounds) == (usual.output_ids, usual.num_rounds)
    assert usual.forwards is not None
    # Whole blocks: K passes of the draft in a round, but at the cap.
    drafts = usual.forwards.num("draft") / (usual.num_rounds or 1)
    assert K - 0.8 < drafts <= K


def test_both_speculate_alike(pair: Pair) -> None:
    work = work_of(pair)
    ours = OurContender(pair, work, "strict", rule_named("strict"), 1).run()
    theirs = GenerateContender(pair, work, (1,), assisted=True).run()
    # Theirs also drafts before its first pass over the prompt, and one token fewer before the cap.
    assert ours.num_rounds is not None
    assert theirs.num_rounds is not None
    assert abs(ours.num_rounds - theirs.num_rounds) <= len(work.requests)


def test_vocabularies_padded_differently_are_said_to_be_left_out(pair: Pair) -> None:
    assert assisted_refusal(pair) is None
    size = pair.draft.config.vocab_size
    try:
        pair.draft.config.vocab_size = size + 16
        assert f"a draft of {size + 16} output ids" in (assisted_refusal(pair) or "")
    finally:
        pair.draft.config.vocab_size = size


# --- timing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3])
def test_the_timed_passes_are_those_the_engine_counts(pair: Pair, batch: int) -> None:
    work = work_of(pair)
    engine = Engine(
        pair, rule_named("strict"), num_draft_tokens=K, max_new_tokens=20, batch_size=batch, eos_token_ids=()
    )
    rollouts = engine.rollouts(work.requests)
    measured = OurContender(pair, work, "strict", rule_named("strict"), batch).run()
    found = measured.forwards
    assert found is not None
    assert found.num("target") == engine.clock.num_target_passes
    assert measured.num_rounds == sum(rollout.num_rounds for rollout in rollouts)
    assert max(entry.width for entry in found.of("target")) == K + 1
    assert max(entry.width for entry in found.of("draft")) <= 2
    assert found.prefill is not None
    assert found.prefill["target"] > 0
    assert found.prefill["draft"] > 0


@pytest.mark.parametrize("context_cache", ["shared", "own"])
def test_an_arbiters_passes_are_its_own(pair: Pair, context_cache: str) -> None:
    work, rule = work_of(pair), arbiter(pair, context_cache)
    strict = OurContender(pair, work, "strict", rule_named("strict"), 2).run()
    measured = OurContender(pair, work, "a", rule, 2).run()
    assert measured.forwards is not None
    assert strict.forwards is not None
    assert 0 < measured.forwards.num("arbiter") <= measured.forwards.num("target")
    assert strict.forwards.seconds("arbiter") == 0
    assert ("arbiter" in (measured.forwards.prefill or {})) == (context_cache == "own")
    assert not rule.scorer.net.backbone._forward_hooks


@pytest.mark.parametrize("context_cache", ["shared", "own"])
def test_the_limit_finds_every_pass_it_needs(pair: Pair, context_cache: str) -> None:
    work, rules = work_of(pair), {"target": rule_named("target"), "strict": rule_named("strict")}
    rules["a"] = arbiter(pair, context_cache)
    cells = [OurContender(pair, work, name, rule, batch) for batch in (1, 3) for name, rule in rules.items()]
    samples = {cell.keys[0]: sample_of(cell.keys[0], 0, cell.run()) for cell in cells}
    probes = EngineProbes(pair, work, {"a": rules["a"]})(samples)
    assert all(probe.seconds > 0 for probe in probes)
    shares = limit_shares([Repeat(0, samples, probes)])
    assert [(found.key.method, found.key.batch) for found in shares] == [
        ("strict", 1),
        ("a", 1),
        ("strict", 3),
        ("a", 3),
    ]
    for found in shares:
        (terms,) = found.terms
        assert K - 0.8 < terms.num_drafts <= K + 1
        assert (terms.mismatch_share > 0) == (terms.arbiter_s > 0) == (found.key.method == "a")
        assert found.share > 0


def test_nothing_outside_the_context_is_timed(pair: Pair) -> None:
    timer = ForwardTimer(CPU)
    timer.watch("target", pair.target)
    ids = torch.tensor([[5, 6, 7]])
    with timer:
        pair.target(input_ids=ids)
        pair.draft(input_ids=ids)
    pair.target(input_ids=ids)
    (passes,) = timer.forwards().passes
    assert (passes.part, passes.rows, passes.width, passes.num) == ("target", 1, 3, 1)


def test_rows_of_a_probe_are_filled_from_the_prompts() -> None:
    assert tiled([[1, 2], [3]], 3, 5) == [[1, 2, 3, 1, 2], [3, 1, 2, 3, 1], [1, 2, 3, 1, 2]]


@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is Linux's")
def test_the_peak_of_memory_is_that_of_the_run_alone() -> None:
    def peak_of(megabytes: int) -> float:
        if not reset_peak(CPU):
            pytest.skip("/proc/self/clear_refs cannot be written here")
        _touched = torch.ones(megabytes * 250_000)
        found = peak_mb(CPU)
        assert found is not None
        return found

    peak_of(1)
    small, large, small_again = peak_of(1), peak_of(200), peak_of(1)
    assert 150 < large - small < 260
    assert abs(small_again - small) < 50


# --- vLLM ------------------------------------------------------------------------------------------------------------

#: The part of vLLM's interface that the worker uses, with a model that counts upwards.
STAND_IN = """
from types import SimpleNamespace

print("vLLM says something on stdout")
__version__ = "0.0.stand-in"

class SamplingParams(SimpleNamespace):
    pass

class LLM:
    def __init__(self, **options):
        if options["model"] == "broken":
            raise RuntimeError("no such model")
        self.llm_engine = Engine(2 if "speculative_config" in options else 1)

class Engine:
    def __init__(self, step):
        self.each, self.live = step, {}

    def add_request(self, name, prompt, params):
        self.live[name] = (prompt["prompt_token_ids"][-1], params, [])
        assert len(self.live) <= 2

    def step(self):
        found = []
        for name, (last, params, ids) in list(self.live.items()):
            for _ in range(self.each):
                ids.append(last + len(ids) + 1)
                finished = ids[-1] in params.stop_token_ids or len(ids) == params.max_tokens
                if finished:
                    del self.live[name]
                    break
            found.append(SimpleNamespace(request_id=name, outputs=[SimpleNamespace(token_ids=ids)], finished=finished))
        return found
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "vllm.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    return Path(sys.executable)


def test_vllm_runs_in_its_own_interpreter(pair: Pair, stand_in: Path) -> None:
    prompts = ([10], [20], [30])
    work = Workload(tuple(Request(i, prompt) for i, prompt in enumerate(prompts)), 5, K, (23,))
    version = vllm_version(stand_in)
    assert version == "0.0.stand-in"
    engines = vllm_engines(stand_in, version, pair, work, (1, 2), {})
    try:
        for name, num_rounds in (("generate", 5 + 3 + 5), ("draft_model", 3 + 2 + 3)):
            contender = VllmContender(engines[name], work, name, 2)
            contender.warm_up()
            measured = contender.run()
            assert contender.keys == (CellKey("vllm", name, 2),)
            assert measured.output_ids == ((11, 12, 13, 14, 15), (21, 22, 23), (31, 32, 33, 34, 35))
            assert measured.num_rounds == num_rounds
            assert measured.seconds > 0
            assert measured.forwards is None
    finally:
        for engine in engines.values():
            engine.close()


def test_a_vllm_that_fails_says_why(pair: Pair, stand_in: Path) -> None:
    work = work_of(pair)
    engine = vllm_engines(stand_in, "0", pair, work, (1,), {"model": "broken"})["generate"]
    try:
        with pytest.raises(VllmEnded, match="Traceback") as error:
            engine.start()
        assert error.value.reason == "RuntimeError: no such model"
    finally:
        engine.close()


def test_what_vllm_cannot_do_is_left_out_and_said(pair: Pair, stand_in: Path) -> None:
    work = work_of(pair)
    good = vllm_engines(stand_in, "0", pair, work, (1,), {})["generate"]
    bad = vllm_engines(stand_in, "0", pair, work, (1,), {"model": "broken"})["draft_model"]
    cells = [VllmContender(engine, work, name, 1) for engine, name in ((good, "generate"), (bad, "draft_model"))]
    try:
        found, left_out = able(cells)
        assert found == cells[:1]
        assert left_out == ["vllm draft_model is left out, it ended with: RuntimeError: no such model"]
        with pytest.raises(VllmEnded):
            able(cells[1:])
    finally:
        good.close()
        bad.close()


def test_an_interpreter_without_vllm_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot import vllm"):
        vllm_version(Path(sys.executable))
    with pytest.raises(ValueError, match="cannot be run"):
        vllm_version(tmp_path / "python")
