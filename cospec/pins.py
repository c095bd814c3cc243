"""What a model is, in a few numbers: so that what was made for one is not used with another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from cospec.pair import Pair

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


def model_pin(model: PreTrainedModel, name: str, revision: str | None) -> ModelPin:
    """The pin of a loaded model."""
    config = {key: value for key, value in model.config.to_dict().items() if key not in _VOLATILE}
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()
    return ModelPin(name, revision, digest, _probe(model))


def model_pins(pair: Pair) -> dict[str, ModelPin]:
    """The pins of the pair's models, by role, the draft first where there is one."""
    loaded = {"draft": pair.draft, "target": pair.target}
    found = {role: (loaded[role], spec) for role, spec in pair.spec.models.items()}
    return {role: model_pin(model, spec.path, spec.revision) for role, (model, spec) in found.items() if model}


def pin_from(row: Mapping[str, Any]) -> ModelPin:
    """A pin as it was written to JSON; KeyError or TypeError for another mapping."""
    return ModelPin(**{**row, "weight_probe": tuple(row["weight_probe"])})


def difference(role: str, made: ModelPin, given: ModelPin) -> str | None:
    """In what the ``given`` model differs from the one something was ``made`` for, None if in nothing."""
    if made.config_digest != given.config_digest:
        return f"a {role} of another architecture or size ({made.name!r}, here {given.name!r})"
    if not _alike(made.weight_probe, given.weight_probe):
        return f"a {role} with other weights ({made.name!r}, here {given.name!r})"
    return None


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
