"""Arbiters on disk: a PEFT adapter directory with the head, plus the pins that tie it to its pair.

PEFT loads an adapter onto any model of the same shape without a word, so `cospec_config.json` records what the arbiter
was made for, down to a sample of the draft's weights, and `load_arbiter` compares.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peft import PeftConfig, PeftModel
from safetensors import SafetensorError
from torch import nn
from transformers import PreTrainedModel

from cospec import __version__
from cospec.arbiter.model import ArbiterNet, ArbiterScorer, separator
from cospec.engine.record import ContextCache
from cospec.engine.rules import ArbiterRule
from cospec.pair import Pair

CONFIG_NAME = "cospec_config.json"
LAYOUT_VERSION = 1
#: Entries of the model config that say where or how it was loaded, not what it is.
_VOLATILE = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "use_cache", "quantization_config")
_NUM_PROBED, _VALUES_PROBED = 8, 16


@dataclass(frozen=True, slots=True)
class ModelPin:
    """What a model is: its name as given, its config's digest and a few of its weights."""

    name: str
    revision: str | None
    config_digest: str
    weight_probe: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Pins:
    """What an arbiter was made for, and how it must be used."""

    draft: ModelPin
    target: ModelPin
    tokenizer_digest: str
    context_cache: ContextCache
    separator: int
    layout_version: int = LAYOUT_VERSION
    cospec_version: str = __version__


def pins_of(pair: Pair, context_cache: ContextCache) -> Pins:
    """The pins of an arbiter made for this pair; ValueError for a target alone."""
    pair.require_draft("an arbiter")
    models = model_pins(pair)
    return Pins(
        draft=models["draft"],
        target=models["target"],
        tokenizer_digest=pair.tokenizer_digest,
        context_cache=context_cache,
        separator=separator(pair.eos_token_ids),
    )


def model_pins(pair: Pair) -> dict[str, ModelPin]:
    """The pins of the pair's models, by role, the draft first where there is one."""
    loaded = {"draft": pair.draft, "target": pair.target}
    return {role: _pin(loaded[role], model.path, model.revision) for role, model in pair.spec.models.items()}


def save_arbiter(arbiter: PeftModel, directory: Path, pins: Pins) -> None:
    """Write adapter, head and pins; nothing of the draft's own weights."""
    directory.mkdir(parents=True, exist_ok=True)
    # The base model's name goes into the pins; a local path on a model card breaks its validation on the Hub.
    arbiter.peft_config["default"].base_model_name_or_path = _public_name(pins.draft.name)
    arbiter.save_pretrained(str(directory), save_embedding_layers=False, selected_adapters=["default"])
    (directory / "README.md").write_text(_card(pins), encoding="utf-8")
    # The last file: where it is, the directory is whole.
    text = json.dumps(dataclasses.asdict(pins), indent=2)
    (directory / CONFIG_NAME).write_text(text + "\n", encoding="utf-8")


def read_pins(directory: Path) -> Pins:
    """The pins of a saved arbiter; ValueError if this is no arbiter directory."""
    if not directory.is_dir():
        raise ValueError(f"there is no arbiter directory {str(directory)!r}: give the directory that training saved")
    path = directory / CONFIG_NAME
    if not path.is_file():
        raise ValueError(f"{str(directory)!r} holds no {CONFIG_NAME}, so it is no arbiter: give a saved checkpoint")
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        row["draft"], row["target"] = _pin_from(row["draft"]), _pin_from(row["target"])
        pins = Pins(**row)
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{str(path)!r} cannot be read ({error}): it was changed or made by another version"
        ) from error
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        if not (directory / name).is_file():
            raise ValueError(f"{str(directory)!r} has no {name}: it was copied in part, so take another checkpoint")
    if pins.context_cache not in ("own", "shared"):
        raise ValueError(f"{str(path)!r} names context cache {pins.context_cache!r}: it was changed by hand")
    return pins


def check_pins(pins: Pins, pair: Pair, directory: Path) -> None:
    """ValueError naming every part in which the arbiter was made for another pair."""
    here = pins_of(pair, pins.context_cache)
    wrong = []
    if pins.layout_version != here.layout_version:
        wrong.append(f"layout version {pins.layout_version}, this is {here.layout_version}")
    if pins.tokenizer_digest != here.tokenizer_digest:
        wrong.append(f"another tokenizer ({pins.tokenizer_digest[:12]}, here {here.tokenizer_digest[:12]})")
    if pins.separator != here.separator:
        wrong.append(f"separator id {pins.separator}, here {here.separator}")
    for role, made, given in (("draft", pins.draft, here.draft), ("target", pins.target, here.target)):
        if made.config_digest != given.config_digest:
            wrong.append(f"a {role} of another architecture or size ({made.name!r}, here {given.name!r})")
        elif not _alike(made.weight_probe, given.weight_probe):
            wrong.append(f"a {role} with other weights ({made.name!r}, here {given.name!r})")
    if wrong:
        raise ValueError(
            f"the arbiter in {str(directory)!r} was made for another pair: {'; '.join(wrong)}. Load the pair it names, "
            "or train an arbiter for this one"
        )


