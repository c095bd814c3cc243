"""EAGLE-3 heads on disk: the public EAGLE checkpoints, those of the `speculators` library, and ours.

`speculators` itself is no dependency: it asks for older transformers, torchvision, torchaudio and a server's packages.
Its files are plain: a config.json that names decoder layer, variants and target, and safetensors. Ours have its form
and a file of pins beside it.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, PretrainedConfig

from cospec.engine.heads.eagle3 import LAYER_TYPES, Eagle3Config, Eagle3Head, Variants, default_layers
from cospec.engine.heads.files import HeadPins, check_pins, fill, read_config, read_weights, save_head
from cospec.pair import Pair

_TAPPED = "eagle_aux_hidden_state_layer_ids"


def read_eagle3_config(place: str, target: PretrainedConfig) -> Eagle3Config:
    """A head's config in either form, checked against its target's; reads no weights.

    ValueError for another kind of head and for one that does not fit the target's sizes.
    """
    text, raw = target.get_text_config(), read_config(place)
    config = _speculators(place, raw, text) if "speculators_model_type" in raw else _public(place, raw, text)
    _check_fit(place, config, text, tuple(getattr(target, "architectures", None) or ()))
    return config


def _speculators(place: str, raw: Mapping[str, Any], target: PretrainedConfig) -> Eagle3Config:
    if raw["speculators_model_type"] != "eagle3":
        raise ValueError(
            f"{place!r} holds a speculator of type {raw['speculators_model_type']!r}: drafter 'eagle3' takes 'eagle3'"
        )
    verifier = (raw.get("speculators_config") or {}).get("verifier") or {}
    layer = _layer(place, dict(raw["transformer_layer_config"]))
    return Eagle3Config(
        layer,
        raw["draft_vocab_size"] or layer.vocab_size,
        raw.get("target_hidden_size") or target.hidden_size,
        tuple(raw.get(_TAPPED) or default_layers(target.num_hidden_layers)),
        _variants(raw),
        target_name=verifier.get("name_or_path"),
        target_architectures=tuple(verifier.get("architectures") or ()),
    )


def _public(place: str, raw: Mapping[str, Any], target: PretrainedConfig) -> Eagle3Config:
    # Its ids are of layers' outputs (SpecForge, SGLang), one less than what is read behind them.
    nested = (raw.get("eagle_config") or {}).get(_TAPPED)
    tapped = raw.get(_TAPPED) or [layer + 1 for layer in nested or ()]
    layer = _layer(place, {**raw, "vocab_size": raw.get("vocab_size", target.vocab_size)})
    return Eagle3Config(
        layer,
        raw.get("draft_vocab_size") or layer.vocab_size,
        raw.get("target_hidden_size") or target.hidden_size,
        tuple(tapped or default_layers(target.num_hidden_layers)),
        _variants({**raw, **(raw.get("eagle_config") or {})}),
    )


def _variants(raw: Mapping[str, Any]) -> Variants:
    return Variants(**{field.name: bool(raw.get(field.name, False)) for field in dataclasses.fields(Variants)})


def _layer(place: str, raw: dict[str, Any]) -> PretrainedConfig:
    """The config of the decoder layer; public checkpoints leave their model type out or call it after a whole model."""
    kind = raw.pop("model_type", None) or "llama"
    if kind not in LAYER_TYPES:
        raise ValueError(
            f"the head in {place!r} has a decoder layer of type {kind!r}: there are {' and '.join(LAYER_TYPES)}"
        )
    if raw.get("num_hidden_layers", 1) != 1:
        raise ValueError(f"the head in {place!r} has {raw['num_hidden_layers']} layers: only heads of one are known")
    for name in ("architectures", "transformers_version", "auto_map", "num_hidden_layers"):
        raw.pop(name, None)
    if raw.get("layer_types"):
        raw["layer_types"] = raw["layer_types"][:1]
    return AutoConfig.for_model(kind, num_hidden_layers=1, **raw)


def _check_fit(place: str, config: Eagle3Config, target: PretrainedConfig, architectures: tuple[str, ...]) -> None:
    wrong = []
    if config.target_hidden_size != target.hidden_size:
        wrong.append(
            f"it reads hidden states of size {config.target_hidden_size}, the target's are {target.hidden_size}"
        )
    if config.layer.vocab_size != target.vocab_size:
        wrong.append(f"its target has {config.layer.vocab_size} ids, this one {target.vocab_size}")
    if strange := [layer for layer in config.tapped if not 0 <= layer <= target.num_hidden_layers]:
        wrong.append(f"it reads layer {strange[0]}, the target has {target.num_hidden_layers}")
    made = config.target_architectures
    if made and architectures and not {*made} & {*architectures}:
        wrong.append(f"it was made for a {made[0]}, this is a {architectures[0]}")
    if wrong:
        raise ValueError(
            f"the head in {place!r} does not fit the target: {'; '.join(wrong)}. Give a head that was made for this "
            "target"
        )


def load_eagle3(place: str, pair: Pair) -> Eagle3Head:
    """A head for this pair's target, in eval mode, frozen. ValueError if it was made for another or is damaged."""
    config = read_eagle3_config(place, pair.target.config)
    check_pins(place, pair)
    _warn_of_another_name(place, config, pair)
    weights = read_weights(place, _own_name)
    if "layers.0.hidden_norm.weight" not in weights:
        raise ValueError(
            f"the weights in {place!r} have no hidden_norm, so they are no EAGLE-3 head (EAGLE and EAGLE-2 have none): "
            "give one"
        )
    config = _with_embedding(config, place, "embed_tokens.weight" in weights)
    head = Eagle3Head(config, pair.target)
    kept = weights.pop("t2d", None)
    output = "lm_head.weight" in weights
    all_ids = config.draft_vocab_size == head.vocab_size
    fill(head, weights, place, optional=("d2t", *(() if output else ("lm_head.weight",))) if all_ids else ())
    _check_vocabulary(place, head, kept)
    head.to_target()
    if not output:
        head.lm_head.weight = _shared_output(place, head)
    return head.requires_grad_(False).eval()


