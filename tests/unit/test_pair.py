"""Loading a pair from real directories, what is refused before weights are read, and the prompts made for it."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import BOS, CONTEXT, EOS, VOCAB_SIZE, family_pair, pair_of, tiny_config, tiny_model, word_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    Gemma2Config,
    LlamaConfig,
    MambaConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    Qwen3NextConfig,
    RwkvConfig,
)

from cospec.engine.decode import Engine
from cospec.engine.request import Request
from cospec.engine.rules import rule_named
from cospec.pair import (
    ModelSpec,
    Pair,
    PairSpec,
    check_tokenizers,
    context_limit,
    load_pair,
    pick_device,
    tokenizer_digest,
)
from cospec.prompts import one_bos, prompt_ids

SavePair = Callable[..., PairSpec]


def renamed(tokenizer: PreTrainedTokenizerFast, index: int, word: str) -> PreTrainedTokenizerFast:
    """The tokenizer with another string at one id."""
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    old = next(token for token, i in state["model"]["vocab"].items() if i == index)
    state["model"]["vocab"][word] = state["model"]["vocab"].pop(old)
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(json.dumps(state)), unk_token="<unk>")


def spoil_weights(spec: PairSpec) -> None:
    """Weights that raise on any attempt to read them, so that an earlier error is the earlier one."""
    for model in (spec.draft, spec.target):
        (Path(model.path) / "model.safetensors").write_bytes(b"not a safetensors file")


def with_attn(spec: PairSpec, attn: str, dtype: str = "auto") -> PairSpec:
    draft, target = (dataclasses.replace(model, attn=attn, dtype=dtype) for model in (spec.draft, spec.target))
    return dataclasses.replace(spec, draft=draft, target=target)


# ---- loading --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attn", ["sdpa", "eager"])
def test_a_saved_pair_loads_and_decodes_as_the_one_in_memory(save_pair: SavePair, attn: str) -> None:
    memory = family_pair("llama", attn)
    pair = load_pair(with_attn(save_pair(memory.draft, memory.target), attn))
    assert (pair.vocab_size, pair.draft_context, pair.target_context) == (VOCAB_SIZE, CONTEXT, CONTEXT)
    assert pair.eos_token_ids == (EOS,)
    assert pair.tokenizer_digest == tokenizer_digest(pair.tokenizer)
    assert pair.device == torch.device("cpu")
    for model in (pair.draft, pair.target):
        assert not model.training
        assert not any(weight.requires_grad for weight in model.parameters())
        assert model.config._attn_implementation == attn
    texts = []
    for each in (memory, pair):
        engine = Engine(each, rule_named("never"), max_new_tokens=8, eos_token_ids=[])
        texts.append(engine.rollouts([Request(0, [BOS, 9, 11])])[0].output_ids)
    assert texts[0] == texts[1]


def test_text_of_a_rollout_leaves_out_the_eos(save_pair: SavePair) -> None:
    pair = load_pair(save_pair())
    free = Engine(pair, rule_named("target"), max_new_tokens=6, eos_token_ids=[]).rollouts([Request(0, [9, 11])])[0]
    end = free.output_ids[4]
    rollout = Engine(pair, rule_named("never"), max_new_tokens=6, eos_token_ids=[end]).rollouts([Request(0, [9, 11])])[
        0
    ]
    assert rollout.finish_reason == "eos"
    assert rollout.text == pair.tokenizer.decode(list(rollout.output_ids[:-1]), skip_special_tokens=True)


@pytest.mark.parametrize(("dtype", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_dtype_is_the_one_asked_for(save_pair: SavePair, dtype: str, expected: torch.dtype) -> None:
    pair = load_pair(with_attn(save_pair(), "sdpa", dtype))
    assert {weight.dtype for model in (pair.draft, pair.target) for weight in model.parameters()} == {expected}
    rollout = Engine(pair, rule_named("strict"), max_new_tokens=4).rollouts([Request(0, [BOS, 9])])[0]
    assert rollout.output_ids


def test_eos_ids_come_from_the_targets_generation_config(save_pair: SavePair) -> None:
    spec = save_pair()
    file = Path(spec.target.path) / "generation_config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps(values | {"eos_token_id": [2, 9], "temperature": 0.6, "top_k": 3, "do_sample": True}))
    pair = load_pair(spec)
    assert pair.eos_token_ids == (2, 9)
    engine = Engine(pair, rule_named("never"))
    assert engine.settings.eos_token_ids == (2, 9)
    assert engine.settings.sampling.greedy, "the generation config's sampling values were taken over"
    file.unlink()
    assert load_pair(spec).eos_token_ids == (EOS,)


def test_eos_falls_back_to_the_tokenizers(save_pair: SavePair) -> None:
    spec = save_pair()
    (Path(spec.target.path) / "generation_config.json").unlink()
    file = Path(spec.target.path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": None}))
    assert load_pair(spec).eos_token_ids == (EOS,)


def test_draft_alone_takes_the_targets_place(save_pair: SavePair) -> None:
    pair = load_pair(save_pair(draft=tiny_model(tiny_config("llama", max_position_embeddings=32), seed=3)))
    alone = pair.draft_alone()
    assert alone.target is pair.draft
    assert (alone.target_context, alone.draft_context) == (32, 32)
    assert pair.target_context == CONTEXT


# ---- tokenizers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [3, 20, VOCAB_SIZE - 1])
def test_mismatching_tokenizers_are_refused_before_weights_are_read(save_pair: SavePair, index: int) -> None:
    tokenizer = word_tokenizer()
    other = renamed(tokenizer, index, "blätter")
    spec = save_pair(tokenizers=[tokenizer, other])
    spoil_weights(spec)
    mine = tokenizer.convert_ids_to_tokens(index)
    with pytest.raises(ValueError, match=rf"first at id {index}: draft has '{mine}', target has 'blätter'"):
        load_pair(spec)


def test_a_longer_tokenizer_is_refused_at_its_first_extra_id(save_pair: SavePair) -> None:
    spec = save_pair(tokenizers=[word_tokenizer(VOCAB_SIZE - 2), word_tokenizer()])
    spoil_weights(spec)
    with pytest.raises(ValueError, match=f"id {VOCAB_SIZE - 2}: draft has None, target has 'w{VOCAB_SIZE - 2}'"):
        load_pair(spec)


def test_an_added_token_counts(save_pair: SavePair) -> None:
    longer = word_tokenizer(VOCAB_SIZE - 1)
    longer.add_tokens(["<extra>"])
    with pytest.raises(ValueError, match=f"id {VOCAB_SIZE - 1}: draft has None, target has '<extra>'"):
        check_tokenizers(word_tokenizer(VOCAB_SIZE - 1), longer)


def test_equal_vocabularies_that_split_differently_are_refused() -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merged = ["an", "ns", "he"]
    vocab = {token: i for i, token in enumerate([*alphabet, *merged])}

    def byte_level(merges: list[tuple[str, str]]) -> PreTrainedTokenizerFast:
        backend = Tokenizer(models.BPE(vocab, merges))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        return PreTrainedTokenizerFast(tokenizer_object=backend)

    merges = [("a", "n"), ("n", "s"), ("h", "e")]
    assert check_tokenizers(byte_level(merges), byte_level(merges)) == len(vocab)
    with pytest.raises(ValueError, match=r"split .*The answer is.* differently"):
        check_tokenizers(byte_level(merges), byte_level([merges[1], merges[0], merges[2]]))


def test_the_digest_tells_tokenizers_apart() -> None:
    assert tokenizer_digest(word_tokenizer()) == tokenizer_digest(word_tokenizer(adds_bos=False, template=False))
    assert tokenizer_digest(word_tokenizer()) != tokenizer_digest(renamed(word_tokenizer(), 20, "other"))


# ---- vocabularies and contexts --------------------------------------------------------------------------------------


def test_padded_vocabularies_are_allowed(save_pair: SavePair) -> None:
    pair = load_pair(
        save_pair(
            draft=tiny_model(tiny_config("llama", vocab_size=64), seed=3),
            target=tiny_model(tiny_config("qwen3", vocab_size=56), seed=1),
        )
    )
    assert pair.vocab_size == VOCAB_SIZE
    rollout = Engine(pair, rule_named("always"), max_new_tokens=8).rollouts([Request(0, [BOS, 9])])[0]
    assert max(rollout.output_ids) < VOCAB_SIZE
    with pytest.raises(ValueError, match="token id 50"):
        Engine(pair, rule_named("always")).rollouts([Request(0, [BOS, 50])])


@pytest.mark.parametrize("role", ["draft", "target"])
def test_a_vocabulary_smaller_than_the_tokenizer_is_refused(save_pair: SavePair, role: str) -> None:
    spec = save_pair(**{role: tiny_model(tiny_config("llama", vocab_size=VOCAB_SIZE - 1), seed=3)})
    spoil_weights(spec)
    with pytest.raises(ValueError, match=f"the {role}'s output has {VOCAB_SIZE - 1} ids .* uses {VOCAB_SIZE}"):
        load_pair(spec)


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        (LlamaConfig(max_position_embeddings=77), 77),
        (Qwen3Config(max_position_embeddings=500, use_sliding_window=False, sliding_window=64), 500),
        (
            Qwen2Config(max_position_embeddings=500, use_sliding_window=True, sliding_window=64, max_window_layers=1),
            500,
        ),
        (
            Qwen2Config(max_position_embeddings=500, use_sliding_window=True, sliding_window=64, max_window_layers=99),
            500,
        ),
        (Gemma2Config(max_position_embeddings=500, sliding_window=64), 500),
        (Phi3Config(max_position_embeddings=500, sliding_window=64), 64),
        (Phi3Config(max_position_embeddings=50, sliding_window=64), 50),
    ],
    ids=[
        "plain",
        "window off",
        "window on",
        "window on no layer",
        "alternating",
        "family without masks of its own",
        "window wider than the context",
    ],
)
def test_context_limits(config: PretrainedConfig, limit: int) -> None:
    assert context_limit(config, "draft") == limit


@pytest.mark.parametrize("config", [MambaConfig(), Qwen3NextConfig(), RwkvConfig()], ids=lambda c: c.model_type)
def test_layers_that_cannot_be_rolled_back_are_refused(config: PretrainedConfig) -> None:
    with pytest.raises(ValueError, match=f"the draft \\({config.model_type}\\).* cannot be rolled back"):
        context_limit(config, "draft")


# ---- specs and paths ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"attn": "flash_attention_2"}, "attn of 'm' is 'flash_attention_2'.*sdpa"),
        ({"dtype": "fp8"}, "dtype of 'm' is 'fp8'.*bfloat16"),
        ({"quantization": "awq"}, "quantization of 'm' is 'awq'"),
        ({"device": "cpu", "device_map": "auto"}, "both device and device_map"),
    ],
)
def test_bad_specs_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelSpec("m", **values)


@pytest.mark.parametrize("role", ["draft", "target"])
def test_a_missing_path_is_named(save_pair: SavePair, role: str, tmp_path: Path) -> None:
    nowhere = str(tmp_path / "nowhere")
    spec = dataclasses.replace(save_pair(), **{role: ModelSpec(nowhere, device="cpu")})
    with pytest.raises(ValueError, match=f"the {role}'s path '{nowhere}' does not exist"):
        load_pair(spec)


@pytest.mark.parametrize("file", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize("how", ["deleted", "corrupt"])
def test_a_missing_or_corrupt_part_is_one_error_that_names_role_and_path(
    save_pair: SavePair, file: str, how: str
) -> None:
    spec = save_pair()
    part = Path(spec.target.path) / file
    part.unlink()
    if how == "corrupt":
        part.write_bytes(b"{ broken")
    with pytest.raises(ValueError, match="the target's") as caught:
        load_pair(spec)
    assert spec.target.path in str(caught.value)


def test_weights_that_do_not_fill_the_model_are_refused(save_pair: SavePair) -> None:
    """transformers fills what is missing with random numbers and goes on; the pair would be noise."""
    spec = save_pair(target=tiny_model(tiny_config("llama"), seed=1))
    shallow = tiny_model(tiny_config("llama", num_hidden_layers=1), seed=1)
    deep_config = (Path(spec.target.path) / "config.json").read_text()
    shallow.save_pretrained(spec.target.path)
    (Path(spec.target.path) / "config.json").write_text(deep_config)
    with pytest.raises(ValueError, match=r"the target's weights .*layers\.1"):
        load_pair(spec)


def test_weights_of_other_shapes_are_refused(save_pair: SavePair) -> None:
    spec = save_pair()
    file = Path(spec.draft.path) / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"intermediate_size": 40}))
    with pytest.raises(ValueError, match="cannot load the draft's weights"):
        load_pair(spec)


def test_tied_models_load_complete(save_pair: SavePair) -> None:
    memory = family_pair("llama-tied", "sdpa")
    pair = load_pair(save_pair(memory.draft, memory.target))
    assert pair.target.lm_head.weight is pair.target.model.embed_tokens.weight
    assert torch.equal(pair.target.lm_head.weight, memory.target.lm_head.weight)


def test_an_empty_directory_is_no_model(tmp_path: Path, save_pair: SavePair) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match="cannot load the draft's"):
        load_pair(dataclasses.replace(save_pair(), draft=ModelSpec(str(empty))))


def test_a_device_that_is_not_there_is_refused() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match="'toaster'"):
        pick_device("toaster")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="torch cannot use it"):
            pick_device("cuda:0")


# ---- GGUF -----------------------------------------------------------------------------------------------------------


def write_gguf(path: Path, model: torch.nn.Module, words: list[str]) -> None:
    """The model as llama.cpp would store it, with a byte-level tokenizer of ``words``."""
    import gguf

    config, state = model.config, {name: weight.numpy() for name, weight in model.state_dict().items()}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(words)
    writer.add_token_types([1] * len(words))
    writer.add_token_merges(["a n"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    names = {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }
    heads = {"self_attn.q_proj": config.num_attention_heads, "self_attn.k_proj": config.num_key_value_heads}
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"])
    writer.add_tensor("output_norm.weight", state["model.norm.weight"])
    writer.add_tensor("output.weight", state["lm_head.weight"])
    for layer in range(config.num_hidden_layers):
        for name, short in names.items():
            weight = state[f"model.layers.{layer}.{name}.weight"]
            if name in heads:
                # llama.cpp interleaves the two halves of each head's rotary dimensions.
                halves = weight.reshape(heads[name], 2, -1, weight.shape[-1])
                weight = halves.swapaxes(1, 2).reshape(weight.shape).copy()
            writer.add_tensor(f"blk.{layer}.{short}.weight", weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="the optional package gguf is not installed")
@pytest.mark.parametrize("named", ["as the path", "as gguf_file"])
def test_a_gguf_file_loads_and_decodes_as_its_source(tmp_path: Path, named: str) -> None:
    # transformers' conversion adds <|endoftext|> where a GPT-2 style vocabulary lacks it.
    words = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet()), "an", "<|endoftext|>"]
    model = tiny_model(tiny_config("llama", vocab_size=len(words), eos_token_id=1, bos_token_id=0), seed=1)
    write_gguf(tmp_path / "tiny.gguf", model, words)
    if named == "as the path":
        spec = ModelSpec(str(tmp_path / "tiny.gguf"), dtype="float32", device="cpu")
    else:
        spec = ModelSpec(str(tmp_path), gguf_file="tiny.gguf", dtype="float32", device="cpu")
    pair = load_pair(PairSpec(spec, spec))
    assert (pair.vocab_size, pair.target_context, pair.eos_token_ids) == (len(words), CONTEXT, (1,))
    texts = [
        Engine(each, rule_named("never"), max_new_tokens=8, eos_token_ids=[]).rollouts([Request(0, [9, 11])])[0]
        for each in (pair, pair_of(model, model, len(words)))
    ]
    assert texts[0].output_ids == texts[1].output_ids
    assert texts[0].num_mismatches == 0


def test_a_gguf_file_that_is_missing_is_one_clear_error(save_pair: SavePair, tmp_path: Path) -> None:
    lost = ModelSpec(str(tmp_path / "lost.gguf"), device="cpu")
    with pytest.raises(ValueError, match=r"the draft's path .*lost\.gguf' does not exist"):
        load_pair(dataclasses.replace(save_pair(), draft=lost))


# ---- prompts --------------------------------------------------------------------------------------------------------


def prompt_pair(**settings: Any) -> Pair:
    """A pair for prompts: ``settings`` are those of the tokenizer, or of the spec."""
    spec = {key: settings.pop(key) for key in ("system_prompt", "chat_template_kwargs") if key in settings}
    pair = family_pair("llama", "sdpa")
    return dataclasses.replace(pair, tokenizer=word_tokenizer(**settings), spec=dataclasses.replace(pair.spec, **spec))


def text_of(pair: Pair, ids: list[int]) -> str:
    return " ".join(pair.tokenizer.convert_ids_to_tokens(ids))


@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_template_that_renders_bos_and_a_tokenizer_that_adds_one_give_one(adds_bos: bool) -> None:
    pair = prompt_pair(adds_bos=adds_bos)
    assert pair.tokenizer.encode("w9").count(BOS) == int(adds_bos)
    # The template glues its BOS to the first role; a space keeps the word-level tokenizer from losing it.
    pair.tokenizer.chat_template = pair.tokenizer.chat_template.replace("{{ bos_token }}", "{{ bos_token }} ")
    assert text_of(pair, prompt_ids(pair, "w9 w10")) == "<s> user w9 w10 assistant"


@pytest.mark.parametrize("num_rendered", [1, 2, 3])
def test_leading_bos_are_reduced_to_one(num_rendered: int) -> None:
    assert one_bos([BOS] * num_rendered + [9, BOS, 10], BOS) == [BOS, 9, BOS, 10]
    assert one_bos([BOS], BOS) == [BOS]
    assert one_bos([BOS, BOS, 9], None) == [BOS, BOS, 9]
    assert one_bos([9, 9, 10], BOS) == [9, 9, 10]


@pytest.mark.parametrize("settings", [{"template": False}, {}], ids=["no template", "raw"])
def test_raw_text_gets_one_bos_and_no_template(settings: dict[str, bool]) -> None:
    pair = prompt_pair(**settings)
    assert text_of(pair, prompt_ids(pair, "w9 w10", raw=True)) == "<s> w9 w10"
    assert text_of(pair, prompt_ids(pair, "<s> w9 w10", raw=True)) == "<s> w9 w10"
    if settings:
        assert prompt_ids(pair, "w9 w10") == prompt_ids(pair, "w9 w10", raw=True)


def test_a_tokenizer_without_bos_gets_none() -> None:
    pair = prompt_pair(adds_bos=False)
    assert text_of(pair, prompt_ids(pair, "w9", raw=True)) == "w9"


def test_the_system_prompt_stands_first_unless_the_messages_bring_their_own() -> None:
    pair = prompt_pair(system_prompt="w30")
    assert text_of(pair, prompt_ids(pair, "w9")).endswith("system w30 user w9 assistant")
    user = {"role": "user", "content": "w9"}
    assert prompt_ids(pair, [user]) == prompt_ids(pair, "w9")
    own = prompt_ids(pair, [{"role": "system", "content": "w31"}, user])
    assert text_of(pair, own).endswith("system w31 user w9 assistant")
    assert "w30" not in text_of(pair, own)
    assert text_of(pair, prompt_ids(pair, "w9", raw=True)) == "<s> w9"


def test_messages_are_left_as_they_were() -> None:
    messages = [{"role": "user", "content": "w9"}]
    prompt_ids(prompt_pair(system_prompt="w30"), messages)
    assert messages == [{"role": "user", "content": "w9"}]


def test_chat_template_kwargs_reach_the_template() -> None:
    pair = prompt_pair(chat_template_kwargs={"enable_thinking": False})
    pair.tokenizer.chat_template = "w7 {% if enable_thinking is false %}w8{% endif %} {{ messages[0]['content'] }}"
    assert text_of(pair, prompt_ids(pair, "w9")) == "w7 w8 w9"


@pytest.mark.parametrize(
    "prompt", ["", " \n\t", [], [{"role": "user", "content": ""}], [{"role": "user", "content": "  "}]]
)
@pytest.mark.parametrize("raw", [False, True])
def test_empty_prompts_are_refused(prompt: Any, raw: bool) -> None:
    with pytest.raises(ValueError, match="empty"):
        prompt_ids(prompt_pair(), prompt, raw=raw)


@pytest.mark.parametrize(("settings", "raw"), [({"template": False}, False), ({}, True)])
def test_messages_without_a_template_are_refused(settings: dict[str, bool], raw: bool) -> None:
    with pytest.raises(ValueError, match="chat template"):
        prompt_ids(prompt_pair(**settings), [{"role": "user", "content": "w9"}], raw=raw)


def test_copies_of_a_pair_load_the_same(save_pair: SavePair, tmp_path: Path) -> None:
    spec = save_pair()
    shutil.copytree(spec.target.path, tmp_path / "copy")
    pair = load_pair(PairSpec(ModelSpec(str(tmp_path / "copy"), device="cpu"), spec.target))
    rollout = Engine(pair, rule_named("never"), max_new_tokens=12).rollouts([Request(0, [BOS, 9])])[0]
    assert rollout.num_mismatches == 0, "a model disagrees with itself"