def load_arbiter(directory: str | Path, pair: Pair, *, trainable: bool = False) -> PeftModel:
    """Load a saved arbiter over this pair's draft. ValueError if it was made for another pair or is damaged."""
    directory = Path(directory)
    pins = read_pins(directory)
    check_pins(pins, pair, directory)
    net = ArbiterNet(pair.require_draft("an arbiter"), pins.context_cache)
    try:
        config = PeftConfig.from_pretrained(str(directory))
        config.inference_mode = not trainable
        arbiter = PeftModel(net, config)
        report = arbiter.load_adapter(str(directory), adapter_name="default", is_trainable=trainable)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"the arbiter in {str(directory)!r} is damaged: {reason}. Take another checkpoint") from error
    missing = [name for name in report.missing_keys if "lora_" in name or "head" in name]
    if missing or report.unexpected_keys:
        raise ValueError(
            f"the arbiter in {str(directory)!r} does not fit its own config: missing {missing[:3]}, unexpected "
            f"{list(report.unexpected_keys)[:3]}. Take another checkpoint"
        )
    _check_trained(arbiter, directory)
    return arbiter if trainable else arbiter.eval()


def load_scorer(directory: str | Path, pair: Pair) -> ArbiterScorer:
    """A saved arbiter as the engine takes it."""
    return ArbiterScorer(load_arbiter(directory, pair), separator(pair.eos_token_ids))


def arbiter_rule(directory: str | Path, pair: Pair, threshold: float = 0.5, *, sampled: bool = False) -> ArbiterRule:
    """A saved arbiter as the rule of an engine; ``sampled`` draws its decisions instead of comparing with threshold."""
    return ArbiterRule(load_scorer(directory, pair), threshold, sampled)


def trainable_names(arbiter: nn.Module) -> list[str]:
    """Names of the parameters that train; ValueError if any is neither LoRA nor head."""
    names = [name for name, parameter in arbiter.named_parameters() if parameter.requires_grad]
    strange = [name for name in names if "lora_" not in name and "modules_to_save" not in name]
    if strange or not names:
        raise ValueError(f"the trainable set is wrong ({strange[:3] or 'empty'}): only LoRA and the head may train")
    return names


def _check_trained(arbiter: PeftModel, directory: Path) -> None:
    untouched = all(not bool(parameter.any()) for name, parameter in arbiter.named_parameters() if "lora_B" in name)
    if untouched:
        warnings.warn(f"the arbiter in {str(directory)!r} is untrained: its LoRA changes nothing", stacklevel=3)


def _card(pins: Pins) -> str:
    base = _public_name(pins.draft.name)
    head = [
        "---",
        "library_name: peft",
        "tags: [cospec, speculative-decoding]",
        *([f"base_model: {base}"] if base else []),
    ]
    return "\n".join(
        [
            *head,
            "---",
            "# CoSpec arbiter",
            "",
            "Decides, at every mismatch of a speculative block, whether the draft's token is kept.",
            "",
            f"- draft: `{Path(pins.draft.name).name}`, target: `{Path(pins.target.name).name}`",
            f"- context cache: `{pins.context_cache}`, layout version {pins.layout_version}",
            "",
            "Load it with CoSpec (`cospec generate --arbiter DIR`), which checks that the pair is the one it was made "
            "for; PEFT's own loader does not.",
            "",
        ]
    )


def _public_name(name: str) -> str | None:
    """A Hub id as it is; None for a local path, which means nothing elsewhere."""
    return None if Path(name).exists() or name.count("/") != 1 else name


def _pin(model: PreTrainedModel, name: str, revision: str | None) -> ModelPin:
    config = {key: value for key, value in model.config.to_dict().items() if key not in _VOLATILE}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()
    return ModelPin(name, revision, digest, _probe(model))


def _probe(model: nn.Module) -> tuple[float, ...]:
    """Values of a few weight matrices, spread over the model; empty where weights are not plain floats."""
    matrices = [p for p in model.parameters() if p.dim() == 2 and p.is_floating_point() and p.numel() >= _VALUES_PROBED]
    chosen = matrices[:: max(1, len(matrices) // _NUM_PROBED)][:_NUM_PROBED]
    values = [matrix.detach().flatten()[-_VALUES_PROBED:].float().cpu() for matrix in chosen]
    return tuple(torch.cat(values).tolist()) if values else ()


def _alike(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Equal up to the rounding of another dtype: a cosine of 0.999. A missing probe cannot contradict."""
    if not one or not other or len(one) != len(other):
        return True
    cosine = torch.nn.functional.cosine_similarity(torch.tensor(one), torch.tensor(other), dim=0)
    return bool(cosine > 0.999)


def _pin_from(row: Mapping[str, Any]) -> ModelPin:
    return ModelPin(**{**row, "weight_probe": tuple(row["weight_probe"])})
