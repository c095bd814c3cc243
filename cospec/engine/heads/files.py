"""Files of a head: weights wherever they lie, and the pins of the target it was made for."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers.utils import cached_file

from cospec import __version__
from cospec.jsonl import write_json_atomic
from cospec.pair import Pair
from cospec.pins import ModelPin, difference, model_pins, pin_from

CONFIG_NAME, WEIGHTS_NAME, PINS_NAME = "config.json", "model.safetensors", "cospec_head.json"
_INDEX_NAME, _PICKLED_NAME = "model.safetensors.index.json", "pytorch_model.bin"
#: What stands beside weights or in their place where these are quantised: FP8 (DeepSeek-V3), compressed-tensors, GPTQ.
_QUANTISED = (".weight_scale_inv", ".weight_scale", ".weight_packed", ".qweight")


@dataclass(frozen=True, slots=True)
class HeadPins:
    """What a head was made for."""

    target: ModelPin
    tokenizer_digest: str
    cospec_version: str = __version__


def head_pins(pair: Pair) -> HeadPins:
    """The pins of a head made for this pair's target."""
    return HeadPins(model_pins(pair)["target"], pair.tokenizer_digest)


def check_pins(directory: str, pair: Pair) -> None:
    """ValueError naming every part in which a head with pins was made for another target; others pass."""
    path = find(directory, PINS_NAME)
    if path and (wrong := made_for_another(path, pair)):
        raise ValueError(
            f"the head in {directory!r} was made for another target: {wrong}. Load the target it names, or train a "
            "head for this one"
        )


def made_for_another(path: Path, pair: Pair) -> str:
    """In what the target that the pins in ``path`` name is another than this pair's, "" if in nothing."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        made = HeadPins(**{**row, "target": pin_from(row["target"])})
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read ({error}): it was changed or made by another version") from error
    here = head_pins(pair)
    wrong = [found] if (found := difference("target", made.target, here.target)) else []
    if made.tokenizer_digest != here.tokenizer_digest:
        wrong.append(f"another tokenizer ({made.tokenizer_digest[:12]}, here {here.tokenizer_digest[:12]})")
    return "; ".join(wrong)


def save_pins(path: Path, pins: HeadPins) -> None:
    """Write pins, for `made_for_another` to compare."""
    write_json_atomic(path, dataclasses.asdict(pins))


def save_head(directory: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor], pins: HeadPins) -> None:
    """Write config, weights and pins; the pins last: where they are, the directory is whole."""
    from safetensors.torch import save_file

    directory.mkdir(parents=True, exist_ok=True)
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}
    save_file(held, directory / WEIGHTS_NAME, metadata={"format": "pt"})
    (directory / CONFIG_NAME).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_pins(directory / PINS_NAME, pins)


def find(place: str, name: str, revision: str | None = None) -> Path | None:
    """A file of a directory or Hub repository, None if it has no such file; ValueError where there is no such place."""
    if Path(place).is_dir():
        path = Path(place) / name
        return path if path.is_file() else None
    if Path(place).is_absolute() or place.startswith(".") or place.count("/") > 1:
        raise ValueError(f"there is no directory {place!r}: give a head's directory or a Hub id")
    try:
        found = cached_file(place, name, revision=revision, _raise_exceptions_for_missing_entries=False)
    except OSError as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"{place!r} is no directory, and cannot be had from the Hub: {reason}") from error
    return Path(found) if found else None


def read_config(place: str, revision: str | None = None) -> dict[str, Any]:
    """The config.json of a head or model; ValueError where it cannot be read."""
    path = find(place, CONFIG_NAME, revision)
    if path is None:
        raise ValueError(
            f"there is neither a directory {place!r} with a {CONFIG_NAME} nor such a Hub repository within reach: give "
            "the directory of a head"
        )
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no JSON mapping ({error}): fetch the head again") from error


def read_weights(place: str, wanted: Callable[[str], str | None], revision: str | None = None) -> dict[str, Tensor]:
    """Tensors of a checkpoint whose names ``wanted`` gives a new name, under it; no other is read.

    Safetensors, in one file or many, or a pickled state dict. ValueError where there are none, or they are quantised or
    damaged.
    """
    files = _safetensors(place, wanted, revision)
    found: dict[str, Tensor] = {}
    try:
        for path in files or ():
            with safe_open(path, framework="pt", device="cpu") as file:
                names = _renamed(file.keys(), wanted, place)
                found |= {name: file.get_tensor(old) for old, name in names.items()}
        if files is None:
            pickled = find(place, _PICKLED_NAME, revision)
            if pickled is None:
                raise ValueError(f"{place!r} holds neither {WEIGHTS_NAME} nor {_PICKLED_NAME}: fetch its weights")
            rows = torch.load(pickled, map_location="cpu", weights_only=True)
            found = {name: rows[old] for old, name in _renamed(rows, wanted, place).items()}
    except (SafetensorError, OSError, RuntimeError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ValueError(f"the weights in {place!r} are damaged: {reason}. Fetch them again") from error
    return found


def _renamed(held: Iterable[str], wanted: Callable[[str], str | None], place: str) -> dict[str, str]:
    """The new names of what is wanted, by those in the file; ValueError where they are of quantised weights."""
    names = {old: name for old in held if (name := wanted(old)) is not None}
    if quantised := next((name for name in names if name.endswith(_QUANTISED)), None):
        raise ValueError(
            f"the weights in {place!r} are quantised ({quantised}), and heads are read from plain ones alone: give a "
            "checkpoint in bfloat16"
        )
    return names


def _safetensors(place: str, wanted: Callable[[str], str | None], revision: str | None) -> list[Path] | None:
    """The files that may hold what is wanted, None where there are no safetensors."""
    index = find(place, _INDEX_NAME, revision)
    if index is None:
        single = find(place, WEIGHTS_NAME, revision)
        return [single] if single else None
    held = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    names = sorted({file for tensor, file in held.items() if wanted(tensor) is not None})
    paths = [find(place, name, revision) for name in names]
    if None in paths:
        raise ValueError(f"{place!r} lacks {names[paths.index(None)]}, which its index names: fetch it again")
    return [path for path in paths if path]


def fill(head: nn.Module, weights: Mapping[str, Tensor], place: str, optional: tuple[str, ...] = ()) -> None:
    """Put the weights into the head; ValueError unless they are all of its own, in its shapes, and no others."""
    own = head.state_dict()
    missing = sorted(name for name in own if name not in weights and name not in optional)
    strange = sorted(name for name in weights if name not in own)
    if missing or strange:
        raise ValueError(
            f"the weights in {place!r} are not those of this kind of head: "
            f"{_named('missing', missing)}{', ' if missing and strange else ''}{_named('unknown', strange)}. Give "
            "another checkpoint"
        )
    for name, tensor in weights.items():
        if tensor.shape != own[name].shape:
            raise ValueError(
                f"{name} in {place!r} has shape {tuple(tensor.shape)}, and the config asks for "
                f"{tuple(own[name].shape)}: config and weights are of different heads"
            )
    head.load_state_dict(dict(weights), strict=False)


def _named(what: str, names: list[str]) -> str:
    more = ", ..." if len(names) > 3 else ""
    return f"{what} {', '.join(names[:3])}{more}" if names else ""
