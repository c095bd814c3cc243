"""Stage 2: GRPO on complete CoSpec rollouts (method section 4).

A subclass of TRL's GRPOTrainer in which a *decision* plays the part of a token: a "completion" is the rollout's
executed decisions (1 keep, 0 fall back), each with its own advantage. Generation, scoring and log-probabilities are
ours; clipping, KL, normalisation by decisions, accumulation and distribution are TRL's.

Run as ``accelerate launch -m cospec.training.grpo --config FILE [key=value ...]``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object
from datasets import Dataset
from peft import PeftModel
from torch import Tensor, nn
from trl import GRPOConfig as TrlConfig
from trl import GRPOTrainer
from trl.trainer.utils import RepeatSampler, use_adapter

from cospec.arbiter.model import ArbiterScorer, separator
from cospec.engine.decode import Engine
from cospec.engine.record import Rollout, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import ArbiterRule
from cospec.jsonl import append_jsonl
from cospec.pair import Pair
from cospec.prompt_rows import PromptRow, load_prompt_rows
from cospec.prompts import row_prompt_ids
from cospec.rewards import GroupStats, group_advantages
from cospec.scoring import UserScorer, Verdict, safe_score, scorer_for
from cospec.scoring.golds import require_readable_golds
from cospec.training.config import GrpoConfig
from cospec.training.decision_logps import scored, scored_where_taught
from cospec.training.run_dir import MetricsFile, RunDir
from cospec.training.setup import (
    SavesArbiter,
    check_arbiter_init,
    load_training_pair,
    open_run,
    prepare_arbiter,
    run_stage,
    trainer_arguments,
)


class _EpochSampler(RepeatSampler):
    """TRL's sampler, with an order that depends on the epoch alone, so that a resumed run sees the same prompts."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        if self.shuffle:
            self.generator.manual_seed(hash((self.seed, self.epoch)) & 0x7FFFFFFF)
        return super().__iter__()


