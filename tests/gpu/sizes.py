"""How much is done: on a GPU in minutes, or on a CPU in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

OURS = ("target", "strict", "arbiter shared", "arbiter own")
EVERY = (*OURS, "generate", "assisted")


@dataclass(frozen=True, slots=True)
class Case:
    """``num_prompts`` are decoded, ``together`` at a time, by each of ``methods``, ``repeats`` times each."""

    num_prompts: int
    together: int
    num_new: int
    methods: tuple[str, ...]
    repeats: int

    @property
    def label(self) -> str:
        return f"{self.num_prompts} by {self.together}, {self.num_new} new"


@dataclass(frozen=True, slots=True)
class Size:
    """Shapes of the made pair, its cases, and the numbers of the other parts.

    Of a profile, ``window_new`` tokens are decoded; the rounds from the ``window_first``-th target pass on are looked
    at, ``window_rounds`` of them. No new measurement begins after ``limit_s``
    seconds; the last ``profiles_s`` of them are the profiles'.
    """

    vocab_size: int
    target: dict[str, Any]
    draft: dict[str, Any]
    lora_r: int
    num_draft_tokens: int
    prompt_len: int
    cases: tuple[Case, ...]
    profiled_together: tuple[int, ...]
    window_new: int
    window_first: int
    window_rounds: int
    tiny_prompts: int
    tiny_new: int
    copied_bytes: int
    limit_s: float
    profiles_s: float


def _rope(factor: float) -> dict[str, Any]:
    return {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }


_LLAMA_3 = {
    "max_position_embeddings": 131072,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-5,
}

#: The shapes of Llama-3.1-8B and Llama-3.2-1B. What is least wanted comes last and is left out where time is short.
FULL = Size(
    vocab_size=128256,
    target=_LLAMA_3
    | {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "head_dim": 128,
        "rope_parameters": _rope(8.0),
    },
    draft=_LLAMA_3
    | {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "head_dim": 64,
        "rope_parameters": _rope(32.0),
    },
    lora_r=32,
    num_draft_tokens=5,
    prompt_len=32,
    cases=(
        Case(1, 1, 64, EVERY, repeats=5),
        Case(8, 8, 64, (*OURS, "generate"), repeats=3),
        Case(8, 1, 64, ("generate", "assisted"), repeats=2),
        Case(1, 1, 256, EVERY, repeats=3),
        Case(8, 8, 256, (*OURS, "generate"), repeats=3),
        Case(8, 1, 256, ("generate", "assisted"), repeats=1),
    ),
    profiled_together=(1, 8),
    window_new=64,
    window_first=4,
    window_rounds=6,
    tiny_prompts=8,
    tiny_new=48,
    copied_bytes=1 << 30,
    limit_s=440.0,
    profiles_s=60.0,
)

_SMALL = {"max_position_embeddings": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}

SMALL = Size(
    vocab_size=512,
    target=_SMALL | {"hidden_size": 128, "intermediate_size": 192, "head_dim": 32},
    draft=_SMALL | {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16},
    lora_r=4,
    num_draft_tokens=3,
    prompt_len=8,
    cases=(
        Case(1, 1, 12, EVERY, repeats=2),
        Case(3, 3, 12, (*OURS, "generate"), repeats=2),
        Case(3, 1, 12, ("generate", "assisted"), repeats=1),
        Case(1, 1, 24, EVERY, repeats=1),
    ),
    profiled_together=(1,),
    window_new=26,
    window_first=3,
    window_rounds=3,
    tiny_prompts=4,
    tiny_new=20,
    copied_bytes=1 << 24,
    limit_s=3600.0,
    profiles_s=60.0,
)
