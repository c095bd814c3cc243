"""What a user and a task ask for, checked: ``--model_args``, generation options, requests."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.utils import normalize_gen_kwargs

from cospec.engine.record import Sampling
from cospec.engine.rules import rule_named
from cospec.pair import ModelSpec, PairSpec
from cospec.pair_file import read_pair_file

# Under the name of the harness, whose settings decide what is shown.
_LOG = logging.getLogger("lm_eval.cospec")
#: Options of a task's generation that the engine has, besides the stop strings and the cap.
_SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class Decoding:
    """How one request is decoded: sampling, stop strings, and the most tokens it may write."""

    sampling: Sampling
    stops: tuple[str, ...]
    max_gen_toks: int


def rule_name(rule: str | None, arbiter: str | None, threshold: float, bonus: str | None) -> str:
    """The rule in use, `strict` by default; ValueError for options that contradict each other or would be ignored."""
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise ValueError(f"threshold is {threshold!r}: write a number, such as 0.5")
    name = rule or ("arbiter" if arbiter else "strict")
    if arbiter and name != "arbiter":
        raise ValueError(f"rule={name} and arbiter={arbiter} contradict each other: keep one of them")
    if not arbiter and name != "draft":
        rule_named(name)
    if not arbiter and threshold != 0.5:
        raise ValueError(f"threshold={threshold} is given, but there is no arbiter: add arbiter=DIR or drop it")
    if bonus and name in ("target", "draft"):
        raise ValueError(f"bonus={bonus} is given, but rule {name!r} drafts nothing: drop it")
    return name


def check_whole(**numbers: object) -> None:
    """ValueError for a model argument that is no whole number; the harness hands over what it was given."""
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name} is {value!r}: write a whole number")


def pair_spec(pair: str | None, draft: str | None, target: str | None) -> PairSpec:
    """The pair by its file or its two models; ValueError for both or neither."""
    if pair and not (draft or target):
        return read_pair_file(pair)
    if pair or not (draft and target):
        raise ValueError("name the models with pair=PAIR.yaml, or with draft=MODEL,target=MODEL: one of the two ways")
    return PairSpec(ModelSpec(draft), ModelSpec(target))


def device_of(device: str | None) -> str | None:
    """The device asked for; None, which leaves it to the pair, for the harness's own default where there is no GPU."""
    # The command line hands "cuda:0" over whether anybody asked for it or not.
    if device == "cuda:0" and not torch.cuda.is_available():
        _LOG.warning("there is no CUDA device: the pair chooses its own")
        return None
    return device


def decoding(options: Mapping[str, Any], default_cap: int) -> Decoding:
    """The generation options of a request; ValueError names an option that the engine does not have."""
    known = dict(normalize_gen_kwargs(dict(options), default_cap))
    stops = _stops(known.pop("until"))
    cap = known.pop("max_gen_toks")
    strange = [name for name in known if name not in _SAMPLING]
    if strange:
        raise ValueError(
            f"the engine has no generation option {', '.join(strange)}: leave it out of gen_kwargs, or choose another "
            "model for this task"
        )
    off = Sampling()
    _require_temperature(known)
    wanted = {name: known.get(name) or getattr(off, name) for name in _SAMPLING if name != "do_sample"}
    sampling = Sampling(**wanted)
    return Decoding(sampling, stops, cap)


def _stops(until: Sequence[object]) -> tuple[str, ...]:
    """The stop strings; the harness makes a list of a single one, and of None."""
    given = [stop for stop in until if stop is not None]
    for stop in given:
        if not isinstance(stop, str):
            raise ValueError(f"until holds {stop!r}: a stop string is text, so write it in quotes")
    return tuple(stop for stop in given if isinstance(stop, str))


def _require_temperature(known: Mapping[str, Any]) -> None:
    """ValueError for sampling without a temperature, which would decode greedily."""
    if known.get("temperature") or known["do_sample"] is False:
        return
    raise ValueError("do_sample is true, but there is no temperature: add temperature above 0, or drop do_sample")


def row_ids(requests: Sequence[Instance]) -> list[str]:
    """An id per request: it decides the request's random draws, and repeats of one document must differ in them."""
    seen = Counter[str]()
    ids = []
    for request in requests:
        name = f"{request.task_name}/{request.doc_id}/{request.idx}"
        ids.append(f"{name}/{seen[name]}")
        seen[name] += 1
    return ids
