"""The configs of all stages; every key is documented here, unknown ones are errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cospec.rewards import RewardConfig


@dataclass(frozen=True, slots=True)
class PairSection:
    """Which pair: ``path`` is a PAIR.yaml, or ``tiny`` for the bundled one; the rest overrides the file."""

    path: str = "tiny"
    device: str | None = None
    dtype: str | None = None
    attn: str | None = None


@dataclass(frozen=True, slots=True)
class ArbiterSection:
    """The arbiter to train. ``init`` continues from a saved one, whose form then counts; else a fresh one is made."""

    init: str | None = None
    context_cache: str = "shared"
    lora_r: int = 32
    lora_alpha: int = 64
    lora_dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.context_cache not in ("shared", "own"):
            raise ValueError(f"arbiter.context_cache is {self.context_cache!r}: choose 'shared' or 'own'")
        if self.lora_r < 1 or self.lora_alpha < 1:
            raise ValueError("arbiter.lora_r and arbiter.lora_alpha must be at least 1")


@dataclass(frozen=True, slots=True)
class OptimiserSection:
    """The optimiser's part. ``micro_batch`` is the number of rollouts in one forward pass of one process."""

    learning_rate: float = 1e-4
    micro_batch: int = 8
    warmup_steps: int = 0
    scheduler: str = "constant"
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    bf16: bool = False
    gradient_checkpointing: bool = False

    def __post_init__(self) -> None:
        if self.learning_rate <= 0:
            raise ValueError(f"optimiser.learning_rate is {self.learning_rate}: it must be > 0")
        if self.micro_batch < 1:
            raise ValueError(f"optimiser.micro_batch is {self.micro_batch}: it must be at least 1")


@dataclass(frozen=True, slots=True)
class RunSection:
    """The run directory and what is written to it.

    ``save_every`` steps a checkpoint is written (0: never, so that an interrupted run starts anew). ``tracker`` is none
    or wandb, a mirror of metrics.jsonl.
    """

    dir: str = "runs/run"
    seed: int = 0
    save_every: int = 25
    resume: bool = True
    tracker: str = "none"
    use_cpu: bool = False

    def __post_init__(self) -> None:
        if self.tracker not in ("none", "wandb"):
            raise ValueError(f"run.tracker is {self.tracker!r}: choose 'none' or 'wandb'")


@dataclass(frozen=True, slots=True)
class SftConfig:
    """Supervised warm-up on labelled rollouts (method section 3).

    ``rollouts`` and ``labels`` are the files of `cospec rollout` and `cospec label`. ``batch`` rollouts make one
    optimiser step over all processes. ``trainer`` is passed on to transformers' TrainingArguments.
    """

    rollouts: str
    labels: str
    pair: PairSection = field(default_factory=PairSection)
    arbiter: ArbiterSection = field(default_factory=ArbiterSection)
    optimiser: OptimiserSection = field(default_factory=OptimiserSection)
    run: RunSection = field(default_factory=RunSection)
    epochs: float = 3.0
    batch: int = 32
    holdout: float = 0.1
    trainer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_schooling(self.epochs, self.batch, self.holdout)
        _check_forms(self.arbiter, self.optimiser)


@dataclass(frozen=True, slots=True)
class RolloutSection:
    """How training rollouts are decoded; decisions are always sampled."""

    num_draft_tokens: int = 5
    bonus: str = "arbitrated"
    max_new_tokens: int = 512
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    batch_size: int = 64
    keep_records: bool = True

    def __post_init__(self) -> None:
        if self.bonus not in ("arbitrated", "target"):
            raise ValueError(f"rollout.bonus is {self.bonus!r}: choose 'arbitrated' or 'target'")


@dataclass(frozen=True, slots=True)
class RewardSection(RewardConfig):
    """The reward's constants (method section 4) and the scorer: word_problems, exact or package.module:function."""

    scorer: str = "exact"


@dataclass(frozen=True, slots=True)
class GrpoConfig:
    """GRPO on complete rollouts (method section 4).

    ``prompts`` is a JSONL file of prompt rows with gold answers. A step decodes ``prompts_per_step`` prompts
    ``num_generations`` times each, over all processes. ``kl_beta`` weighs the KL to the warm-up policy. ``trainer`` is
    passed on to TRL's GRPOConfig.
    """

    prompts: str
    pair: PairSection = field(default_factory=PairSection)
    arbiter: ArbiterSection = field(default_factory=ArbiterSection)
    optimiser: OptimiserSection = field(default_factory=OptimiserSection)
    run: RunSection = field(default_factory=RunSection)
    rollout: RolloutSection = field(default_factory=RolloutSection)
    reward: RewardSection = field(default_factory=RewardSection)
    steps: int = 100
    prompts_per_step: int = 16
    num_generations: int = 8
    num_iterations: int = 1
    kl_beta: float = 0.0
    epsilon: float = 0.2
    max_failed_share: float = 0.05
    trainer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_generations < 2:
            raise ValueError(f"num_generations is {self.num_generations}: a group needs at least 2 rollouts")
        if self.steps < 1 or self.prompts_per_step < 1 or self.num_iterations < 1:
            raise ValueError("steps, prompts_per_step and num_iterations must be at least 1")
        if self.run.save_every % self.num_iterations:
            raise ValueError(
                f"run.save_every is {self.run.save_every} and num_iterations {self.num_iterations}: a checkpoint "
                "between the updates on one batch cannot be resumed, so make save_every a multiple"
            )
        _check_forms(self.arbiter, self.optimiser)

    def accumulation(self, num_processes: int) -> int:
        """Micro-batches per process and step; ValueError if the rollouts of a step cannot be dealt out evenly."""
        rollouts, slots = self.prompts_per_step * self.num_generations, self.optimiser.micro_batch * num_processes
        if rollouts % slots:
            raise ValueError(
                f"a step has {self.prompts_per_step} x {self.num_generations} = {rollouts} rollouts, which "
                f"{num_processes} process(es) with optimiser.micro_batch {self.optimiser.micro_batch} cannot share "
                "evenly: choose a micro_batch that divides them"
            )
        return rollouts // slots


