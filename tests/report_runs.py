"""Run directories written by hand, with hostile names and texts: what a report is made of."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from report_records import HOSTILE, byte_tokenizer, decision, rollout, write_tokenizer_pair

from cospec.engine.record import Rollout
from cospec.evaluation import Evaluation, MethodResult, Sample, summary
from cospec.jsonl import write_json_atomic, write_jsonl_atomic
from cospec.labels.record import MismatchLabel, RolloutLabels

#: A method may be called anything that fits into a JSON string.
METHODS = {"target": "target", "draft": "draft", "strict": "strict", "a/b <script>alert(1)</script> $x$ &": "arbiter"}
ARBITER = list(METHODS)[-1]


def sample(row_id: str | int, right: bool, text: str = "") -> Sample:
    verdict = "right" if right else "wrong"
    reason = "" if right else f"expected {text[:20]!r}"
    return Sample(row_id, verdict, text[:30] or None, reason, 12, "eos", 4, 20, 9, 6, 3, None, 2.0, text)


def hostile_rollouts(rule: str = "arbiter") -> list[Rollout]:
    """One per hostile text, in bytes, with a kept decision near its beginning and a fall-back at its end."""
    tokenizer = byte_tokenizer()
    made = []
    for number, text in enumerate(HOSTILE):
        ids = tokenizer.encode(text, add_special_tokens=False) or [65]
        prob = 1.0 if rule == "strict" else 0.99 - number / 50
        first = decision(len(ids) // 3, prob, 1e-5 if number % 2 else 0.2)
        second = decision(len(ids) - 1, 0.0 if rule == "strict" else 0.02 + number / 50, kept=False)
        both = [first, second] if len(ids) > 2 else []
        made.append(rollout(f"{number} {text}", ids, both, rule=rule))
    return made


def write_evaluation(directory: Path, *, finished: bool = True) -> Path:
    """Results, samples, settings, and the rollouts of two methods."""
    names = [r.id for r in hostile_rollouts()]
    results = []
    for place, (name, rule) in enumerate(METHODS.items()):
        samples = [sample(row_id, (i + place) % 3 > 0, HOSTILE[i]) for i, row_id in enumerate(names)]
        results.append(MethodResult(name, rule, None, rule == "arbiter", tuple(samples)))
    pair = {role: {"path": str(directory / "pair" / role)} for role in ("draft", "target")}
    write_tokenizer_pair(directory / "pair")
    settings = {"pair": pair, "num_draft_tokens": 5, "methods": {name: {"rule": rule} for name, rule in METHODS.items()}}
    write_json_atomic(directory / "settings.json", settings)
    rows = [{"method": r.name} | s.to_json() for r in results for s in r.samples]
    write_jsonl_atomic(directory / "samples.jsonl", rows)
    if finished:
        numbers = summary(Evaluation(tuple(results)), 5) | {"settings": settings}
        write_json_atomic(directory / "results.json", numbers)
    write_rollouts(directory / "rollouts" / f"{quote(ARBITER, safe='')}.jsonl", hostile_rollouts())
    write_rollouts(directory / "rollouts" / "strict.jsonl", hostile_rollouts("strict"))
    return directory


def write_rollouts(path: Path, rollouts: Sequence[Rollout]) -> Path:
    write_jsonl_atomic(path, [r.to_json() for r in rollouts])
    return path


def write_training(directory: Path, num_steps: int = 30) -> Path:
    """GRPO's metrics, config and the records of its rollouts, whose keep probabilities name their step."""
    rows = [
        {"step": step, "loss": 0.1, "reward": math.sin(step), "accuracy": 0.5 + step / 100, "keep_rate": 0.9}
        for step in range(1, num_steps + 1)
    ]
    write_jsonl_atomic(directory / "metrics.jsonl", [*rows, {"step": num_steps, "train_runtime": 12.5}])
    (directory / "config.yaml").write_text("steps: 30 # </pre><script>alert(1)</script>\n", encoding="utf-8")
    write_json_atomic(directory / "provenance.json", {"packages": {"torch": "2.13.0"}})
    for rank in range(2):
        records = [
            {
                "step": step,
                "verdict": {"kind": "wrong", "extracted": None, "reason": ""},
                "advantages": [0.0],
                "rollout": rollout(f"r{rank}s{step}", [65] * (step + 1), [decision(0, 0.6 + step / 100)]).to_json(),
            }
            for step in range(4)
        ]
        write_jsonl_atomic(directory / "rollouts" / f"rank{rank}.jsonl", records)
    return directory


def write_demo(directory: Path) -> Path:
    """The layout of `cospec demo`."""
    write_evaluation(directory / "eval")
    write_training(directory / "grpo")
    rows = [{"step": step, "loss": 1 / step} for step in range(1, 9)] + [{"step": 8, "held_out_loss": 0.25}]
    write_jsonl_atomic(directory / "sft" / "metrics.jsonl", rows)
    write_rollouts(directory / "rollouts.jsonl", hostile_rollouts("strict"))
    label = MismatchLabel(0, 1, True, False, 1.0)
    labels = RolloutLabels("a", "digest", "either", "block", "exact", (label, dataclasses.replace(label, label=None)))
    write_jsonl_atomic(directory / "labels.jsonl", [labels.to_json()])
    write_tokenizer_pair(directory)
    return directory
