"""Judge heads: one number from the hidden state of a token that the target has read (Bachmann et al. 2025)."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from cospec.engine.heads.files import (
    PINS_NAME,
    HeadPins,
    check_pins,
    fill,
    find,
    head_pins,
    read_config,
    read_weights,
    save_head,
)
from cospec.pair import Pair

KIND = "judge"


class JudgeHead(nn.Module):
    """A keep logit of each hidden state of ``layer``, counted as in `HiddenStates`: w.h + b, in float32."""

    def __init__(self, hidden_size: int, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.linear = nn.Linear(hidden_size, 1)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits (...) of states (..., H)."""
        return self.linear(hidden.float()).squeeze(-1)


def last_layer(pair: Pair) -> int:
    """The layer behind the target's last norm."""
    return int(pair.target.config.get_text_config().num_hidden_layers)


def save_judge(head: JudgeHead, directory: Path, pair: Pair) -> None:
    """Write head, card and the pins of the target it was trained on."""
    pins = head_pins(pair)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "README.md").write_text(_card(head, pins), encoding="utf-8")
    config = {"kind": KIND, "layer": head.layer, "hidden_size": head.linear.in_features}
    save_head(directory, config, head.state_dict(), pins)


def check_judge(place: str) -> tuple[int, int]:
    """Layer and hidden size of a saved head; ValueError if there is none, which needs no weights to say."""
    config = read_config(place)
    if config.get("kind") != KIND:
        raise ValueError(f"{place!r} holds no judge head: give the directory that train/judge.py saved")
    if find(place, PINS_NAME) is None:
        raise ValueError(f"{place!r} has no {PINS_NAME}, so nothing says which target it is for: it was copied in part")
    layer, size = config.get("layer"), config.get("hidden_size")
    if not isinstance(layer, int) or not isinstance(size, int) or layer < 0 or size < 1:
        raise ValueError(
            f"the config in {place!r} has layer {layer!r} and hidden_size {size!r}: it was changed by hand"
        )
    return layer, size


def load_judge(place: str, pair: Pair) -> JudgeHead:
    """A saved head for this pair's target; ValueError if it was made for another one or is damaged."""
    layer, size = check_judge(place)
    check_pins(place, pair)
    config = pair.target.config.get_text_config()
    if layer > config.num_hidden_layers or size != config.hidden_size:
        raise ValueError(
            f"the judge head in {place!r} reads {size} numbers of layer {layer}, and the target has "
            f"{config.hidden_size} of layers 0 to {config.num_hidden_layers}: its config was changed by hand"
        )
    head = JudgeHead(size, layer)
    fill(head, read_weights(place, lambda name: name), place)
    if not all(torch.isfinite(weight).all() for weight in head.parameters()):
        raise ValueError(f"the judge head in {place!r} has weights that are no numbers: train it again")
    return head.requires_grad_(False).eval()


def _card(head: JudgeHead, pins: HeadPins) -> str:
    return "\n".join(
        [
            "---",
            "tags: [cospec, speculative-decoding]",
            "---",
            "# CoSpec judge head",
            "",
            "Decides from the target's hidden state of a drafted token whether a mismatch stays (Judge Decoding,",
            "Bachmann et al., ICLR 2025, arXiv 2501.19309).",
            "",
            f"- target: `{Path(pins.target.name).name}`, hidden states of layer {head.layer}",
            f"- {head.linear.in_features + 1} weights",
            "",
            "Use it with CoSpec (`cospec generate --rule judge:DIR`), which checks that the target is the one it was",
            "trained on.",
            "",
        ]
    )
