"""What all stages do before they train: parse the command line, load pair and arbiter, open the run directory."""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import set_seed
from peft import PeftModel
from transformers import PrinterCallback, Trainer

from cospec.arbiter.adapter import load_arbiter, pins_of, read_pins, save_arbiter, trainable_names
from cospec.arbiter.model import LoraSpec, new_arbiter
from cospec.config import load_config, to_yaml
from cospec.pair import Pair, load_pair
from cospec.pair_file import override, read_pair_file
from cospec.training.config import (
    ArbiterSection,
    DrafterHeadConfig,
    GrpoConfig,
    JudgeConfig,
    OptimiserSection,
    PairSection,
    RunSection,
    SftConfig,
)
from cospec.training.cpu_launch import missing_cpu_processes, start_processes
from cospec.training.run_dir import ARBITER, Product, RunDir

_DECODING = "completions are rollouts of the engine, so set rollout.{} instead"
_NO_EFFECT = "rewards and advantages are per decision, so it would have no effect"
#: Arguments of TRL's trainer that would be ignored, or break what is ours.
_REFUSED = {
    **{name: _DECODING.format(name) for name in ("temperature", "top_p", "top_k")},
    "max_completion_length": _DECODING.format("max_new_tokens"),
    "repetition_penalty": "the engine has no penalties",
    "min_p": "the engine has no min_p",
    "use_vllm": "the engine decodes the rollouts",
    "steps_per_generation": "a step's rollouts are those of prompts_per_step, so set that",
    "generation_batch_size": "a step's rollouts are those of prompts_per_step, so set that",
    "mask_truncated_completions": _NO_EFFECT,
    "scale_rewards": _NO_EFFECT,
    "reward_weights": _NO_EFFECT,
    "log_completions": "rollout.keep_records keeps the rollouts",
    "sync_ref_model": "the reference is the warm-up, which stays",
    "eval_strategy": "checkpoints are compared with `cospec eval`",
}

ConfigT = TypeVar("ConfigT", SftConfig, GrpoConfig, DrafterHeadConfig, JudgeConfig)


def run_stage(cls: type[ConfigT], train: Callable[[ConfigT], Any], description: str, argv: Sequence[str] | None) -> int:
    """Parse ``--config FILE [--dry-run] [key=value ...]`` and train; the process's exit code.

    A mistake of the user's is one line on stderr and exit code 2, on every process alike.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--config", help="YAML file of the run; every key has a default but the input files")
    parser.add_argument("--dry-run", action="store_true", help="print the resolved config and stop")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="such as optimiser.learning_rate=1e-4")
    arguments = parser.parse_args(argv)
    try:
        config = load_config(cls, arguments.config, arguments.overrides)
        if arguments.dry_run:
            print(to_yaml(config), end="")
        elif num := missing_cpu_processes():
            return start_processes(num, sys.argv[1:] if argv is None else argv)
        else:
            train(config)
    except KeyboardInterrupt:
        print(f"cospec: interrupted; checkpoints in {config.run.dir} stay, the same command goes on", file=sys.stderr)
        return 130
    except (ValueError, OSError) as error:
        if os.environ.get("COSPEC_TRACEBACK"):
            raise
        print(f"cospec: error: {error}", file=sys.stderr)
        return 2
    return 0


def load_training_pair(section: PairSection, use_cpu: bool) -> Pair:
    """The pair on this process's own device."""
    device = section.device or str(PartialState(cpu=use_cpu).device)
    return load_pair(override(read_pair_file(section.path), device, section.dtype, section.attn))


def prepare_arbiter(pair: Pair, section: ArbiterSection, seed: int) -> PeftModel:
    """The arbiter to train, the same on every process: a saved one, or a fresh one from ``seed``."""
    set_seed(seed)
    if section.init:
        arbiter = load_arbiter(section.init, pair, trainable=True)
    else:
        lora = LoraSpec(section.lora_r, section.lora_alpha, section.lora_dropout)
        draft = pair.require_draft("training an arbiter")
        arbiter = new_arbiter(draft, "own" if section.context_cache == "own" else "shared", lora)
    trainable_names(arbiter)
    return arbiter


def check_arbiter_init(section: ArbiterSection) -> None:
    """Refuse an unreadable ``arbiter.init`` before any weights load."""
    if section.init:
        read_pins(Path(section.init))


