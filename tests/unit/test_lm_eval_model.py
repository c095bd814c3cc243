"""The model `cospec` of the lm-evaluation-harness, on tiny random pairs in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import BOS, perturbed, tiny_config, tiny_model, word_tokenizer

pytest.importorskip("lm_eval", reason="the adapter needs the extra lm-eval")

from lm_eval.api.instance import Instance
from lm_eval.api.registry import get_model

from cospec.engine.decode import Engine
from cospec.engine.record import Sampling
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.evaluation.lm_eval.model import CospecLM
from cospec.evaluation.lm_eval.options import decoding
from cospec.pair import PairSpec, load_pair
from cospec.prompts import prompt_ids

SavePair = Callable[..., PairSpec]


@pytest.fixture
def spec(save_pair: SavePair) -> PairSpec:
    target = tiny_model(tiny_config("llama"), seed=1)
    return save_pair(perturbed(tiny_model(tiny_config("llama"), seed=1), seed=2, scale=0.06), target)


def model_of(spec: PairSpec, **arguments: Any) -> CospecLM:
    return CospecLM(draft=spec.draft.path, target=spec.target.path, **({"device": "cpu", "batch_size": 4} | arguments))


def generation(*contexts: str, **options: Any) -> list[Instance]:
    wanted = {"until": [], "max_gen_toks": 12} | options
    return [
        Instance("generate_until", {}, (context, wanted), 0, ("task", number, 1))
        for number, context in enumerate(contexts)
    ]


CONTEXTS = ("w9 w10", "w11", "w12 w13 w14 w15", "w20 w21 w22")


def test_the_harness_knows_it_by_name() -> None:
    assert get_model("cospec") is CospecLM


@pytest.mark.parametrize(("rule", "decoded_as"), [("strict", "target"), ("target", "target"), ("always", "draft")])
def test_texts_are_those_of_the_engine(spec: PairSpec, rule: str, decoded_as: str) -> None:
    pair = load_pair(spec)
    alone = pair.draft_alone() if decoded_as == "draft" else pair
    engine = Engine(alone, rule_named("target"), max_new_tokens=12)
    expected = engine.rollouts([Request(c, prompt_ids(pair, c, raw=True)) for c in CONTEXTS])
    model = model_of(spec, rule=rule, num_draft_tokens=3)
    assert model.generate_until(generation(*CONTEXTS), disable_tqdm=True) == [r.text for r in expected]
    info = model.get_model_info()["cospec"]
    assert (info["rule"], info["num_texts"]) == (rule, 4)
    assert info["num_tokens"] == sum(len(r.output_ids) for r in expected)


def test_the_draft_alone_is_a_rule_too(spec: PairSpec) -> None:
    always = model_of(spec, rule="always").generate_until(generation(*CONTEXTS), disable_tqdm=True)
    assert model_of(spec, rule="draft").generate_until(generation(*CONTEXTS), disable_tqdm=True) == always


def test_texts_end_at_stop_strings_special_tokens_and_caps(spec: PairSpec) -> None:
    model = model_of(spec)
    whole = model.generate_until(generation(*CONTEXTS), disable_tqdm=True)
    words = whole[0].split()
    stop = words[4]
    cut = model.generate_until(generation(CONTEXTS[0], until=[stop]), disable_tqdm=True)[0]
    assert cut == whole[0][: whole[0].index(stop)]
    assert model.get_model_info()["cospec"]["num_tokens"] == 4 * 12 + words.index(stop) + 1
    short = generation(*CONTEXTS, max_gen_toks=3) + generation(*CONTEXTS, max_gen_toks=7)
    before = model.get_model_info()["cospec"]["num_tokens"]
    texts = model.generate_until(short, disable_tqdm=True)
    assert model.get_model_info()["cospec"]["num_tokens"] - before == 4 * 3 + 4 * 7
    assert max(len(text.split()) for text in texts[:4]) == 3
    assert all(long.startswith(text) for long, text in zip(whole * 2, texts, strict=True))


def test_a_special_token_as_stop_string_ends_the_decoding(spec: PairSpec) -> None:
    model = model_of(spec)
    ends = model._ends(["</s>", "w9", "<pad>"])
    assert ends == (*model.pair.eos_token_ids, 0)
    assert model._ends(["w9"]) == model.pair.eos_token_ids


def test_there_is_one_bos_with_a_template_and_without(spec: PairSpec) -> None:
    model = model_of(spec)
    assert model.tok_encode("w9 w10")[:2] == [BOS, model.tok_encode("w9", add_special_tokens=False)[0]]
    # A context that brings its BOS keeps that one.
    assert model.tok_encode("<s> w9").count(BOS) == 1
    messages = [{"role": "user", "content": "w9 w10"}]
    text = model.apply_chat_template(messages)
    assert text.startswith("<s>")
    assert model.tok_encode(text) == prompt_ids(load_pair(spec), "w9 w10")
    assert model.tok_encode(text).count(BOS) == 1
    assert model.chat_template(True) == model.tokenizer.chat_template
    with pytest.raises(ValueError, match="one template"):
        model.chat_template("tool_use")


def test_a_pair_without_a_template_says_so(save_pair: SavePair) -> None:
    bare = save_pair(tokenizers=[word_tokenizer(template=False)] * 2)
    with pytest.raises(ValueError, match="no chat template: leave out --apply_chat_template"):
        model_of(bare).apply_chat_template([{"role": "user", "content": "w9"}])


def test_a_long_prompt_keeps_its_bos_and_its_end(spec: PairSpec) -> None:
    model = model_of(spec)
    ids = [BOS, *range(9, 40)] * 8
    room = model.max_length - 20
    assert model._fitted(ids[:room], 20) == ids[:room]
    assert model._fitted(ids, 20) == [BOS, *ids[-(room - 1) :]]
    assert model.get_model_info()["cospec"]["num_shortened_prompts"] == 1
    with pytest.raises(ValueError, match="nothing is left for the prompt"):
        model._fitted(ids, model.max_length)


def test_repeats_of_a_document_are_sampled_apart_and_again_alike(spec: PairSpec) -> None:
    options = {"do_sample": True, "temperature": 1.0}
    repeated = generation(CONTEXTS[0], **options) * 5
    texts = model_of(spec).generate_until(repeated, disable_tqdm=True)
    assert len(set(texts)) > 1
    assert model_of(spec, batch_size=2).generate_until(repeated, disable_tqdm=True) == texts
    assert model_of(spec, seed=1).generate_until(repeated, disable_tqdm=True) != texts
    assert model_of(spec)._engine(Sampling(), ()).settings.sampling.greedy


def test_log_likelihoods_are_the_targets_and_refused_to_a_mixture(spec: PairSpec) -> None:
    requests = [Instance("loglikelihood", {}, ("w9 w10", " w11 w12"), 0), Instance("loglikelihood", {}, ("", "w13"), 0)]
    whole = [Instance("loglikelihood_rolling", {}, (" ".join(["w9 w12 w30"] * 80),), 0)]
    strict = model_of(spec, rule="strict")
    found = strict.loglikelihood(requests, disable_tqdm=True)
    for rule in ("target", "never"):
        same = model_of(spec, rule=rule, batch_size=1).loglikelihood(requests, disable_tqdm=True)
        assert [logp for logp, _ in same] == pytest.approx([logp for logp, _ in found], abs=1e-4)
    target = load_pair(spec).target
    ids = strict.tok_encode("w9 w10 w11 w12")
    logps = target(torch.tensor([ids])).logits[0].log_softmax(-1)
    assert found[0][0] == pytest.approx(float(logps[2, ids[3]] + logps[3, ids[4]]), abs=1e-4)
    assert strict.loglikelihood_rolling(whole, disable_tqdm=True)[0] < -100
    mixture = model_of(spec, rule="always")
    for call, asked in ((mixture.loglikelihood, requests), (mixture.loglikelihood_rolling, whole)):
        with pytest.raises(ValueError, match=r"under rule 'always' a pair has none.*rule=strict"):
            call(asked, disable_tqdm=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pair": "tiny", "draft": "x"}, "one of the two ways"),
        ({}, "pair=PAIR.yaml"),
        ({"draft": "x"}, "draft=MODEL,target=MODEL"),
        ({"pair": "tiny", "rule": "lenient"}, "no rule 'lenient'"),
        ({"pair": "tiny", "rule": "arbiter"}, "needs a trained arbiter"),
        ({"pair": "tiny", "rule": "strict", "arbiter": "x"}, "contradict each other"),
        ({"pair": "tiny", "threshold": 0.7}, "there is no arbiter"),
        ({"pair": "tiny", "num_draft_tokens": "abc"}, "num_draft_tokens is 'abc': write a whole number"),
        ({"pair": "tiny", "threshold": "abc"}, "threshold is 'abc'"),
        ({"pair": "tiny", "rule": "draft", "bonus": "target"}, "drafts nothing"),
        ({"pair": "tiny", "batch_size": "auto"}, "needs a number"),
        ({"pair": "tiny", "pretrained": "x", "foo": 1}, "unknown model_args foo, pretrained"),
        ({"pair": "tiny", "arbiter": "nowhere"}, "no arbiter directory 'nowhere'"),
        ({"draft": "none/draft", "target": "none/target", "arbiter": "nowhere"}, "no arbiter directory 'nowhere'"),
        ({"pair": "tiny", "device": "cuda:7"}, "device 'cuda:7'"),
    ],
)
def test_what_cannot_work_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CospecLM(**arguments)


def test_a_generation_option_that_would_be_ignored_is_refused(spec: PairSpec) -> None:
    model = model_of(spec)
    with pytest.raises(ValueError, match="no generation option length_penalty"):
        model.generate_until(generation("w9", length_penalty=1.2), disable_tqdm=True)
    assert model.generate_until(generation("w9", temperature=0.7, do_sample=False), disable_tqdm=True)


def test_a_stop_string_that_is_null_does_not_end_texts_at_the_word_none() -> None:
    assert decoding({"until": None}, 8).stops == ()
    assert decoding({"until": [None, "Q:"]}, 8).stops == ("Q:",)
    with pytest.raises(ValueError, match="until holds 3: a stop string is text"):
        decoding({"until": ["a", 3]}, 8)


@pytest.mark.parametrize("more", [{}, {"temperature": 0.0}, {"top_k": 5}], ids=str)
def test_sampling_without_a_temperature_is_refused_not_decoded_greedily(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="there is no temperature: add temperature above 0"):
        decoding({"do_sample": True, **more}, 8)
    assert decoding({"do_sample": True, "temperature": 0.5, "top_k": 5}, 8).sampling.top_k == 5