class ArbiterGrpoTrainer(SavesArbiter, GRPOTrainer):
    """TRL's GRPO over decisions. ``rows`` are the prompt rows with their ids, in the order of the data set."""

    def __init__(
        self,
        arbiter: PeftModel,
        pair: Pair,
        rows: Sequence[tuple[PromptRow, list[int]]],
        scorer: UserScorer,
        config: GrpoConfig,
        args: TrlConfig,
        run: RunDir,
    ) -> None:
        self.pair, self.rows, self.scorer, self.config, self.run = pair, rows, scorer, config, run
        super().__init__(
            model=arbiter,
            # TRL wants a reward function; ours are computed with the rollouts, since they are per decision.
            reward_funcs=_no_reward,
            args=args,
            train_dataset=Dataset.from_dict({"prompt": [str(row.id) for row, _ in rows], "index": range(len(rows))}),
            processing_class=pair.tokenizer,
            callbacks=[MetricsFile(run.metrics)],
        )
        # The adapter "ref" that TRL adds for the KL term is a frozen copy of LoRA and head.
        for name, parameter in arbiter.named_parameters():
            if ".ref." in name:
                parameter.requires_grad_(False)
        sampling = Sampling(config.rollout.temperature, config.rollout.top_k, config.rollout.top_p)
        self._separator = separator(pair.eos_token_ids)
        self.engine = Engine(
            pair,
            ArbiterRule(ArbiterScorer(arbiter, self._separator), sampled=True),
            num_draft_tokens=config.rollout.num_draft_tokens,
            bonus="target" if config.rollout.bonus == "target" else "arbitrated",
            max_new_tokens=config.rollout.max_new_tokens,
            sampling=sampling,
            batch_size=config.rollout.batch_size,
            seed=config.run.seed,
        )
        self._items: list[Rollout] = []
        self._num_seen = self._num_failed = 0

    def _get_train_sampler(self, dataset: Dataset | None = None) -> RepeatSampler:
        base = super()._get_train_sampler(dataset)
        return _EpochSampler(
            base.data_source, base.mini_repeat_count, base.batch_size, base.repeat_count, base.shuffle, base.seed
        )

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Decode, score and compare this process's share of the step; TRL's dictionary of tensors."""
        rollouts = self._decode(inputs)
        verdicts = [
            safe_score(self.scorer, rollout.text, self.rows[row["index"]][0].scorer_row())
            for rollout, row in zip(rollouts, inputs, strict=True)
        ]
        advantages, stats = self._advantages(rollouts, verdicts)
        self._stop_on_failures(stats, verdicts)
        self._log_stats(stats)
        self._keep_records(rollouts, verdicts, advantages)
        actions = [[int(decision.kept) for decision in rollout.decisions] for rollout in rollouts]
        device = self.accelerator.device
        mask = _pad([[1] * len(row) for row in actions]).to(device)
        batch = {
            # No prompt tokens: what a decision depends on is in its rollout.
            "prompt_ids": torch.zeros(len(rollouts), 0, dtype=torch.long, device=device),
            "prompt_mask": torch.zeros(len(rollouts), 0, dtype=torch.long, device=device),
            "completion_ids": _pad(actions).to(device),
            "completion_mask": mask,
            "advantages": _pad(advantages, torch.float32).to(device),
            "num_items_in_batch": self.accelerator.gather(mask.sum()).sum(),
            "rollouts": rollouts,
        }
        return batch | self._fixed_logps(batch)

    def _decode(self, inputs: list[dict[str, Any]]) -> list[Rollout]:
        """Sampled-decision rollouts; a request's draws depend on the step and its place in the whole batch."""
        first = self.accelerator.process_index * len(inputs)
        requests = []
        for place, row in enumerate(inputs):
            prompt, ids = self.rows[row["index"]]
            requests.append(Request(f"{prompt.id}#{self.state.global_step}.{first + place}", ids))
        training = self.model.training
        rollouts = self.engine.rollouts(requests)
        self.model.train(training)
        return rollouts

    def _advantages(self, rollouts: list[Rollout], verdicts: list[Verdict]) -> tuple[list[list[float]], GroupStats]:
        """This process's advantages, and the sums over all processes; a group may span several of them."""
        pairs = list(zip(rollouts, verdicts, strict=True))
        if self.accelerator.num_processes > 1:
            pairs = gather_object(pairs)
        advantages: list[list[float]] = []
        total = GroupStats()
        for first in range(0, len(pairs), self.num_generations):
            group = pairs[first : first + self.num_generations]
            result = group_advantages([r for r, _ in group], [v for _, v in group], self.config.reward)
            advantages += result.advantages
            total += result.stats
        first = self.accelerator.process_index * len(rollouts)
        return advantages[first : first + len(rollouts)], total

    def _stop_on_failures(self, stats: GroupStats, verdicts: Sequence[Verdict]) -> None:
        """A scorer that fails too often teaches nothing; every process sees the same counts and stops alike."""
        self._num_failed += stats.num_failed
        self._num_seen += stats.num_failed + stats.num_right + stats.num_wrong
        share = self._num_failed / max(1, self._num_seen)
        # The first handful of rollouts cannot tell 5 % from an accident.
        if share > self.config.max_failed_share and self._num_seen >= 2 * self.num_generations:
            reason = next((verdict.reason for verdict in verdicts if verdict.is_failure), "on another process")
            raise ValueError(
                f"the scorer {self.config.reward.scorer!r} failed on {self._num_failed} of {self._num_seen} rollouts, "
                f"more than max_failed_share {self.config.max_failed_share}; the last time: {reason}. Mend it"
            )

    def _log_stats(self, stats: GroupStats) -> None:
        """Divide the sums over all processes; denominators are rollouts, decisions or groups as the names say."""
        scored = max(1, stats.num_right + stats.num_wrong)
        wrong = max(1, stats.num_wrong_decisions)
        values = {
            "reward": stats.reward_sum / scored,
            "accuracy": stats.num_right / scored,
            "rho": stats.rho_sum / scored,
            "keep_rate": stats.num_kept / max(1, stats.num_decisions),
            "decisions_per_rollout": stats.num_decisions / scored,
            "share_without_decision": stats.num_without_decision / scored,
            "zero_variance_groups": stats.num_zero_variance / max(1, stats.num_groups),
            "risk_per_wrong_decision": stats.risk_sum / wrong,
            "fallback_per_wrong_decision": stats.fallback_sum / wrong,
            "num_failed": float(stats.num_failed),
        }
        for name, value in values.items():
            self._metrics["train" if self.model.training else "eval"][name].append(value)

    def _keep_records(self, rollouts: list[Rollout], verdicts: list[Verdict], advantages: list[list[float]]) -> None:
        if self.config.rollout.keep_records:
            rows = [
                {
                    "step": self.state.global_step,
                    "verdict": dataclasses.asdict(verdict),
                    "advantages": row,
                    "rollout": rollout.to_json(),
                }
                for rollout, verdict, row in zip(rollouts, verdicts, advantages, strict=True)
            ]
            self.run.rollouts.mkdir(parents=True, exist_ok=True)
            append_jsonl(self.run.rollouts / f"rank{self.accelerator.process_index}.jsonl", rows)

    def _fixed_logps(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Log-probabilities that stay fixed over the step's updates: of the old policy, and of the KL's reference."""
        found = {}
        generate_every = self.args.steps_per_generation * self.num_iterations
        with torch.no_grad():
            if self.args.gradient_accumulation_steps % generate_every:
                found["old_per_token_logps"] = self._logps_in_chunks(batch)
            if self.beta != 0.0:
                with use_adapter(self.accelerator.unwrap_model(self.model), adapter_name="ref"):
                    found["ref_per_token_logps"] = self._logps_in_chunks(batch)
        return found

    def _logps_in_chunks(self, batch: dict[str, Any]) -> Tensor:
        arbiter, size = self.accelerator.unwrap_model(self.model), self.args.per_device_train_batch_size
        parts = []
        for first in range(0, len(batch["rollouts"]), size):
            chunk = slice(first, first + size)
            rows = (batch["rollouts"][chunk], batch["completion_ids"][chunk], batch["advantages"][chunk])
            parts.append(self._scores(arbiter, *rows)[0])
        return torch.cat(parts)

    def _compute_loss(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        # TRL hands only ids and masks down to the log-probabilities; these two travel beside them.
        self._items, self._item_advantages = inputs["rollouts"], inputs["advantages"]
        return super()._compute_loss(model, inputs)

    def _get_per_token_logps_and_entropies(
        self, model: nn.Module, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, **kwargs: Any
    ) -> tuple[Tensor, Tensor, None]:
        """Log-probabilities of the actions and entropies of the decisions, both (B, T)."""
        actions = input_ids[:, -logits_to_keep:]
        logps, entropies = self._scores(model, self._items, actions, self._item_advantages)
        return logps, entropies if self._entropy_bonus_enabled else entropies.detach(), None

    @property
    def _advantages_alone(self) -> bool:
        """Whether a decision without an advantage bears on nothing.

        KL and entropy bonus pull at every decision, quantiles are taken over all, and what was recorded is out of date
        once a batch has been trained on.
        """
        pulls = self.beta != 0.0 or self._entropy_bonus_enabled or self.top_entropy_quantile < 1.0
        return not pulls and self.num_iterations == 1

    def _scores(
        self, model: nn.Module, rollouts: Sequence[Rollout], actions: Tensor, advantages: Tensor
    ) -> tuple[Tensor, Tensor]:
        with self.accelerator.autocast():
            if not self._advantages_alone:
                return scored(model, rollouts, actions, self._separator)
            return scored_where_taught(model, rollouts, actions, advantages, self._separator)


def _no_reward(**kwargs: Any) -> list[float]:
    raise AssertionError("rewards are computed with the rollouts")


def _pad(rows: Sequence[Sequence[float]], dtype: torch.dtype = torch.long) -> Tensor:
    """Right-padded with zeros to the longest row, and to two columns at least: TRL does not mask a single one."""
    width = max(2, *(len(row) for row in rows))
    return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=dtype)


def usable_rows(rows: Sequence[PromptRow], pair: Pair) -> tuple[list[tuple[PromptRow, list[int]]], list[str | int]]:
    """Rows with their prompt ids, and the ids of those left out because no token could follow them.

    ValueError if none is left.
    """
    room = min(pair.draft_context, pair.target_context)
    found, dropped = [], []
    for row in rows:
        ids = row_prompt_ids(pair, row)
        (found.append((row, ids)) if len(ids) < room else dropped.append(row.id))
    if not found:
        raise ValueError(f"every prompt is as long as the context of {room} tokens or longer: use shorter ones")
    return found, dropped


def train(config: GrpoConfig) -> Path:
    """Train with GRPO; the directory the arbiter was saved to."""
    check_arbiter_init(config.arbiter)
    rows, scorer = load_prompt_rows(config.prompts, require_gold=True), scorer_for(config.reward.scorer)
    require_readable_golds((row.scorer_row() for row in rows), config.reward.scorer)
    if len(rows) < config.prompts_per_step:
        raise ValueError(
            f"{config.prompts} has {len(rows)} rows and prompts_per_step is {config.prompts_per_step}: "
            "a step needs that many different prompts"
        )
    accumulation = config.accumulation(PartialState(cpu=config.run.use_cpu).num_processes)
    args = trainer_arguments(
        TrlConfig,
        config.run,
        config.optimiser,
        config.trainer,
        max_steps=config.steps,
        gradient_accumulation_steps=accumulation,
        num_generations=config.num_generations,
        num_iterations=config.num_iterations,
        beta=config.kl_beta,
        epsilon=config.epsilon,
        loss_type="dapo",
        temperature=1.0,
    )
    run, checkpoint = open_run(config, [config.prompts])
    if run.finished:
        return run.result
    pair = load_training_pair(config.pair, config.run.use_cpu)
    usable, dropped = usable_rows(rows, pair)
    if len(usable) < config.prompts_per_step:
        raise ValueError(
            f"{len(usable)} of {len(rows)} prompts fit the context, fewer than prompts_per_step "
            f"{config.prompts_per_step}: give more, or shorter ones"
        )
    if dropped:
        print(f"cospec: left out {len(dropped)} prompts longer than the context: {dropped[:10]}", file=sys.stderr)
    arbiter = prepare_arbiter(pair, config.arbiter, config.run.seed)
    trainer = ArbiterGrpoTrainer(arbiter, pair, usable, scorer, config, args, run)
    trainer.train(resume_from_checkpoint=checkpoint)
    assert trainer.state.global_step == config.steps, f"{trainer.state.global_step} steps made of {config.steps}"
    trainer.finish(run)
    return run.result


def main(argv: Sequence[str] | None = None) -> int:
    """The command line of this stage."""
    return run_stage(GrpoConfig, train, "GRPO of an arbiter on the answers of its own rollouts.", argv)


if __name__ == "__main__":
    sys.exit(main())
