"""A draft/target pair: load it, check that it fits. The only loader of models.

Everything that can be refused is refused from the two configs and tokenizers, before any weights are read.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from cospec.attention import check_attention
from cospec.windows import WINDOWED, window_of

ATTENTION = ("sdpa", "eager")
DTYPES = ("auto", "float32", "bfloat16", "float16")
QUANTIZATION = ("bnb-4bit", "bnb-8bit")
#: Texts whose token ids must be the same under both tokenizers: equal vocabularies may still merge differently.
_PROBES = ("The answer is 12,345.60 kg\n\n\tdef f(x): return x**2  # naïve", "多言語 テスト 🙂 ½ é")


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model of a pair: a directory, a Hub id, or a GGUF file (alone or as ``gguf_file`` inside either)."""

    path: str
    revision: str | None = None
    gguf_file: str | None = None
    dtype: str = "auto"
    device: str | None = None
    device_map: str | None = None
    attn: str = "sdpa"
    quantization: str | None = None

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("dtype", self.dtype, DTYPES),
            ("attn", self.attn, ATTENTION),
            ("quantization", self.quantization, (None, *QUANTIZATION)),
        ):
            if value not in choices:
                note = " (the engine's 4-D masks need one of these)" if name == "attn" else ""
                raise ValueError(f"{name} of {self.path!r} is {value!r}: choose one of {choices}{note}")
        if self.device and self.device_map:
            raise ValueError(f"{self.path!r} sets both device and device_map: set one of them")

    def source(self) -> tuple[str, dict[str, Any]]:
        """The name and keywords `from_pretrained` takes."""
        path, gguf = self.path, self.gguf_file
        if gguf is None and path.endswith(".gguf") and Path(path).is_file():
            path, gguf = str(Path(path).parent), Path(path).name
        keywords: dict[str, Any] = {"revision": self.revision} if self.revision else {}
        return path, keywords | ({"gguf_file": gguf} if gguf else {})


@dataclass(frozen=True, slots=True)
class PairSpec:
    """What a PAIR.yaml holds; ``draft`` None (`draft: null`) leaves drafting to what needs no draft model."""

    draft: ModelSpec | None
    target: ModelSpec
    chat_template_kwargs: dict[str, Any] = field(default_factory=dict)
    system_prompt: str | None = None

    @property
    def models(self) -> dict[str, ModelSpec]:
        """The models there are, by role, the draft first."""
        return ({"draft": self.draft} if self.draft else {}) | {"target": self.target}


@dataclass(frozen=True, slots=True)
class Pair:
    """A loaded pair. ``vocab_size`` counts the ids its models share; ids behind it are padding and never chosen.

    Without a ``draft`` model, ``draft_context`` is the target's.
    """

    draft: PreTrainedModel | None
    target: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    vocab_size: int
    draft_context: int
    target_context: int
    eos_token_ids: tuple[int, ...]
    spec: PairSpec
    tokenizer_digest: str

    @property
    def device(self) -> torch.device:
        """Where token ids live: the target's input device."""
        return next(self.target.parameters()).device

    def require_draft(self, user: str) -> PreTrainedModel:
        """The draft model; ValueError, opened by ``user``, where there is none."""
        if self.draft is None:
            raise ValueError(f"{user} needs a draft model, and this pair is a target alone: name a draft")
        return self.draft

    def draft_alone(self) -> Pair:
        """The draft as if it were the target, to measure what it does by itself."""
        draft = self.require_draft("decoding with the draft alone")
        return dataclasses.replace(self, target=draft, target_context=self.draft_context)


def load_pair(spec: PairSpec) -> Pair:
    """Check the pair, then load its models in eval mode with frozen weights. Raises ValueError if it does not fit."""
    devices = [str(pick_device(model.device)) for model in spec.models.values() if not model.device_map]
    if len(set(devices)) > 1:
        raise ValueError(
            f"the draft is on {devices[0]} and the target on {devices[1]}: the engine needs both on one device (a "
            "target may spread over more with device_map)"
        )
    configs = {role: _config(model, role) for role, model in spec.models.items()}
    tokenizers = {role: _tokenizer(model, role) for role, model in spec.models.items()}
    tokenizer = tokenizers["target"]
    vocab_size = check_tokenizers(tokenizers.get("draft", tokenizer), tokenizer)
    for role, config in configs.items():
        if config.vocab_size < vocab_size:
            raise ValueError(
                f"the {role}'s output has {config.vocab_size} ids but the tokenizer uses {vocab_size}: "
                "this model was not made for this tokenizer"
            )
    contexts = {role: context_limit(config, role) for role, config in configs.items()}
    eos = _eos_ids(spec.target, configs["target"], tokenizer)
    models = {role: _model(model, role) for role, model in spec.models.items()}
    return Pair(
        draft=models.get("draft"),
        target=models["target"],
        tokenizer=tokenizer,
        vocab_size=vocab_size,
        draft_context=contexts.get("draft", contexts["target"]),
        target_context=contexts["target"],
        eos_token_ids=eos,
        spec=spec,
        tokenizer_digest=tokenizer_digest(tokenizer),
    )


def load_tokenizer(spec: PairSpec) -> PreTrainedTokenizerBase:
    """The pair's tokenizer alone, without its models; ValueError where it cannot be had."""
    return _tokenizer(spec.target, "target")


