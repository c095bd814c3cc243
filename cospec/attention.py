"""Which models do their attention by the masks and positions they are given."""

from __future__ import annotations

from transformers import AutoModelForCausalLM, PretrainedConfig

#: Families with an attention code of their own that nevertheless keep to the mask and positions they are given;
#: tests/unit/test_attention.py holds each to the text that transformers writes.
_EXACT = frozenset({"gpt_neox_japanese", "megatron-bert", "rembert", "xglm"})


def check_attention(config: PretrainedConfig, role: str) -> None:
    """ValueError for a model that makes its masks or positions itself.

    The rows of a batch are of different lengths, and a region of the arbiter's lies apart from its context: a model
    that counts on one dense text (GPT-Neo's causal mask, ALiBi's distances) would silently be wrong.
    """
    model_class = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if model_class is None:
        # Loading names what is wrong with it.
        return
    reason = ""
    if getattr(config, "is_encoder_decoder", False):
        reason = "is the decoder of an encoder-decoder"
    elif getattr(config, "alibi", False):
        reason = "makes its positions (ALiBi) itself"
    elif config.model_type not in _EXACT and not _takes_masks(model_class):
        reason = "has an attention of its own, not transformers' common one, and may make masks and positions itself"
    if reason:
        raise ValueError(
            f"the {role} ({config.model_type}) {reason}, so that batches would not be exact: choose a model of another "
            "family"
        )


def _takes_masks(model_class: type) -> bool:
    """Whether the class declares transformers' common attention, whose masks come from outside."""
    names = ("_supports_attention_backend", "_supports_sdpa")
    return any(getattr(model_class, name, False) for name in names)
