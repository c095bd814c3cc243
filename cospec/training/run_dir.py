"""The run directory: the unit of truth of a training run.

``config.yaml, provenance.json, metrics.jsonl``, ``rollouts/`` or ``texts/``, ``checkpoints/`` and, at the end,
``arbiter/`` or ``head/``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from cospec.arbiter.adapter import CONFIG_NAME
from cospec.config import differing_lines, to_yaml
from cospec.engine.heads.files import PINS_NAME
from cospec.jsonl import append_jsonl, drop_torn_tail, read_jsonl, write_json_atomic, write_jsonl_atomic
from cospec.provenance import git_state, package_versions

_CHECKPOINT_FILES = ("optimizer.pt", "trainer_state.json")
_PACKAGES = ("cospec", "torch", "transformers", "peft", "trl", "accelerate", "datasets", "deepspeed")


#: Keys that say how to go on, not what the run is.
_NO_PART_OF_A_RUN = ("run.resume", "run.tracker")


@dataclass(frozen=True, slots=True)
class Product:
    """What a run makes: the folder it is put into, the file that is written last, and what each checkpoint holds."""

    folder: str
    last_file: str
    checkpoint_files: tuple[str, ...]


ARBITER = Product("arbiter", CONFIG_NAME, ("adapter_model.safetensors", CONFIG_NAME))
HEAD = Product("head", PINS_NAME, ("model.safetensors",))


@dataclass(frozen=True, slots=True)
class RunDir:
    """Paths of one run."""

    root: Path
    product: Product = ARBITER

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def rollouts(self) -> Path:
        return self.root / "rollouts"

    @property
    def texts(self) -> Path:
        """What the target wrote for a head to learn from."""
        return self.root / "texts"

    @property
    def result(self) -> Path:
        """Where the finished arbiter or head lies."""
        return self.root / self.product.folder

    def begin_result(self) -> Path:
        """Make the result's folder, with what made it; the folder."""
        self.result.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.root / "provenance.json", self.result / "provenance.json")
        shutil.copyfile(self.root / "config.yaml", self.result / "training.yaml")
        return self.result

    def last_checkpoint(self) -> str | None:
        """The newest complete checkpoint; one that a kill left half written is passed over."""
        found = [path for path in self.checkpoints.glob("checkpoint-*") if path.name.rpartition("-")[2].isdigit()]
        files = (*_CHECKPOINT_FILES, *self.product.checkpoint_files)
        whole = [path for path in found if all((path / name).is_file() for name in files)]
        return str(max(whole, key=_step_of)) if whole else None

    @property
    def finished(self) -> bool:
        """Whether a run ended here and left its result."""
        return (self.result / self.product.last_file).is_file()

    def begin(self, config: Any, inputs: Sequence[str], resume: bool) -> None:
        """Write config and provenance, and drop the metrics behind the last checkpoint.

        ValueError if the directory holds a run that must not be continued, or one of another config. A finished run of
        the same config is left as it is.
        """
        text = to_yaml(config)
        changed = ""
        recorded = self.root / "config.yaml"
        checkpoint = self.last_checkpoint()
        begun = bool(checkpoint) or self.finished
        if begun and not resume:
            raise ValueError(
                f"{self.root} already holds a run: set run.resume=true to go on with it, or another run.dir"
            )
        if begun and recorded.exists():
            changed = differing_lines(recorded.read_text(encoding="utf-8"), text, ignore=_NO_PART_OF_A_RUN)
        if changed:
            raise ValueError(
                f"{self.root} holds a run with another config ({changed}): compare {recorded}, or choose another "
                "run.dir"
            )
        if self.finished:
            return
        self.root.mkdir(parents=True, exist_ok=True)
        recorded.write_text(text, encoding="utf-8")
        write_json_atomic(self.root / "provenance.json", provenance(inputs))
        self._rewind(checkpoint)

    def _rewind(self, checkpoint: str | None) -> None:
        """Drop metrics and rollouts of steps behind the checkpoint: they will be made again."""
        step = _step_of(Path(checkpoint)) if checkpoint else 0
        # A metrics row names the step it ended, a rollout the step it began.
        for path, last in [(self.metrics, step), *((path, step - 1) for path in self.rollouts.glob("rank*.jsonl"))]:
            if path.exists():
                drop_torn_tail(path)
                write_jsonl_atomic(path, [row for row in read_jsonl(path) if row["step"] <= last])


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])


def provenance(inputs: Sequence[str]) -> dict[str, Any]:
    """What made this run: command, time, package versions, code revision, digests of the input files."""
    return {
        "argv": sys.argv,
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "python": sys.version.split()[0],
        "packages": package_versions(_PACKAGES),
        "git": git_state(),
        "world_size": int(os.environ.get("WORLD_SIZE", "1")),
        "inputs": {path: hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in inputs},
    }


#: What a line on the terminal shows of a step, where there is no progress bar; metrics.jsonl has everything.
_SHOWN = ("loss", "grad_norm", "reward", "accuracy", "keep_rate", "zero_variance_groups", "step_time")


class MetricsFile(TrainerCallback):
    """Writes every log line of a trainer to metrics.jsonl and its main numbers to stderr, in the main process alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if state.is_world_process_zero and logs:
            row = json.loads(json.dumps(logs, default=float))
            append_jsonl(self.path, [{"step": state.global_step, **row}])
            numbers = [f"{name} {row[name]:.4g}" for name in _SHOWN if name in row]
            if numbers and args.disable_tqdm:
                print(f"step {state.global_step}/{state.max_steps}", *numbers, sep="  ", file=sys.stderr)
