"""MTP layers on disk: beside a model's own weights, in the form of the `speculators` library, and ours.

transformers loads a model without its MTP layers: it leaves these tensors out when it reads the others (its own MTP
model, from 5.24 on, reads them a second time and decodes one text at a time). So they are read here.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig

from cospec.engine.heads.eagle3_files import speculators_config
from cospec.engine.heads.files import HeadPins, check_pins, fill, read_config, read_weights, save_head
from cospec.engine.heads.mtp import MtpHead
from cospec.pair import Pair

#: Parts outside the decoder layer, by the names that checkpoints give them: Qwen's, and DeepSeek's (GLM and others).
_QWEN = {
    "fc.": "input_proj.",
    "norm.": "final_layernorm.",
    "pre_fc_norm_hidden.": "hidden_layernorm.",
    "pre_fc_norm_embedding.": "token_layernorm.",
    "layers.0.": "block.",
}
_DEEPSEEK = {
    "eh_proj.": "input_proj.",
    "shared_head.norm.": "final_layernorm.",
    "hnorm.": "hidden_layernorm.",
    "enorm.": "token_layernorm.",
}
_SPECULATORS = {name: name for name in ("input_proj.", "final_layernorm.", "hidden_layernorm.", "token_layernorm.")}
#: The target's own embedding and output, repeated by some checkpoints.
_SHARED = ("embed_tokens.", "shared_head.head.", "lm_head.")
_NUM_LAYERS = ("num_mtp_layers", "num_nextn_predict_layers", "mtp_num_hidden_layers")


def num_mtp_layers(config: PretrainedConfig) -> int:
    """How many MTP layers a model says it ships; 0 if it says nothing."""
    text = config.get_text_config()
    return int(next((value for name in _NUM_LAYERS if (value := getattr(text, name, None))), 0))


def check_mtp_config(place: str | None, target: PretrainedConfig) -> None:
    """ValueError, before weights are read, for a target that ships no MTP layer or a head of another form.

    ``place`` None is the target's own layer.
    """
    text = target.get_text_config()
    if place is None:
        if num_mtp_layers(target) == 0:
            raise ValueError(
                f"the target ({text.model_type}) ships no MTP layer: name a trained one, mtp:DIR, or another drafter"
            )
        return
    raw = read_config(place)
    if raw.get("speculators_model_type") != "mtp":
        raise ValueError(f"the config in {place!r} is not that of an MTP layer: give a directory that training wrote")
    layer, wrong = raw["transformer_layer_config"], []
    for name in ("model_type", "hidden_size", "vocab_size"):
        if name in layer and layer[name] != getattr(text, name):
            wrong.append(f"its target has {name} {layer[name]}, this one {getattr(text, name)}")
    if wrong:
        raise ValueError(
            f"the MTP layer in {place!r} does not fit the target: {'; '.join(wrong)}. Give one that was made for it"
        )


def load_mtp(place: str | None, pair: Pair) -> MtpHead:
    """The MTP layer of a directory, or None: the one its target ships; in eval mode, frozen.

    ValueError if it was made for another target, is damaged or is not there.
    """
    check_mtp_config(place, pair.target.config)
    if place is not None:
        check_pins(place, pair)
        weights = read_weights(place, _renamed("mtp_layers.0.", _SPECULATORS))
    else:
        place, weights = _shipped(pair)
    head = MtpHead(pair.target)
    fill(head, _fused(weights, head.state_dict()), place)
    head.to_target()
    return head.requires_grad_(False).eval()


def _shipped(pair: Pair) -> tuple[str, dict[str, Tensor]]:
    """Where the target's weights are, and the tensors of its first MTP layer."""
    spec, config = pair.spec.target, pair.target.config.get_text_config()
    place, keywords = spec.source()
    if "gguf_file" in keywords:
        raise ValueError("the target is a GGUF file, whose MTP layers cannot be read: load it from safetensors")
    layouts = [
        _renamed("mtp.", _QWEN),
        _renamed(f"model.layers.{config.num_hidden_layers}.", _DEEPSEEK),
        _renamed("mtp_layers.0.", _SPECULATORS),
    ]
    found = [read_weights(place, layout, spec.revision) for layout in layouts]
    weights = max(found, key=len)
    if not weights:
        raise ValueError(
            f"the target's config speaks of an MTP layer, and {place!r} holds none of its weights: fetch a checkpoint "
            "that has them"
        )
    if (num := num_mtp_layers(config)) > 1:
        warnings.warn(f"the target ships {num} MTP layers: the first is used, recursively", stacklevel=4)
    return place, weights


def _renamed(prefix: str, parts: Mapping[str, str]) -> Callable[[str], str | None]:
    def wanted(name: str) -> str | None:
        if not name.startswith(prefix) or (rest := name[len(prefix) :]).startswith(_SHARED):
            return None
        for old, new in parts.items():
            if rest.startswith(old):
                return new + rest[len(old) :]
        # Layers behind the first of a list are not used.
        return None if re.match(r"layers\.\d+\.", rest) else f"block.{rest}"

    return wanted


_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(gate|up|down)_proj\.weight")


def _fused(weights: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Experts that lie one by one put together as transformers' layers hold them; all else as it is."""
    found: dict[str, Tensor] = {}
    experts: dict[str, dict[tuple[int, str], Tensor]] = {}
    for name, tensor in weights.items():
        match = _EXPERT.fullmatch(name)
        if match and name not in own:
            experts.setdefault(match[1], {})[int(match[2]), match[3]] = tensor
        else:
            found[name] = tensor
    for name, parts in experts.items():
        numbers = range(1 + max(number for number, _ in parts))
        if len(parts) != 3 * len(numbers):
            raise ValueError(f"{name} lacks tensors of some experts: the weights are incomplete, fetch them again")
        both = [torch.cat([parts[i, "gate"], parts[i, "up"]]) for i in numbers]
        found[f"{name}.gate_up_proj"] = torch.stack(both)
        found[f"{name}.down_proj"] = torch.stack([parts[i, "down"] for i in numbers])
    return found


def save_mtp(head: MtpHead, directory: Path, pins: HeadPins) -> None:
    """Write an MTP layer in the form of the `speculators` library, with its pins."""
    config: dict[str, Any] = {**head.config.to_diff_dict(), "model_type": head.config.model_type}
    row = {
        "architectures": ["MTPDraftModel"],
        "speculators_model_type": "mtp",
        "speculators_config": speculators_config("mtp", pins, head.target.config),
        "transformer_layer_config": {**config, "vocab_size": head.vocab_size, "hidden_size": head.config.hidden_size},
        "num_nextn_predict_layers": 1,
    }
    weights = {f"mtp_layers.0.{name.removeprefix('block.')}": tensor for name, tensor in head.state_dict().items()}
    save_head(directory, row, weights, pins)
