"""Heads as they are published: each format loads, runs, and is refused where it does not fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import VOCAB_SIZE, family_pair, pair_of, random_prompts, tiny_config, tiny_model, word_tokenizer
from engine_checks import decode, outputs
from heads import eagle3_head, features_of, mtp_head, plain_states, saved_drafter
from reference import generated
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, Qwen3_5ForCausalLM, Qwen3_5TextConfig

from cospec.engine.drafters import drafter_named
from cospec.engine.heads.eagle3 import Eagle3Head
from cospec.engine.heads.eagle3_files import load_eagle3, save_eagle3
from cospec.engine.heads.files import head_pins
from cospec.engine.heads.mtp import MtpHead
from cospec.engine.heads.mtp_files import load_mtp, save_mtp
from cospec.pair import ModelSpec, Pair, PairSpec, load_pair


@pytest.fixture
def pair() -> Pair:
    return family_pair("llama", "sdpa")


def assert_decodes(pair: Pair, spec: str) -> None:
    """Strict with this drafter writes the target's text, and something was drafted."""
    prompts = random_prompts(3, 8, 5)
    rollouts = decode(pair, "strict", prompts, drafter=drafter_named(spec), max_new_tokens=10, num_draft_tokens=3)
    assert outputs(rollouts) == [generated(pair.target, prompt, 10) for prompt in prompts]
    assert all(rollout.num_drafted for rollout in rollouts)


# ---- EAGLE-3 --------------------------------------------------------------------------------------------------------


#: A config entry to leave out.
OUT = object()
ROPE = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}


def public_head(pair: Pair, **form: Any) -> Eagle3Head:
    """A head whose form differs from what is taken where a config says nothing."""
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, **ROPE}
    return eagle3_head(pair, tapped=(1, 2), rope=rope, norm_before_residual=True, **form)


def public_form(head: Eagle3Head, directory: Path, **changes: Any) -> dict[str, Tensor]:
    """A head's config as EAGLE's own repositories hold it; its tensors, to be written by the test."""
    layer = head.config.layer
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "draft_vocab_size": head.config.draft_vocab_size,
        "torch_dtype": "float32",
        "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", **ROPE},
        "norm_before_residual": True,
        **{name: getattr(layer, name) for name in ("vocab_size", "hidden_size", "intermediate_size", "rms_norm_eps")},
        **{name: getattr(layer, name) for name in ("num_attention_heads", "num_key_value_heads", "head_dim")},
        "num_hidden_layers": 1,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1], "use_aux_hidden_state": True},
        "max_position_embeddings": 160,
    } | changes
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps({name: value for name, value in config.items() if value != OUT}))
    weights = {name.replace("layers.0.", "midlayer."): tensor for name, tensor in head.state_dict().items()}
    return weights | {"t2d": torch.arange(VOCAB_SIZE) >= VOCAB_SIZE - head.config.draft_vocab_size}


def assert_same_drafts(head: Eagle3Head, again: Eagle3Head) -> None:
    text = random_prompts(24)[0]
    states = [plain_states(one, text[1:], features_of(one, text)[:, :-1]) for one in (head, again)]
    torch.testing.assert_close(*(one.logits(state) for one, state in zip((head, again), states, strict=True)))


@pytest.mark.parametrize("form", ["safetensors", "pickled", "sharded"])
def test_the_public_eagle_form_loads(pair: Pair, tmp_path: Path, form: str) -> None:
    head = public_head(pair)
    weights = public_form(head, tmp_path)
    if form == "pickled":
        torch.save(weights, tmp_path / "pytorch_model.bin")
    elif form == "safetensors":
        save_file(weights, tmp_path / "model.safetensors")
    else:
        save_sharded(weights, tmp_path)
    again = load_eagle3(str(tmp_path), pair)
    # Its ids name layers by their outputs: 0 and 1 are what layer 1 and the last norm read.
    assert again.config.tapped == (1, 2)
    assert_same_drafts(head, again)
    assert_decodes(pair, f"eagle3:{tmp_path}")


@pytest.mark.parametrize(
    "changes",
    [
        {"draft_vocab_size": None},
        {"draft_vocab_size": OUT},
        {"draft_vocab_size": OUT, "architectures": ["LlamaForCausalLM"]},
    ],
    ids=["null", "no key", "nothing but the weights"],
)
def test_a_public_head_that_names_no_draft_vocabulary_drafts_all_ids(
    pair: Pair, tmp_path: Path, changes: Mapping[str, Any]
) -> None:
    head = public_head(pair, draft_vocab_size=VOCAB_SIZE)
    weights = public_form(head, tmp_path, **changes)
    del weights["d2t"], weights["t2d"]
    save_file(weights, tmp_path / "model.safetensors")
    assert_same_drafts(head, load_eagle3(str(tmp_path), pair))