def _own_name(name: str) -> str | None:
    """Published names to the module's; the target's own parts, which some files repeat, are left out."""
    name = re.sub(r"^model\.", "", name)
    name = re.sub(r"^midlayer\.", "layers.0.", name)
    return None if name.startswith("verifier_") or name.endswith("rotary_emb.inv_freq") else name


def _with_embedding(config: Eagle3Config, place: str, own: bool) -> Eagle3Config:
    if not own and config.layer.hidden_size != config.target_hidden_size:
        raise ValueError(
            f"the head in {place!r} is {config.layer.hidden_size} wide, its target {config.target_hidden_size}, and it "
            "brings no embedding of its own: its files are incomplete"
        )
    return dataclasses.replace(config, own_embedding=own)


def _shared_output(place: str, head: Eagle3Head) -> nn.Parameter:
    """The output matrix of a head that brings none: its embedding where both are tied, else its target's output."""
    if head.config.layer.tie_word_embeddings:
        weight = (head.embed_tokens or head.target.get_input_embeddings()).weight
    else:
        weight = head.target.get_output_embeddings().weight
    if weight.shape != head.lm_head.weight.shape:
        raise ValueError(
            f"the head in {place!r} brings no output of its own, and that of its target has shape "
            f"{tuple(weight.shape)} where it takes {tuple(head.lm_head.weight.shape)}: its files are incomplete"
        )
    return nn.Parameter(weight.to(head.norm.weight.device), requires_grad=False)


def _check_vocabulary(place: str, head: Eagle3Head, kept: Tensor | None) -> None:
    """ValueError for a draft vocabulary that names an id twice, or one that the target does not have."""
    ids = head.target_ids
    if bool((ids < 0).any()) or bool((ids >= head.vocab_size).any()) or len(ids.unique()) < len(ids):
        raise ValueError(
            f"d2t in {place!r} leads to ids outside the target's {head.vocab_size}, or to one of them twice: the head "
            "is of another vocabulary, or damaged"
        )
    if kept is not None and not torch.equal(kept.bool().nonzero().squeeze(1), ids.sort().values):
        raise ValueError(f"d2t and t2d in {place!r} name different ids: the head is damaged")


def _warn_of_another_name(place: str, config: Eagle3Config, pair: Pair) -> None:
    made, here = (Path(name).name if name else None for name in (config.target_name, pair.spec.target.path))
    if made and made != here:
        warnings.warn(
            f"the head in {place!r} says it was made for {made!r}, and this target is called {here!r}: of another "
            "target its drafts are seldom accepted",
            stacklevel=3,
        )


def save_eagle3(head: Eagle3Head, directory: Path, pins: HeadPins) -> None:
    """Write a head in the form of the `speculators` library, with its pins."""
    config, kept = head.config, torch.zeros(head.vocab_size, dtype=torch.bool)
    kept[head.target_ids.cpu()] = True
    layer = {**config.layer.to_diff_dict(), "model_type": config.layer.model_type, "num_hidden_layers": 1}
    row = {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "speculators_config": speculators_config("eagle3", pins, head.target.config),
        "transformer_layer_config": layer,
        "draft_vocab_size": config.draft_vocab_size,
        "target_hidden_size": config.target_hidden_size,
        _TAPPED: list(config.tapped),
        **dataclasses.asdict(config.variants),
    }
    save_head(directory, row, {**head.state_dict(), "t2d": kept}, pins)


def speculators_config(algorithm: str, pins: HeadPins, target: PretrainedConfig) -> dict[str, Any]:
    """The part of a speculator's config that names its target and how it proposes."""
    return {
        "algorithm": algorithm,
        "default_proposal_method": "greedy",
        "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 5}],
        "verifier": {"name_or_path": pins.target.name, "architectures": list(target.architectures or ())},
    }
