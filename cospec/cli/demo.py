"""`cospec demo`: the main job, end to end, on the bundled pair."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cospec.cli.lock import sole_writer
from cospec.cli.options import (
    DeviceOption,
    DraftOption,
    DtypeOption,
    JsonOption,
    PairOption,
    TargetOption,
    on_interrupt,
)
from cospec.jsonl import dumps, write_json_atomic, write_jsonl_atomic

if TYPE_CHECKING:
    from cospec.engine.record import Rollout
    from cospec.pair import Pair, PairSpec
    from cospec.prompt_rows import PromptRow

CONFIG = Path(__file__).parents[1] / "assets" / "demo.yaml"
SCORER = "word_problems"


@dataclass(frozen=True, slots=True)
class DemoConfig:
    """The demo's sizes and seeds; ``sft`` and ``grpo`` are overrides of those stages' own configs.

    Warm-up, GRPO and evaluation draw their problems from splits that share no prompt.
    """

    num_warmup: int = 1000
    num_grpo: int = 1000
    num_eval: int = 1000
    warmup_seed: int = 0
    grpo_seed: int = 0
    eval_seed: int = 0
    num_draft_tokens: int = 5
    max_new_tokens: int = 128
    batch_size: int = 128
    continue_with: str = "either"
    sft: list[str] = field(default_factory=list)
    grpo: list[str] = field(default_factory=list)


OutDirectory = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where everything goes; resumed if begun.")]
ConfigOption = Annotated[Path, typer.Option("--config", help="Sizes, seeds and training overrides of the demo.")]
SeedOption = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of problems and training, for all stages.")]


def command(
    out: OutDirectory = Path("runs/demo"),
    config: ConfigOption = CONFIG,
    overrides: Annotated[list[str] | None, typer.Argument(metavar="key=value", help="Overrides of --config.")] = None,
    pair: PairOption = None,
    draft: DraftOption = None,
    target: TargetOption = None,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    seed: SeedOption = None,
    json: JsonOption = False,
) -> None:
    """Train an arbiter on the bundled pair, end to end, and show what it is worth.

    Rollouts, labels, warm-up, GRPO and an evaluation on held-out problems, with the commands that a user would run.
    Leaves summary.json and summary.png; an interrupted demo goes on where it stopped.
    """
    from cospec.config import load_config

    started = time.monotonic()
    seeds = [] if seed is None else [f"{name}_seed={seed}" for name in ("warmup", "grpo", "eval")]
    settings = load_config(DemoConfig, config, [*(overrides or []), *seeds])
    if pair is None and draft is None and target is None:
        pair = Path("tiny")
    from cospec.cli.loading import read_pair_spec
    from cospec.evaluation.plots import require_matplotlib

    require_matplotlib()
    demo = _Demo(out, settings, read_pair_spec(pair, draft, target, device, dtype), device)
    with sole_writer(out), on_interrupt(lambda: f"all finished stages in {out}; the same command goes on from there"):
        summary = demo.run(quiet=json)
    summary["seconds"] = time.monotonic() - started
    write_json_atomic(out / "summary.json", summary)
    _show(summary, out, json)


class _Demo:
    """The stages in order; each leaves files and is skipped where they are complete."""

    def __init__(self, out: Path, settings: DemoConfig, spec: PairSpec, device: str | None) -> None:
        self.out, self.settings, self.spec, self.device = out, settings, spec, device

    def run(self, quiet: bool) -> dict[str, Any]:
        """All stages; the summary of the evaluation."""
        self._claim()
        from cospec.pair import load_pair

        self.say = (lambda text: None) if quiet else (lambda text: typer.echo(f"== {text}", err=True))
        rows = self._problems()
        pair = load_pair(self.spec)
        self.say(f"1/5 vanilla speculative rollouts of {len(rows['warmup'])} problems")
        self._rollouts(pair, rows["warmup"])
        self.say("2/5 labels: which branch of each mismatch ends right")
        self._labels(pair, rows["warmup"])
        self.say("3/5 supervised warm-up")
        files = [f"rollouts={self.out / 'rollouts.jsonl'}", f"labels={self.out / 'labels.jsonl'}"]
        sft = self._train("sft", [*files, *self.settings.sft])
        self.say("4/5 GRPO on complete rollouts")
        own = [f"prompts={self.out / 'grpo.jsonl'}", f"arbiter.init={sft}", f"reward.scorer={SCORER}"]
        grpo = self._train("grpo", [*own, *self._rollout_overrides(), *self.settings.grpo])
        self.say(f"5/5 evaluation on {len(rows['eval'])} held-out problems")
        return self._evaluate(pair, rows["eval"], {"sft": sft, "grpo": grpo})

    def _claim(self) -> None:
        """Write down what this demo is, or refuse a directory that holds another."""
        from cospec.config import differing_lines, to_yaml
        from cospec.pair_file import TINY, TINY_DIRECTORY

        # The bundled pair by its name: the package may have moved since.
        text = to_yaml(self.settings) + to_yaml(self.spec).replace(str(TINY_DIRECTORY), TINY)
        recorded = self.out / "demo.yaml"
        if recorded.exists() and recorded.read_text(encoding="utf-8") != text:
            differences = differing_lines(recorded.read_text(encoding="utf-8"), text)
            raise ValueError(
                f"{self.out} holds a demo with other settings ({differences}): remove it, or choose another --out"
            )
        self.out.mkdir(parents=True, exist_ok=True)
        recorded.write_text(text, encoding="utf-8")
        (self.out / "pair.yaml").write_text(to_yaml(self.spec), encoding="utf-8")

    def _problems(self) -> dict[str, list[PromptRow]]:
        """Problem rows per split, also as files."""
        from cospec.prompt_rows import load_prompt_rows
        from cospec.tasks.word_problems import generate

        rows = {}
        for split in ("warmup", "grpo", "eval"):
            seed, num = getattr(self.settings, f"{split}_seed"), getattr(self.settings, f"num_{split}")
            problems = generate(num, seed, split=split)
            path = self.out / f"{split}.jsonl"
            write_jsonl_atomic(path, ({"id": p.id, "prompt": p.prompt, "gold": p.gold} for p in problems))
            rows[split] = load_prompt_rows(path, require_gold=True)
        return rows

    def _rollouts(self, pair: Pair, rows: Sequence[PromptRow]) -> None:
        from cospec.engine.decode import Engine
        from cospec.engine.rollout_file import decode_to_file, recorded_rollouts
        from cospec.engine.rules import rule_named
        from cospec.evaluation.method import requests_of

        engine = Engine(
            pair,
            rule_named("never"),
            num_draft_tokens=self.settings.num_draft_tokens,
            max_new_tokens=self.settings.max_new_tokens,
            batch_size=self.settings.batch_size,
        )
        out, requests = self.out / "rollouts.jsonl", requests_of(pair, rows)
        done = {rollout.id for rollout in recorded_rollouts(out, requests, engine.settings)}
        missing = [request for request in requests if request.id not in done]
        with self._progress("rollouts", len(missing)) as step:
            decode_to_file(engine, missing, out, lambda rollout: step())

    def _labels(self, pair: Pair, rows: Sequence[PromptRow]) -> None:
        import dataclasses

        from cospec.engine.rollout_file import read_rollouts
        from cospec.labels import complementarity
        from cospec.labels.outcome import OutcomeLabeller
        from cospec.labels.run import label_file
        from cospec.scoring import scorer_for

        rollouts = read_rollouts(self.out / "rollouts.jsonl")
        with_whom: Any = self.settings.continue_with
        labeller = OutcomeLabeller(
            pair,
            scorer_for(SCORER),
            scorer_name=SCORER,
            continue_with=with_whom,
            batch_size=2 * self.settings.batch_size,
        )
        with self._progress("labels", len(rollouts)) as step:
            labels = label_file(labeller, rollouts, rows, self.out / "labels.jsonl", step)
        report = complementarity(labels)
        write_json_atomic(self.out / "complementarity.json", dataclasses.asdict(report) | {"shares": report.shares()})

    def _train(self, stage: str, overrides: Sequence[str]) -> Path:
        """Start a training stage as `accelerate launch` would; the directory of its arbiter."""
        from cospec.training.run_dir import RunDir

        run = self.out / stage
        if not RunDir(run).finished:
            words = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "1", "--num_machines", "1"]
            words += ["--mixed_precision", "no", "--dynamo_backend", "no", *(["--cpu"] if self._on_cpu() else [])]
            words += ["-m", f"cospec.training.{stage}", f"pair.path={self.out / 'pair.yaml'}", f"run.dir={run}"]
            words += [f"run.use_cpu={str(self._on_cpu()).lower()}", *overrides]
            log = self.out / f"{stage}.log"
            with log.open("ab") as sink:
                code = subprocess.run(words, stdout=sink, stderr=subprocess.STDOUT, check=False).returncode
            if code:
                tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").split("\n")[-15:])
                raise ValueError(f"training stage {stage} ended with code {code}; its log {log} ends:\n{tail}")
        return run / "arbiter"

    def _rollout_overrides(self) -> list[str]:
        names = ("num_draft_tokens", "max_new_tokens", "batch_size")
        return [f"rollout.{name}={getattr(self.settings, name)}" for name in names]

    def _on_cpu(self) -> bool:
        from cospec.pair import pick_device

        return pick_device(self.device).type == "cpu"

    def _evaluate(self, pair: Pair, rows: Sequence[PromptRow], arbiters: Mapping[str, Path]) -> dict[str, Any]:
        from cospec.arbiter.adapter import arbiter_rule
        from cospec.config import to_yaml
        from cospec.engine.rules import rule_named
        from cospec.evaluation import EvalSettings, EvalTask, Method, Sample, evaluate, summary
        from cospec.evaluation.plots import plot_summary
        from cospec.evaluation.run import EvalRun
        from cospec.scoring import scorer_for

        rules = {name: arbiter_rule(directory, pair) for name, directory in arbiters.items()}
        methods = [
            Method("draft", "draft"),
            Method("target", "target"),
            Method("strict", rule_named("strict"), "target"),
            Method("always", rule_named("always"), "arbitrated"),
            *(Method(name, rule, "arbitrated") for name, rule in rules.items()),
            Method("grpo_bonus_target", rules["grpo"], "target"),
        ]
        settings = EvalSettings(
            num_draft_tokens=self.settings.num_draft_tokens,
            max_new_tokens=self.settings.max_new_tokens,
            batch_size=self.settings.batch_size,
        )
        task = EvalTask(SCORER, tuple(rows), scorer_for(SCORER), SCORER)
        described = {"methods": {m.name: m.rule_name for m in methods}, "tasks": {task.name: {"num": len(rows)}}}
        run = EvalRun(self.out / "eval", {"demo": to_yaml(self.settings)} | described)
        kept = run.samples()
        with self._progress("eval", len(methods) * len(rows) - len(kept)) as step:

            def on_sample(sample: Sample, rollout: Rollout) -> None:
                run.add(sample)
                step()

            done = evaluate(pair, methods, [task], settings, kept=kept, on_sample=on_sample)
        numbers = summary(done, self.settings.num_draft_tokens)
        run.finish(numbers, [task])
        plot_summary(numbers, self.out / "summary.png")
        return numbers

    def _progress(self, title: str, total: int) -> Any:
        from cospec.cli.progress import progress

        return progress(title, total)

    say: Callable[[str], None]


def _show(summary: dict[str, Any], out: Path, json: bool) -> None:
    if json:
        typer.echo(dumps(summary))
        return
    from cospec.evaluation.table import print_summary

    print_summary(summary)
    typer.echo(f"{summary['seconds']:.0f} s; {out / 'summary.json'}, {out / 'summary.png'}")
