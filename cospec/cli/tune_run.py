"""What `cospec tune` does: measure, choose K, try rules, confirm, write the choice."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from cospec.cli.eval_tasks import LoadedTask, load_eval_tasks
from cospec.cli.loading import RuleChoice
from cospec.cli.methods import arbiter_digest, build_methods, check_methods, pair_digest, pinned_drafter, pinned_rule
from cospec.cli.options import on_interrupt
from cospec.cli.progress import progress
from cospec.cli.stopping import StopSignals
from cospec.cli.sweep_run import Chosen
from cospec.cli.tune_candidates import Rows, candidates_of, drafter_warning, split, trial_warning, worth_a_trial
from cospec.cli.tune_options import TuneOptions
from cospec.jsonl import dumps

if TYPE_CHECKING:
    from cospec.decode_file import DecodeConfig
    from cospec.evaluation import EvalSettings, Method
    from cospec.evaluation.tune.race import Candidate, RaceResult
    from cospec.pair import Pair

#: What a decode config says of every candidate; of the chosen one it says all.
_OF_EVERY_TRIAL = ("name", "outcome", "num_problems", "difference", "p_loses", "speedup")


def run_tune(options: TuneOptions) -> None:
    """The whole command; what can be refused is refused before models are loaded."""
    from cospec.cli.loading import check_passes, load_pair_from_options, read_pair_spec
    from cospec.cli.tune_report import report

    options.check()
    (loaded,) = load_eval_tasks(options)
    chosen = candidates_of(options) if options.budget is not None else {}
    rows, decoding = split(loaded.task.rows, options), options.decoding()
    choices = {name: entry.choice for name, entry in chosen.items()}
    check_methods(dataclasses.replace(decoding, bonus=None), {"strict": RuleChoice("strict")})
    if choices:
        check_methods(decoding, choices)
    use = decoding.draft_use([RuleChoice("strict"), *choices.values()])
    check_passes(None, options.packed, read_pair_spec(*options.models, draft_use=use))
    warnings = _Warnings()
    if options.budget is not None:
        warnings.say(trial_warning(options.budget, options.confidence, len(chosen), len(rows.trial)))
    pair = load_pair_from_options(*options.models, draft_use=use)
    with StopSignals() as stop:
        numbers = _Tuner(options, loaded, pair, rows, chosen, warnings, stop).run()
    report(numbers, options)


class _Warnings:
    """Said when they arise, as what follows may take hours, and kept for the record."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, line: str | None) -> None:
        """One line, None for nothing."""
        if line is not None:
            typer.echo(f"cospec: warning: {line}", err=True)
            self.said.append(line)