@pytest.mark.parametrize("tied", ["no", "to the target's embedding", "to its own embedding"])
def test_a_public_head_without_an_output_of_its_own_takes_another(pair: Pair, tmp_path: Path, tied: str) -> None:
    head = public_head(pair, draft_vocab_size=VOCAB_SIZE, own_embedding="own" in tied)
    weights = public_form(head, tmp_path, draft_vocab_size=None, tie_word_embeddings=tied != "no")
    del weights["d2t"], weights["t2d"], weights["lm_head.weight"]
    save_file(weights, tmp_path / "model.safetensors")
    own = pair.target.get_input_embeddings() if tied != "no" else pair.target.get_output_embeddings()
    assert not torch.equal(pair.target.get_input_embeddings().weight, pair.target.get_output_embeddings().weight)
    with torch.no_grad():
        head.lm_head.weight.copy_((head.embed_tokens or own).weight)
    assert_same_drafts(head, load_eagle3(str(tmp_path), pair))
    assert_decodes(pair, f"eagle3:{tmp_path}")


def test_a_norm_that_the_nested_config_names_is_read(pair: Pair, tmp_path: Path) -> None:
    head = public_head(pair, norm_before_fc=True)
    nested = {"eagle_aux_hidden_state_layer_ids": [0, 1], "norm_before_fc": True}
    save_file(public_form(head, tmp_path, eagle_config=nested), tmp_path / "model.safetensors")
    assert_same_drafts(head, load_eagle3(str(tmp_path), pair))


@pytest.mark.parametrize(
    "variants", [{}, {"norm_before_residual": True, "norm_output": True}, {"norm_before_fc": True}, {"fc_norm": True}]
)
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_every_variant_of_the_speculators_form_is_read_back(
    pair: Pair, tmp_path: Path, kind: str, variants: Mapping[str, bool]
) -> None:
    head = eagle3_head(pair, kind=kind, own_embedding=True, **variants)
    save_eagle3(head, tmp_path, head_pins(pair))
    (tmp_path / "cospec_head.json").unlink()
    again = load_eagle3(str(tmp_path), pair)
    assert again.config.own_embedding
    assert_same_drafts(head, again)
    assert_decodes(pair, f"eagle3:{tmp_path}")


def test_the_head_computes_what_eagle_3_says(pair: Pair) -> None:
    """Two pairs by hand: fc, both norms side by side into attention, residual from the hidden state.

    The last of the target's states is taken before its norm.
    """
    head = eagle3_head(pair)
    text = random_prompts(3)[0]
    norm, before_norm = pair.target.model.norm, []
    hook = norm.register_forward_pre_hook(lambda _, args: before_norm.append(args[0]))
    hidden = pair.target(torch.tensor([text]), output_hidden_states=True, use_cache=False).hidden_states
    hook.remove()
    torch.testing.assert_close(norm(before_norm[0]), hidden[2])
    fused = torch.cat([hidden[0], hidden[1], before_norm[0]], dim=-1)[:, :-1] @ head.fc.weight.T
    layer, ids = head.layers[0], torch.tensor([text[1:]])
    embeds = pair.target.get_input_embeddings()(ids)
    both = torch.cat([layer.input_layernorm(embeds), layer.hidden_norm(fused)], dim=-1)
    rotary = head.rotary_emb(fused, torch.arange(2)[None])
    mask = torch.tensor([[True, False], [True, True]])[None, None]
    attended, _ = layer.self_attn(both, position_embeddings=rotary, attention_mask=mask)
    middle = fused + attended
    expected = middle + layer.mlp(layer.post_attention_layernorm(middle))
    torch.testing.assert_close(plain_states(head, text[1:], features_of(head, text)[:, :-1]), expected)


def test_a_head_that_does_not_fit_is_refused_before_its_weights_are_read(pair: Pair, tmp_path: Path) -> None:
    for changes, message in (
        ({"vocab_size": 50}, "its target has 50 ids, this one 48"),
        ({"target_hidden_size": 64}, "hidden states of size 64"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 7]}}, "reads layer 8, the target has 2"),
        ({"num_hidden_layers": 2}, "has 2 layers"),
        ({"model_type": "mamba"}, "type 'mamba'"),
    ):
        public_form(public_head(pair), tmp_path, **changes)
        with pytest.raises(ValueError, match=message):
            load_eagle3(str(tmp_path), pair)
    with pytest.raises(ValueError, match="no directory"):
        drafter_named(f"eagle3:{tmp_path / 'nowhere'}")


