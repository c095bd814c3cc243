"""Run directories written by hand, with hostile names and texts: what a report is made of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from report_records import HOSTILE, byte_tokenizer, decision, rollout, write_tokenizer_pair

from cospec.engine.record import Rollout
from cospec.jsonl import write_json_atomic, write_jsonl_atomic
from cospec.labels.record import MismatchLabel, RolloutLabels, digest

#: A method may be called anything that fits into a JSON string.
METHODS = {"target": "target", "draft": "draft", "strict": "strict", "a/b <script>alert(1)</script> $x$ &": "arbiter"}
ARBITER = list(METHODS)[-1]


def sample_row(task: str, method: str, row_id: str | int, right: bool, text: str) -> dict[str, Any]:
    """The fields of a sample that a report reads."""
    verdict = {"verdict": "right" if right else "wrong", "extracted": text[:30] or None, "reason": f"expected {text!r}"}
    counts = {"num_tokens": 12, "num_rounds": 4, "num_mismatches": 6, "num_kept": 3, "finish_reason": "eos"}
    return {"task": task, "method": method, "id": row_id, "repeat": 0, **verdict, **counts, "text": text}


def method_numbers(rule: str, right: int, num: int) -> dict[str, Any]:
    """One method of `results.json`."""
    ratios = {"speed_ratio": 1.2, "speed_ratio_ci95": [1.1, 1.3]}
    drafts = rule not in ("draft", "target")
    positions = {"num_drafted": [10, 8], "num_accepted": [9, 5]}
    risks = {"edges": [0.0, 1e-4, 1.0], "num_mismatches": [4, 6], "num_kept": [1, 5]}
    compared = {
        "difference": 0.1,
        "ci95": [-0.05, 0.25],
        "half_width": 0.15,
        "gained": 2,
        "lost": 1,
        "num_problems": num,
        "margin": 0.02,
        "not_inferior": False,
        "p_inferior_adjusted": 0.3,
        "min_detectable": 0.2,
    }
    return {
        "rule": rule,
        "bonus": "arbitrated" if drafts else None,
        "right": right,
        "num": num,
        "accuracy": right / num,
        "ci95": [0.4, 0.8],
        "num_failed": 1,
        "num_timeout": 0,
        "num_rounds": 10 if drafts else 0,
        "tokens_per_round": 3.5 if drafts else 1.0,
        "tokens_per_round_ci95": [3.2, 3.8] if drafts else None,
        "target_passes_per_token": None if rule == "draft" else 0.3,
        "keep_rate": 0.6,
        "truncated": 0.0,
        "repetitive": 0.1,
        "length_ratio": 1.05,
        "p_vs_target": None if rule == "target" else 0.02,
        "p_adjusted": None if rule == "target" else 0.04,
        "vs_target": None if rule == "target" else compared,
        "by_position": positions if drafts else {"num_drafted": [], "num_accepted": []},
        "by_risk": risks,
        "timing": ratios,
    }


def comparison(num: int) -> dict[str, Any]:
    """One task of `results.json`, or its top level."""
    share = {"count": 1, "num": num, "share": 1 / num, "ci95": [0.0, 0.5]}
    shares = {"recovered": share, "lost": share, "of_neither": share}
    return {
        "n": num,
        "k": 5,
        "methods": {name: method_numbers(rule, num // 2 + i, num) for i, (name, rule) in enumerate(METHODS.items())},
        "union_accuracy": 0.9,
        "non_nested": 1,
        "num_neither_alone": 1,
        "recovered_share": {ARBITER: 0.5},
        "lost_share": {ARBITER: 0.1},
        "solved_by_neither_alone": {ARBITER: 0.2},
        "complementarity": {"union": share, "only_draft": share, "methods": {ARBITER: shares}},
    }


def summary(tasks: Sequence[str], num: int) -> dict[str, Any]:
    """What `results.json` holds, as far as a report reads it."""
    mean = {"accuracy": 0.6, "ci95": [0.5, 0.7], "difference": 0.1, "difference_ci95": [0.0, 0.2], "p": 0.04}
    macro = {name: mean | {"timing": {"speed_ratio": 1.2, "speed_ratio_ci95": [1.1, 1.3]}} for name in METHODS}
    parts = {task: comparison(num) for task in tasks}
    return comparison(num * len(tasks)) | {"tasks": parts, "macro": {"num_tasks": len(tasks), "methods": macro}}


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


def write_evaluation(directory: Path, tasks: Sequence[str] = ("maths",), *, finished: bool = True) -> Path:
    """Results, samples, settings, and the rollouts of two methods on the first task."""
    ids = [r.id for r in hostile_rollouts()]
    rows = [
        sample_row(task, method, row_id, (i + place) % 3 > 0, HOSTILE[i])
        for task in tasks
        for place, method in enumerate(METHODS)
        for i, row_id in enumerate(ids)
    ]
    pair = {role: {"path": str(directory / "pair" / role)} for role in ("draft", "target")}
    write_tokenizer_pair(directory / "pair")
    described = {name: {"rule": rule} for name, rule in METHODS.items()}
    settings = {"pair": pair, "num_draft_tokens": 5, "methods": described}
    write_json_atomic(directory / "settings.json", settings)
    write_jsonl_atomic(directory / "samples.jsonl", rows)
    if finished:
        write_json_atomic(directory / "results.json", summary(tasks, len(ids)) | {"settings": settings})
    for method, rule in ((ARBITER, "arbiter"), ("strict", "strict")):
        name = quote(f"{tasks[0]}/{method}", safe="")
        write_rollouts(directory / "rollouts" / f"{name}.jsonl", hostile_rollouts(rule))
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
    rollouts = hostile_rollouts("strict")
    write_rollouts(directory / "rollouts.jsonl", rollouts)
    labels = [
        RolloutLabels(r.id, digest(r), "", "either", "block", "exact", tuple(_labels(r)))
        for r in rollouts
        if r.decisions
    ]
    write_jsonl_atomic(directory / "labels.jsonl", [row.to_json() for row in labels])
    write_tokenizer_pair(directory)
    return directory


def _labels(made: Rollout) -> Iterator[MismatchLabel]:
    """The draft's branch alone ends right at a kept mismatch, at the others both."""
    for number, block in enumerate(made.blocks):
        for one in block.decisions:
            yield MismatchLabel(number, one.position, True, not one.kept, 1.0)
