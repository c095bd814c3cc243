"""Decode configs: the rule, K and sampling that `cospec tune` chose, as a file that decoding commands accept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cospec.config import keys_of, load_config, to_yaml
from cospec.engine.record import Sampling
from cospec.jsonl import write_text_atomic


@dataclass(frozen=True)
class DecodeConfig:
    """How to decode: a rule's spec, or an arbiter's directory with its threshold.

    The digests are of the files of arbiter, judge and drafter; one that is None is not compared. ``bonus`` None is the
    rule's usual form; ``drafter`` is a spec as `--drafter` takes it. ``provenance`` says what the choice rests on;
    nothing reads it but people, and the warning about another pair.
    """

    rule: str = "strict"
    arbiter: str | None = None
    arbiter_digest: str | None = None
    judge_digest: str | None = None
    threshold: float | None = None
    num_draft_tokens: int = 5
    bonus: Literal["arbitrated", "target", "rule"] | None = None
    drafter: str = "model"
    drafter_digest: str | None = None
    sampling: Sampling = field(default_factory=Sampling)
    provenance: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.arbiter is None) != (self.rule != "arbiter"):
            raise ValueError(
                f"rule {self.rule!r} with arbiter {self.arbiter!r}: `rule: arbiter` and an arbiter's directory belong "
                "together"
            )
        if self.arbiter is None and (self.threshold is not None or self.arbiter_digest is not None):
            raise ValueError(f"rule {self.rule!r} has no arbiter: drop threshold and arbiter_digest")
        for name, spec in (("judge_digest", self.rule), ("drafter_digest", self.drafter)):
            if getattr(self, name) is not None and ":" not in spec:
                raise ValueError(f"{name} is given, and {spec!r} has no files: drop it")
        if self.num_draft_tokens < 1:
            raise ValueError(f"num_draft_tokens is {self.num_draft_tokens}: it must be at least 1")


def read_decode_file(path: str | Path) -> DecodeConfig:
    """The config of a file; ValueError for one without a rule, unknown keys, wrong types and contradictions."""
    try:
        config = load_config(DecodeConfig, path, [])
        if "rule" not in keys_of(Path(path)):
            raise ValueError("it names no rule: add `rule:`, or let `cospec tune` write it anew")
        return config
    except ValueError as error:
        raise ValueError(f"decode config {path}: {error}") from error


def write_decode_file(path: Path, config: DecodeConfig) -> None:
    """Write it, with a line that says what it is for; what stood there before stays until all of it is written."""
    head = "# For `cospec generate --decode` and `cospec eval --decode`; chosen for one pair, sampling and task.\n"
    write_text_atomic(path, head + to_yaml(config))