def check_tokenizers(draft: PreTrainedTokenizerBase, target: PreTrainedTokenizerBase) -> int:
    """The number of ids both tokenizers share; ValueError names the first id that differs and both its strings."""
    strings = [{index: token for token, index in tokenizer.get_vocab().items()} for tokenizer in (draft, target)]
    for index in range(max(len(strings[0]), len(strings[1]), *(max(s) + 1 for s in strings))):
        mine, other = strings[0].get(index), strings[1].get(index)
        if mine != other:
            raise ValueError(
                f"the tokenizers differ first at id {index}: draft has {mine!r}, target has {other!r}. "
                "Speculation compares ids, so both models must come from one tokenizer: choose a draft of the "
                "target's family"
            )
    for text in _PROBES:
        if draft.encode(text, add_special_tokens=False) != target.encode(text, add_special_tokens=False):
            raise ValueError(
                f"the tokenizers have equal vocabularies but split {text!r} differently: "
                "their merges or normalisers differ, so choose a draft of the target's family"
            )
    return max(strings[1]) + 1


def context_limit(config: PretrainedConfig, role: str) -> int:
    """How many tokens the model can hold exactly; ValueError for a model that the engine cannot run exactly.

    Within its window a sliding layer equals full attention: a family whose windows the engine does not know is held to
    its window.
    """
    limit = int(getattr(config, "max_position_embeddings", None) or 1 << 30)
    kinds = getattr(config, "layer_types", None) or []
    strange = sorted({kind for kind in kinds if kind not in ("full_attention", "sliding_attention")})
    # Purely recurrent models name no layer types.
    model_class = AutoModelForCausalLM._model_mapping.get(type(config), None)
    if getattr(model_class, "_is_stateful", False) and not strange:
        strange = ["recurrent"]
    if strange:
        raise ValueError(
            f"the {role} ({config.model_type}) has {', '.join(strange)} layers, whose state cannot be rolled back "
            "after a rejection: choose a model with attention layers only"
        )
    check_attention(config, role)
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if rope.get("rope_type") == "longrope":
        # Beyond the original context its frequencies change with the longest row of the batch.
        original = rope.get(
            "original_max_position_embeddings", getattr(config, "original_max_position_embeddings", limit)
        )
        limit = min(limit, int(original))
    window = window_of(config)
    return limit if window is None or config.model_type in WINDOWED else min(limit, window)


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """A digest of the id -> string table."""
    table = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256(json.dumps(table).encode()).hexdigest()


def _config(spec: ModelSpec, role: str) -> PretrainedConfig:
    path, keywords = spec.source()
    return _loaded(lambda: AutoConfig.from_pretrained(path, **keywords), spec, role, "config").get_text_config()


def _tokenizer(spec: ModelSpec, role: str) -> PreTrainedTokenizerBase:
    path, keywords = spec.source()
    return _loaded(lambda: AutoTokenizer.from_pretrained(path, **keywords), spec, role, "tokenizer")


def _model(spec: ModelSpec, role: str) -> PreTrainedModel:
    path, keywords = spec.source()
    keywords |= {"dtype": spec.dtype, "attn_implementation": spec.attn}
    if spec.quantization:
        from transformers import BitsAndBytesConfig

        keywords["quantization_config"] = BitsAndBytesConfig(**{f"load_in_{spec.quantization[4:]}": True})
    if spec.device_map:
        keywords["device_map"] = spec.device_map
    keywords["output_loading_info"] = True
    model, report = _loaded(lambda: AutoModelForCausalLM.from_pretrained(path, **keywords), spec, role, "weights")
    if report["missing_keys"]:
        # transformers would go on with random numbers in their place.
        missing = sorted(report["missing_keys"])
        raise ValueError(
            f"the {role}'s weights in {spec.path!r} lack {len(missing)} tensors of its config, the first being "
            f"{missing[0]!r}: the files are incomplete or of another model, so fetch them again"
        )
    model.requires_grad_(False).eval()
    return model if spec.device_map or spec.quantization else model.to(pick_device(spec.device))


def pick_device(device: str | None) -> torch.device:
    """The named device, or CUDA where there is one, else the CPU; ValueError for one that cannot be had."""
    name = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"there is no device {name!r}: use 'cpu', 'cuda' or 'cuda:N'") from error
    try:
        usable = chosen.type != "meta" and bool((torch.zeros(1, device=chosen) == 0).item())
    except (RuntimeError, AssertionError, NotImplementedError):
        usable = False
    if not usable:
        raise ValueError(f"device {name!r} was asked for, but torch cannot use it on this machine: use --device cpu")
    return chosen


def _loaded(load: Any, spec: ModelSpec, role: str, what: str) -> Any:
    """Whatever keeps a part from loading becomes one error that names the role, the path and the part."""
    if Path(spec.path).is_absolute() and not Path(spec.path).exists():
        raise ValueError(f"the {role}'s path {spec.path!r} does not exist: give a directory, a GGUF file or a Hub id")
    try:
        return load()
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        # RuntimeError is what torch and transformers raise for shapes that do not fit and for memory that is lacking.
        reason = str(error).strip().split("\n")[0]
        raise ValueError(
            f"cannot load the {role}'s {what} from {spec.path!r}: {reason}. Give a model directory, a GGUF file or a "
            "Hub id that this machine can reach"
        ) from error


def _eos_ids(spec: ModelSpec, config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """End ids from the generation config, else the model config, else the tokenizer. Its sampling is ignored."""
    path, keywords = spec.source()
    try:
        eos = GenerationConfig.from_pretrained(
            path, **{k: v for k, v in keywords.items() if k == "revision"}
        ).eos_token_id
    except OSError:
        # A GGUF file or an old checkpoint has none.
        eos = None
    for value in (eos, getattr(config, "eos_token_id", None), tokenizer.eos_token_id):
        if value is not None:
            return (value,) if isinstance(value, int) else tuple(value)
    return ()