@dataclass(frozen=True, slots=True)
class HeadSection:
    """The head to train: ``kind`` is eagle3 or mtp.

    ``unroll`` is how many tokens it drafts in training, each from the states before (EAGLE-3's training-time test);
    step i weighs ``decay`` ** i in the loss (Li et al. 2025). EAGLE-3 alone: ``layers`` of the target that are read
    (empty: a low, a middle and a high one), ``draft_vocab_size`` of the most frequent ids (0: all), the width of its
    feed-forward layer, ``intermediate_size`` (0: the target's), and ``fc_norm``, whether each layer's hidden states are
    normed before they are projected.
    """

    kind: str = "eagle3"
    unroll: int = 5
    decay: float = 0.8
    layers: list[int] = field(default_factory=list)
    draft_vocab_size: int = 0
    intermediate_size: int = 0
    fc_norm: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("eagle3", "mtp"):
            raise ValueError(f"head.kind is {self.kind!r}: choose 'eagle3' or 'mtp'")
        if self.unroll < 1 or not 0.0 < self.decay <= 1.0:
            raise ValueError(
                f"head.unroll is {self.unroll} and head.decay {self.decay}: use 1 step or more, and a decay in (0, 1]"
            )
        if self.kind == "mtp" and (self.layers or self.draft_vocab_size or self.intermediate_size or self.fc_norm):
            raise ValueError(
                "head.layers, head.draft_vocab_size, head.intermediate_size and head.fc_norm are of EAGLE-3 heads, and "
                "head.kind is 'mtp': an MTP layer reads the last hidden state and drafts all ids; leave them out"
            )
        if min(self.layers, default=0) < 0:
            raise ValueError(f"head.layers is {self.layers}: layers are counted from 0, the embeddings")
        if self.draft_vocab_size < 0 or self.intermediate_size < 0:
            raise ValueError("head.draft_vocab_size and head.intermediate_size are 0 (the target's own) or more")


@dataclass(frozen=True, slots=True)
class TextsSection:
    """How the target writes the texts that the head learns from."""

    max_new_tokens: int = 512
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    batch_size: int = 64


@dataclass(frozen=True, slots=True)
class DrafterHeadConfig:
    """A drafting head for the pair's target.

    ``prompts`` is a JSONL file of prompt rows; the target answers them itself. ``batch`` texts make one optimiser step
    over all processes. ``trainer`` is passed on to transformers' TrainingArguments.
    """

    prompts: str
    pair: PairSection = field(default_factory=PairSection)
    head: HeadSection = field(default_factory=HeadSection)
    texts: TextsSection = field(default_factory=TextsSection)
    optimiser: OptimiserSection = field(default_factory=OptimiserSection)
    run: RunSection = field(default_factory=RunSection)
    epochs: float = 3.0
    batch: int = 32
    holdout: float = 0.05
    trainer: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_schooling(self.epochs, self.batch, self.holdout)
        if self.optimiser.gradient_checkpointing:
            raise ValueError(
                "optimiser.gradient_checkpointing is of the stages that train an arbiter: a head of one layer has "
                "nothing to recompute; leave it out"
            )


@dataclass(frozen=True, slots=True)
class JudgeRunSection:
    """The run directory; ``seed`` chooses which rollouts are kept apart. A stopped run starts anew."""

    dir: str = "runs/run"
    seed: int = 0
    resume: bool = True
    use_cpu: bool = False


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """A judge head for the pair's target, on the labels of an arbiter's warm-up.

    ``rollouts`` and ``labels`` are the files of `cospec rollout` and `cospec label`. ``layer`` is the one whose hidden
    states are read (null: behind the last norm), ``batch_size`` how many texts the target reads at a time. ``l2``
    weighs the weights, ``max_steps`` bounds the search for the optimum.
    """

    rollouts: str
    labels: str
    pair: PairSection = field(default_factory=PairSection)
    run: JudgeRunSection = field(default_factory=JudgeRunSection)
    layer: int | None = None
    batch_size: int = 32
    l2: float = 0.01
    max_steps: int = 500
    holdout: float = 0.1

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size}: use at least 1")
        if self.layer is not None and self.layer < 0:
            raise ValueError(f"layer is {self.layer}: layers are counted from 0, the embeddings")
        _check_holdout(self.holdout)
        if self.l2 <= 0 or self.max_steps < 1:
            raise ValueError(f"l2 is {self.l2} and max_steps is {self.max_steps}: use l2 > 0 and max_steps >= 1")


def _check_holdout(holdout: float) -> None:
    if not 0.0 <= holdout < 1.0:
        raise ValueError(f"holdout is {holdout}: it is the share kept apart for measuring, in [0, 1)")


def _check_schooling(epochs: float, batch: int, holdout: float) -> None:
    _check_holdout(holdout)
    if epochs <= 0 or batch < 1:
        raise ValueError(f"epochs is {epochs} and batch is {batch}: use epochs > 0 and batch >= 1")


def _check_forms(arbiter: ArbiterSection, optimiser: OptimiserSection) -> None:
    if optimiser.gradient_checkpointing and arbiter.context_cache == "shared":
        raise ValueError(
            "optimiser.gradient_checkpointing discards the shared cache: switch it off (a shared arbiter's backward "
            "pass holds region tokens only), or set arbiter.context_cache=own"
        )