def test_damaged_weights_are_refused(pair: Pair, tmp_path: Path) -> None:
    weights = public_form(public_head(pair), tmp_path)
    with pytest.raises(ValueError, match="neither model"):
        load_eagle3(str(tmp_path), pair)
    for changes, message in (
        ({"fc.weight": torch.zeros(32, 60)}, "has shape"),
        ({"d2t": torch.full((40,), 9)}, "outside the target's 48|or to one of them twice"),
        ({"d2t": torch.zeros(40, dtype=torch.long)}, "name different ids"),
        ({"strange": torch.zeros(1)}, "unknown strange"),
    ):
        save_file(weights | changes, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            load_eagle3(str(tmp_path), pair)
    for name, message in (
        ("norm.weight", r"missing norm\.weight"),
        ("lm_head.weight", r"missing lm_head\.weight"),
        ("midlayer.hidden_norm.weight", "no EAGLE-3 head"),
    ):
        save_file({other: weights[other] for other in weights if other != name}, tmp_path / "model.safetensors")
        with pytest.raises(ValueError, match=message):
            load_eagle3(str(tmp_path), pair)


def test_quantised_weights_are_refused_by_name(pair: Pair, tmp_path: Path) -> None:
    weights = public_form(public_head(pair), tmp_path)
    save_file(weights | {"fc.weight_scale": torch.ones(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="are quantised"):
        load_eagle3(str(tmp_path), pair)
    target = deepseek()
    tensors = deepseek_form(mtp_head(pair_of(target, target)))
    scales = {f"{name}_scale_inv": torch.ones(1, 1) for name, tensor in tensors.items() if tensor.dim() == 2}
    with pytest.raises(ValueError, match=r"are quantised \(.*weight_scale_inv\)"):
        load_mtp(None, with_mtp(target, tmp_path / "target", tensors | scales))


@pytest.mark.parametrize("kind", ["eagle3", "mtp"])
def test_a_head_of_another_target_of_the_same_size_is_refused(pair: Pair, tmp_path: Path, kind: str) -> None:
    drafter = saved_drafter(kind, pair, tmp_path)
    other = tiny_model(tiny_config("llama"), seed=99)
    with pytest.raises(ValueError, match="made for another target: a target with other weights"):
        drafter.load(pair_of(other, other), 4)
    drafter.load(pair, 4)


# ---- MTP ------------------------------------------------------------------------------------------------------------


def with_mtp(target: nn.Module, directory: Path, weights: Mapping[str, Tensor], *, sharded: bool = False) -> Pair:
    """The target saved with MTP tensors among its own, and loaded again."""
    target.save_pretrained(directory)
    word_tokenizer().save_pretrained(directory)
    held = load_file(directory / "model.safetensors") | dict(weights)
    if sharded:
        (directory / "model.safetensors").unlink()
        save_sharded(held, directory, 3)
    else:
        save_file(held, directory / "model.safetensors", metadata={"format": "pt"})
    spec = ModelSpec(str(directory), device="cpu")
    return load_pair(PairSpec(spec, spec))


def save_sharded(weights: Mapping[str, Tensor], directory: Path, num: int = 2) -> None:
    """Safetensors in ``num`` files, dealt out in turn, and their index."""
    names = {name: f"part-{number % num}.safetensors" for number, name in enumerate(weights)}
    for file in set(names.values()):
        held = {name: weights[name] for name in weights if names[name] == file}
        save_file(held, directory / file, metadata={"format": "pt"})
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))


def deepseek() -> nn.Module:
    config = DeepseekV3Config(
        vocab_size=VOCAB_SIZE, hidden_size=32, intermediate_size=48, moe_intermediate_size=16, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, n_routed_experts=4, num_experts_per_tok=2, n_group=1,
        topk_group=1, n_shared_experts=1, first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=16,
        qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8, max_position_embeddings=160, initializer_range=0.3,
        num_nextn_predict_layers=1, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return DeepseekV3ForCausalLM(config).float().eval().requires_grad_(False)


def deepseek_form(head: MtpHead) -> dict[str, Tensor]:
    """The names of DeepSeek-V3's checkpoints, experts one by one, and the embedding and output that these repeat."""
    names = {"input_proj": "eh_proj", "final_layernorm": "shared_head.norm"}
    names |= {"hidden_layernorm": "hnorm", "token_layernorm": "enorm"}
    found = {}
    for name, tensor in head.state_dict().items():
        part, _, rest = name.partition(".")
        if rest.endswith("experts.gate_up_proj"):
            for number, both in enumerate(tensor):
                gate, up = both.chunk(2)
                at = f"model.layers.2.{rest.removesuffix('gate_up_proj')}{number}"
                found |= {f"{at}.gate_proj.weight": gate.clone(), f"{at}.up_proj.weight": up.clone()}
        elif rest.endswith("experts.down_proj"):
            at = f"model.layers.2.{rest.removesuffix('down_proj')}"
            found |= {f"{at}{number}.down_proj.weight": down.clone() for number, down in enumerate(tensor)}
        else:
            found[f"model.layers.2.{names[part]}.{rest}" if part in names else f"model.layers.2.{rest}"] = tensor
    table = head.target.get_input_embeddings().weight
    shared = {"embed_tokens.weight": table.clone(), "shared_head.head.weight": table.clone()}
    return found | {f"model.layers.2.{name}": tensor for name, tensor in shared.items()}


def test_the_layer_of_a_target_in_many_files_is_read(tmp_path: Path) -> None:
    target = deepseek()
    made = mtp_head(pair_of(target, target))
    pair = with_mtp(target, tmp_path / "with", deepseek_form(made), sharded=True)
    head = load_mtp(None, pair)
    for name, tensor in made.state_dict().items():
        assert torch.equal(tensor, head.state_dict()[name]), name
    with pytest.raises(ValueError, match="holds none of its weights"):
        load_mtp(None, with_mtp(target, tmp_path / "without", {}, sharded=True))


def test_the_layer_that_deepseek_ships_is_read_and_equals_transformers_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modeling = pytest.importorskip("transformers.modeling_layers")
    if not hasattr(modeling, "MtpModel"):
        pytest.skip("this transformers has no MTP model")
    target = deepseek()
    made = mtp_head(pair_of(target, target))
    pair = with_mtp(target, tmp_path, deepseek_form(made))
    head = load_mtp(None, pair)
    for name, tensor in made.state_dict().items():
        assert torch.equal(tensor, head.state_dict()[name]), name
    assert_decodes(pair, "mtp")
    # transformers knows the layer by its number in the published model.
    monkeypatch.setattr(pair.target, "_keys_to_ignore_on_load_unexpected", [r"model\.layers\.2.*"])
    theirs = modeling.MtpModel.from_pretrained(pair.target)
    text = random_prompts(6)[0]
    hidden = features_of(head, text)[:, :-1]
    ids, line = torch.tensor([text[1:]]), torch.arange(len(text) - 1)
    rotary = pair.target.model.rotary_emb(hidden, line[None])
    with torch.no_grad():
        other = theirs.layers[0](
            pair.target.get_input_embeddings()(ids), hidden, rotary, head.masks(line[None, :, None] >= line, line[None],
            line[None]), line[None], None,
        )  # fmt: skip
    torch.testing.assert_close(plain_states(head, text[1:], hidden), other)


def test_the_form_of_qwen_is_read(tmp_path: Path) -> None:
    """Its models are hybrid and refused as targets; the layer itself has full attention and is read and run."""
    config = Qwen3_5TextConfig(
        vocab_size=VOCAB_SIZE, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, layer_types=["full_attention"] * 2, max_position_embeddings=160,
        mtp_num_hidden_layers=1,
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        target = Qwen3_5ForCausalLM(config).float().eval().requires_grad_(False)
    made = mtp_head(pair_of(target, target))
    names = {"input_proj.": "mtp.fc.", "final_layernorm.": "mtp.norm.", "block.": "mtp.layers.0."}
    names |= {"hidden_layernorm.": "mtp.pre_fc_norm_hidden.", "token_layernorm.": "mtp.pre_fc_norm_embedding."}
    weights = {}
    for name, tensor in made.state_dict().items():
        part = next(part for part in names if name.startswith(part))
        weights[names[part] + name.removeprefix(part)] = tensor
    save_file(weights, tmp_path / "model.safetensors")
    spec = ModelSpec(str(tmp_path), device="cpu")
    head = load_mtp(None, pair_of(target, target, spec=PairSpec(spec, spec)))
    text = random_prompts(6)[0]
    states = [plain_states(one, text[1:], features_of(one, text)[:, :-1]) for one in (made, head)]
    torch.testing.assert_close(*states)


def test_a_target_without_the_layer_is_refused(pair: Pair, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="ships no MTP layer"):
        drafter_named("mtp").load(pair, 4)
    target = deepseek()
    with pytest.raises(ValueError, match="holds none of its weights"):
        load_mtp(None, with_mtp(target, tmp_path, {}))
    save_mtp(mtp_head(pair), tmp_path / "layer", head_pins(pair))
    qwen = family_pair("qwen3", "sdpa")
    with pytest.raises(ValueError, match="its target has model_type llama, this one qwen3"):
        load_mtp(str(tmp_path / "layer"), qwen)
    with pytest.raises(ValueError, match="not that of an MTP layer"):
        load_mtp(str(tmp_path), pair)


def test_a_layer_of_eager_attention_equals_one_of_sdpa() -> None:
    states = []
    for attn in ("sdpa", "eager"):
        pair = family_pair("qwen3", attn)
        head, text = mtp_head(pair), random_prompts(8)[0]
        states.append(plain_states(head, text[1:], features_of(head, text)[:, :-1]))
    torch.testing.assert_close(*states, atol=1e-5, rtol=1e-5)
