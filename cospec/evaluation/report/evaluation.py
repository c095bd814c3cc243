"""A directory of `cospec eval` as a report reads it: the summary in typed form, and each sample's verdict."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cospec.evaluation.evaluate import Evaluation, MethodResult
from cospec.evaluation.method import Sample, sample_from_json
from cospec.evaluation.run import RESULTS, SAMPLES, SETTINGS
from cospec.evaluation.statistics import Z95
from cospec.evaluation.summary import summary
from cospec.evaluation.table import lines
from cospec.jsonl import read_jsonl
from cospec.scoring.verdict import Verdict

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class MethodNumbers:
    """One line of the summary table; what a method or an older record lacks is None."""

    name: str
    rule: str
    bonus: str | None
    right: int
    num: int
    accuracy: float | None
    ci95: Interval
    p_vs_target: float | None
    tokens_per_round: float | None
    tokens_per_round_ci95: Interval | None
    target_passes_per_token: float | None
    speed_ratio: float | None
    keep_rate: float | None
    mean_reward: float | None
    num_failed: int
    truncated: float | None


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """``verdicts`` are by method and id; ``is_finished`` is False where only samples were found, which are summed."""

    path: Path
    name: str
    num_problems: int
    num_draft_tokens: int | None
    methods: tuple[MethodNumbers, ...]
    union_accuracy: float | None
    sentences: tuple[str, ...]
    settings: Mapping[str, Any]
    verdicts: Mapping[str, Mapping[str | int, Verdict]]
    is_finished: bool

    @property
    def method_names(self) -> frozenset[str]:
        return frozenset(method.name for method in self.methods)

    def described(self) -> str:
        """Size and state, for people."""
        state = "" if self.is_finished else ", not finished: summed from the samples written so far"
        return f"{len(self.methods)} methods on {self.num_problems} problems{state}"

    def named_alone(self, rule: str) -> str | None:
        """The name of the method of this rule; "draft" and "target" are the models alone."""
        return next((method.name for method in self.methods if method.rule == rule), None)


def read_evaluation(path: Path, name: str) -> EvaluationRun:
    """Read results, settings and samples of a directory; ValueError for files of another version."""
    settings = read_object(path / SETTINGS) if (path / SETTINGS).is_file() else {}
    samples = _samples(path / SAMPLES) if (path / SAMPLES).is_file() else {}
    is_finished = (path / RESULTS).is_file()
    numbers = read_object(path / RESULTS) if is_finished else _summed(samples, settings)
    try:
        return EvaluationRun(
            path=path,
            name=name,
            num_problems=int(numbers["n"]),
            num_draft_tokens=numbers.get("k"),
            methods=tuple(_method(key, row, samples.get(key, ())) for key, row in numbers["methods"].items()),
            union_accuracy=numbers.get("union_accuracy"),
            sentences=tuple(lines(numbers)),
            settings=numbers.get("settings") or settings,
            verdicts={
                method: {sample.id: Verdict(sample.verdict, sample.extracted, sample.reason) for sample in mine}
                for method, mine in samples.items()
            },
            is_finished=is_finished,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path / RESULTS} is not a summary of this version ({type(error).__name__}: {error}): run `cospec eval` "
            "with the same --out again, which writes it anew from the samples"
        ) from error


def _samples(path: Path) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for row in read_jsonl(path, skip_torn_tail=True):
        found.setdefault(str(row.pop("method", None)), []).append(sample_from_json(row))
    return found


def _summed(samples: Mapping[str, Sequence[Sample]], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of what an interrupted evaluation has written."""
    results = []
    for name, mine in samples.items():
        described = settings.get("methods", {}).get(name)
        rule = described if isinstance(described, str) else (described or {}).get("rule", name)
        bonus = described.get("bonus") if isinstance(described, Mapping) else None
        results.append(MethodResult(name, rule, bonus, rule == "arbiter", tuple(mine)))
    return summary(Evaluation(tuple(results)), settings.get("num_draft_tokens") or 0)


def _method(name: str, row: Mapping[str, Any], samples: Sequence[Sample]) -> MethodNumbers:
    low, high = row["ci95"]
    return MethodNumbers(
        name=name,
        rule=row["rule"],
        bonus=row.get("bonus"),
        right=row["right"],
        num=row["num"],
        accuracy=row["accuracy"],
        ci95=(low, high),
        p_vs_target=row.get("p_vs_target"),
        tokens_per_round=row.get("tokens_per_round"),
        tokens_per_round_ci95=ratio_interval([(sample.num_tokens, sample.num_rounds) for sample in samples]),
        target_passes_per_token=row.get("target_passes_per_token"),
        speed_ratio=row.get("speed_ratio"),
        keep_rate=row.get("keep_rate"),
        mean_reward=row.get("mean_reward"),
        num_failed=row.get("num_failed", 0),
        truncated=row.get("truncated"),
    )


def ratio_interval(counts: Sequence[tuple[int, int]]) -> Interval | None:
    """95 % interval of sum(a) / sum(b) over pairs (a, b), linearised (Cochran 1977, eq. 6.13); None below two pairs."""
    num, total = len(counts), sum(b for _, b in counts)
    if num < 2 or total == 0:
        return None
    ratio = sum(a for a, _ in counts) / total
    residual = sum((a - ratio * b) ** 2 for a, b in counts)
    half = Z95 * math.sqrt(residual * num / (num - 1)) / total
    return ratio - half, ratio + half


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; ValueError names the file of anything else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not JSON ({error}): it was cut or changed by hand") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds a JSON {type(value).__name__}, not an object: it is no record of a run")
    return value