class _Tuner:
    """The job with its models loaded."""

    def __init__(
        self,
        options: TuneOptions,
        loaded: LoadedTask,
        pair: Pair,
        rows: Rows,
        chosen: Mapping[str, Chosen],
        warnings: _Warnings,
        stop: StopSignals,
    ) -> None:
        from cospec.engine.rules import rule_named
        from cospec.evaluation import Method

        self.options, self.loaded, self.rows, self.chosen = options, loaded, rows, chosen
        self.warnings, self.stop = warnings, stop
        decoding = options.decoding()
        decoding.check_ids(pair)
        self.settings: EvalSettings = decoding.eval_settings(1, raw=options.raw, workers=options.workers)
        choices = {name: entry.choice for name, entry in chosen.items()}
        self.candidates: list[Method] = build_methods(choices, pair, decoding)
        self.pair = decoding.over(pair)
        self.strict = Method("strict", rule_named("strict"))
        self.numbers: dict[str, Any] = {"task": loaded.task.name, "race": None, "confirm": None}

    def run(self) -> dict[str, Any]:
        """All numbers behind the choice; the choice is written anew after each step."""
        from cospec.evaluation.scoring import TooManyFailures

        with on_interrupt(self._kept):
            gain = self._length()
            self._choose("strict" if gain > 1 else "target")
            self.candidates = worth_a_trial(self.candidates, self.settings, self.warnings.say)
            if self.candidates:
                self.warnings.say(
                    f"what holds on {self.loaded.task.name} need not hold elsewhere: parameters do not transfer "
                    "between tasks"
                )
                try:
                    race = self._race(max(1.0, 1 / gain))
                except TooManyFailures as error:
                    error.add_note(self._kept())
                    raise
                self._record(race)
                self._choose(race.chosen or self.numbers["rule"])
            if self.options.confirm:
                self.numbers["confirm"] = self._confirm(self.numbers["rule"])
                self._choose(self.numbers["rule"])
        return self.numbers

    def _choose(self, rule: str) -> None:
        """Make this the choice so far, ``rule`` being strict, target or a candidate's name."""
        from cospec.decode_file import write_decode_file

        self.numbers |= {"rule": rule, "warnings": self.warnings.said, "gain_of_choice": self._gain(rule)}
        if self.options.out is not None:
            with self.stop.held():
                write_decode_file(self.options.out, self._config(rule))

    def _gain(self, rule: str) -> float:
        """How many times as fast as the target alone it is: its trial compares it with strict at the same K."""
        if rule == "target":
            return 1.0
        tried = self.numbers["race"]["candidates"] if self.numbers["race"] else []
        speed = next((entry["speedup"] for entry in tried if entry["name"] == rule), 1.0)
        return float(self.numbers["gain"] * speed)

    def _kept(self) -> str:
        out = self.options.out
        if "rule" not in self.numbers:
            return "nothing yet" + (f"; {out} is an earlier run's" if out and out.exists() else "")
        where = f" in {out}" if out else ""
        return f"the choice so far{where}: {self.numbers['rule']}, K = {self.numbers['num_draft_tokens']}"

    # --- K -----------------------------------------------------------------------------------------------------------

    def _length(self) -> float:
        """Choose K; strict's gain with it."""
        from cospec.cli.tune_length import choose_length
        from cospec.evaluation.tune.lengths import share_accepted

        lengths, rows, say = self.options.lengths, self.rows, self.warnings.say
        found = choose_length(self.pair, self.strict, self.settings, lengths, rows.probe, rows.trial, say)
        rules = {name: entry.rule for name, entry in self.chosen.items()}
        share = share_accepted(found.probes[lengths[-1]])
        say(drafter_warning(share, self.options.drafter or "model", rules))
        self.settings = dataclasses.replace(self.settings, num_draft_tokens=found.best.num_draft_tokens)
        tokens = sum(len(rollout.output_ids) for rollout in found.texts)
        self.numbers |= {
            "lengths": found.numbers,
            "num_draft_tokens": found.best.num_draft_tokens,
            "gain": found.best.gain,
            "num_texts": {"probe": len(found.texts), "timing": found.costs.num_texts},
            "num_tokens": {"probe": tokens, "timing": found.costs.num_tokens},
        }
        return found.best.gain

    # --- the rule ----------------------------------------------------------------------------------------------------

    def _race(self, floor: float) -> RaceResult:
        """Candidates against strict; those that are no more than ``floor`` times as fast are of no use."""
        from cospec.evaluation.tune.race import race

        options = self.options
        assert options.budget is not None
        with progress("tune", len(self.rows.trial), "problems") as step:
            seen = 0

            def on_chunk(num: int, candidates: Sequence[Candidate]) -> None:
                nonlocal seen
                step(num - seen)
                seen = num

            return race(
                self.pair,
                self.strict,
                self.candidates,
                self.loaded.task,
                self.rows.trial,
                self.settings,
                budget=options.budget / 100,
                level=1 - options.confidence,
                floor=floor,
                chunk=max(options.batch_size, 16),
                max_failed_share=options.max_failed_share,
                on_chunk=on_chunk,
            )

    def _record(self, race: RaceResult) -> None:
        for result in race.results:
            if result.failure is not None:
                self.warnings.say(f"the trial of {result.name} ended early: {result.failure}")
        self.numbers["num_texts"]["trial"] = race.num_texts
        self.numbers["num_tokens"]["trial"] = race.num_tokens
        self.numbers["race"] = {
            "budget": self.options.budget,
            "confidence": self.options.confidence,
            "num_problems": race.num_problems,
            "num_texts": race.num_texts,
            "candidates": [result.to_json() for result in race.results],
        }

    def _confirm(self, chosen: str) -> dict[str, Any] | None:
        """The choice against the target itself, on problems that nothing was chosen on."""
        from cospec.evaluation import Method, evaluate
        from cospec.evaluation.paired import paired_accuracy
        from cospec.evaluation.scoring import TooManyFailures

        assert self.options.budget is not None
        if chosen == "target":
            self.warnings.say("--confirm was not run: the choice is the target itself, so there is nothing to compare")
            return None
        method = next((method for method in self.candidates if method.name == chosen), self.strict)
        task = dataclasses.replace(self.loaded.task, rows=tuple(self.rows.confirm))
        share = self.options.max_failed_share
        both = [Method("target", "target"), method]
        try:
            (found,) = evaluate(self.pair, both, [task], self.settings, max_failed_share=share).tasks
        except TooManyFailures as error:
            self.warnings.say(f"the choice could not be confirmed: {error}")
            return None
        target, mine = found.results
        samples = [*target.samples, *mine.samples]
        self.numbers["num_texts"]["confirm"] = len(samples)
        self.numbers["num_tokens"]["confirm"] = sum(sample.num_tokens for sample in samples)
        compared = paired_accuracy(mine.outcomes, target.outcomes, self.options.budget / 100)
        return dataclasses.asdict(compared) if compared else None

    # --- the choice --------------------------------------------------------------------------------------------------

    def _config(self, chosen: str) -> DecodeConfig:
        from cospec.decode_file import DecodeConfig

        choice = self.chosen[chosen].choice if chosen in self.chosen else None
        arbiter = choice.arbiter.resolve() if choice and choice.arbiter else None
        # The target alone drafts nothing: K and drafter are for the methods that an evaluation compares it with.
        rule = pinned_rule(choice.name if choice else chosen)
        drafter = pinned_drafter(self.options.drafter or "model")
        return DecodeConfig(
            rule=rule.spec,
            arbiter=str(arbiter) if arbiter else None,
            arbiter_digest=arbiter_digest(arbiter) if arbiter else None,
            judge_digest=rule.digest,
            threshold=choice.threshold if choice and arbiter else None,
            num_draft_tokens=self.settings.num_draft_tokens,
            bonus=self.options.bonus if choice else None,
            drafter=drafter.spec,
            drafter_digest=drafter.digest,
            sampling=self.settings.sampling,
            provenance=self._provenance(chosen),
        )

    def _provenance(self, chosen: str) -> dict[str, Any]:
        from cospec import __version__

        spec, task, numbers = self.pair.spec, self.loaded.described, self.numbers
        race = numbers["race"]
        tried = race["candidates"] if race else []
        return {
            "cospec": __version__,
            **{role: model.path for role, model in spec.models.items()},
            "pair_digest": pair_digest(self.pair),
            "task": self.loaded.task.name,
            "problems_digest": task["problems_digest"],
            "seed": self.options.seed,
            "batch_size": self.options.batch_size,
            "packed": self.options.packed,
            "max_new_tokens": self.options.max_new_tokens,
            # As one text: a config could not hold every string of a user's as an entry of its own.
            "stop": dumps(list(self.options.stop or ())),
            "eos_token_ids": self.options.eos_token_id,
            "best_num_draft_tokens": numbers["num_draft_tokens"],
            "gain_of_strict": round(numbers["gain"], 4),
            "gain_of_choice": round(numbers["gain_of_choice"], 4),
            "budget_points": self.options.budget,
            "confidence": self.options.confidence if race else None,
            "trial": next((entry for entry in tried if entry["name"] == chosen), None),
            # Those that were not chosen, too, or a choice of the target would say nothing of why.
            "candidates": [{key: entry[key] for key in _OF_EVERY_TRIAL} for entry in tried],
            "confirm": numbers["confirm"],
            "warnings": list(numbers["warnings"]),
        }