def open_run(
    config: SftConfig | GrpoConfig | DrafterHeadConfig | JudgeConfig, inputs: Sequence[str], product: Product = ARBITER
) -> tuple[RunDir, str | None]:
    """The run directory and the checkpoint to go on from; written by the main process alone.

    A run that is `finished` already is neither trained further nor overwritten: callers look and stop.
    """
    run, state = RunDir(Path(config.run.dir), product), PartialState(cpu=config.run.use_cpu)
    checkpoint = run.last_checkpoint()
    with state.main_process_first():
        if state.is_main_process:
            run.begin(config, inputs, config.run.resume)
    if run.finished and state.is_main_process:
        print(f"cospec: this run is finished already: its {run.product.folder} is in {run.result}", file=sys.stderr)
    return run, checkpoint


def micro_batches(config: SftConfig | DrafterHeadConfig) -> int:
    """How many a process takes for one step of ``batch``; ValueError where the batch cannot be shared evenly."""
    processes = PartialState(cpu=config.run.use_cpu).num_processes
    slots = config.optimiser.micro_batch * processes
    if config.batch % slots:
        raise ValueError(
            f"batch is {config.batch}, which {processes} process(es) with optimiser.micro_batch "
            f"{config.optimiser.micro_batch} cannot share evenly: choose a multiple of {slots}"
        )
    return config.batch // slots


def trainer_arguments(
    cls: type, section: RunSection, optimiser: OptimiserSection, extra: dict[str, Any], **own: Any
) -> Any:
    """Arguments of transformers' or TRL's trainer; ``extra`` is the config's `trainer` section.

    ValueError for an extra key that does not exist, or that another key of the config already decides.
    """
    run = RunDir(Path(section.dir))
    arguments = {
        "output_dir": str(run.checkpoints),
        "per_device_train_batch_size": optimiser.micro_batch,
        "learning_rate": optimiser.learning_rate,
        "warmup_steps": optimiser.warmup_steps,
        "lr_scheduler_type": optimiser.scheduler,
        "weight_decay": optimiser.weight_decay,
        "max_grad_norm": optimiser.max_grad_norm,
        "bf16": optimiser.bf16,
        "gradient_checkpointing": optimiser.gradient_checkpointing,
        "save_strategy": "steps" if section.save_every else "no",
        "save_steps": max(1, section.save_every),
        "save_total_limit": 2,
        "seed": section.seed,
        "report_to": [] if section.tracker == "none" else [section.tracker],
        "run_name": run.root.name,
        "use_cpu": section.use_cpu or not torch.cuda.is_available(),
        "logging_steps": 1,
        "disable_tqdm": not sys.stderr.isatty(),
        "remove_unused_columns": False,
        "ddp_find_unused_parameters": False,
        **own,
    }
    known = list(inspect.signature(cls).parameters)
    for key in extra:
        if key in _REFUSED:
            raise ValueError(f"trainer.{key} has no place here: {_REFUSED[key]}")
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"trainer.{key} is no argument of {cls.__name__}{hint}")
        if key in arguments:
            raise ValueError(f"trainer.{key} is decided by this stage or by another key of its config: leave it out")
    with warnings.catch_warnings():
        # Newer transformers rename it; the old name holds over the whole range we support.
        warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*", category=FutureWarning)
        return cls(**arguments, **extra)


class SavesArbiter(Trainer):
    """A trainer whose checkpoints are arbiter directories: adapter, head and pins, nothing of the draft."""

    pair: Pair

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # It prints whole dictionaries; `MetricsFile` prints what is looked at.
        self.remove_callback(PrinterCallback)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        arbiter = self.accelerator.unwrap_model(self.model)
        directory = Path(output_dir or self.args.output_dir)
        save_arbiter(arbiter, directory, pins_of(self.pair, arbiter.get_base_model().context_cache))
        torch.save(self.args, directory / "training_args.bin")

    def finish(self, run: RunDir) -> None:
        """Write the trained arbiter where the run directory promises it; once, by the main process."""
        if self.accelerator.is_main_process:
            arbiter = self.accelerator.unwrap_model(self.model)
            save_arbiter(arbiter, run.result, pins_of(self.pair, arbiter.get_base_model().context_cache))
            print(f"cospec: the arbiter is in {run.result}", file=sys.stderr)
        self.accelerator.wait_for_everyone()
