"""What `cospec tune` does: measure, choose K, try rules, confirm, write the choice."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cospec.cli.eval_tasks import LoadedTask, load_eval_tasks
from cospec.cli.loading import RuleChoice
from cospec.cli.methods import arbiter_digest, build_methods, check_methods, pair_digest
from cospec.cli.progress import progress
from cospec.cli.sweep_options import methods_of
from cospec.cli.sweep_run import Chosen, choose
from cospec.cli.tune_options import TuneOptions

if TYPE_CHECKING:
    from cospec.decode_file import DecodeConfig
    from cospec.engine.record import Rollout
    from cospec.engine.request import Request
    from cospec.evaluation import EvalSettings, Method
    from cospec.evaluation.paired import PairedAccuracy
    from cospec.evaluation.tune.lengths import LengthGain
    from cospec.evaluation.tune.race import Candidate, RaceResult
    from cospec.pair import Pair
    from cospec.prompt_rows import PromptRow

#: Rules that depart from the target by a bounded amount, whatever the drafter is certain of.
DEFAULT_RULES = ("cactus", "lenience", "tok_lt")
#: The same for greedy texts, at which cactus and lenience decide as strict does.
GREEDY_RULES = ("tok_lt", "fly", "aasd")
#: Drafters that are part of a target, or trained on one: certain of themselves also where they are wrong.
DEDICATED = ("mtp", "eagle3")
#: Below this share of accepted draft tokens a drafter's own certainty is no guide.
WEAK = 0.6


@dataclass(frozen=True, slots=True)
class _Rows:
    """The problems in random order: those that K is chosen from, those rules are tried on, those kept back."""

    probe: Sequence[PromptRow]
    trial: Sequence[PromptRow]
    confirm: Sequence[PromptRow]


def run_tune(options: TuneOptions) -> None:
    """The whole command; what can be refused is refused before models are loaded."""
    from cospec.cli.loading import check_passes, load_pair_from_options, read_pair_spec
    from cospec.cli.tune_report import report

    options.check()
    (loaded,) = load_eval_tasks(options)
    chosen = _candidates(options) if options.budget is not None else {}
    rows, decoding = _split(loaded.task.rows, options), options.decoding()
    choices = {"strict": RuleChoice("strict"), **{name: entry.choice for name, entry in chosen.items()}}
    check_methods(decoding, choices)
    use = decoding.draft_use(choices.values())
    check_passes(None, options.packed, read_pair_spec(*options.models, draft_use=use))
    tuner = _Tuner(options, loaded, load_pair_from_options(*options.models, draft_use=use), rows, chosen)
    config, numbers = tuner.run()
    if options.out is not None:
        from cospec.decode_file import write_decode_file

        write_decode_file(options.out, config)
    report(numbers, options)


def _candidates(options: TuneOptions) -> dict[str, Chosen]:
    """What is on trial; without --rule and --arbiter the default rules with the values worth comparing."""
    from cospec.engine.rules import RULES
    from cospec.evaluation.sweep.grid import Grid, MethodGrid

    if options.rule or options.arbiter:
        methods = methods_of(options.rule or [], options.values or [], options.arbiter or [])
    elif options.values:
        raise ValueError("--values is given without --rule or --arbiter: name the methods they are of")
    else:
        names = DEFAULT_RULES if options.temperature else GREEDY_RULES
        knobs = {name: RULES[name].parameters[0] for name in names}
        methods = [MethodGrid(rule=name, values={knob.name: list(knob.grid)}) for name, knob in knobs.items()]
    found = choose(Grid(methods=methods))
    if "strict" in found:
        raise ValueError("strict is what every candidate is compared with: leave it out of --rule")
    return found


def _split(rows: Sequence[PromptRow], options: TuneOptions) -> _Rows:
    shuffled = list(rows)
    # Tests that may stop at any time want an order that says nothing of the problems.
    random.Random(options.seed).shuffle(shuffled)
    needed = options.probe + options.confirm + (1 if options.budget is not None else 0)
    if len(shuffled) < needed:
        raise ValueError(
            f"there are {len(shuffled)} problems, and --probe {options.probe} with --confirm {options.confirm} need "
            f"{needed} or more: lower them, or raise --num"
        )
    stop = len(shuffled) - options.confirm
    return _Rows(shuffled[: options.probe], shuffled[options.probe : stop], shuffled[stop:])


def drafter_warning(share: float | None, drafter: str, rules: Mapping[str, str]) -> str | None:
    """What to say of a drafter beside ``rules``, candidates' rules by name; ``share`` of its tokens were accepted, None
    where there were none."""
    from cospec.engine.rules import RULES

    leaning = [name for name, rule in rules.items() if RULES[rule].leans_on_draft]
    found = [f"is weak ({share:.0%} of its tokens are the target's)"] if share is not None and share < WEAK else []
    if drafter.partition(":")[0] in DEDICATED:
        found.append(f"({drafter}) was made for this target alone")
    if not leaning or not found:
        return None
    return (
        f"the drafter {' and '.join(found)}, and {', '.join(leaning)} lean on its confidence: such rules tend to lose "
        "accuracy and to write longer texts with such a drafter"
    )


class _Tuner:
    """The job with its models loaded."""

    def __init__(
        self, options: TuneOptions, loaded: LoadedTask, pair: Pair, rows: _Rows, chosen: Mapping[str, Chosen]
    ) -> None:
        from cospec.engine.rules import rule_named
        from cospec.evaluation import Method

        self.options, self.loaded, self.rows, self.chosen = options, loaded, rows, chosen
        decoding = options.decoding()
        decoding.check_ids(pair)
        self.settings: EvalSettings = decoding.eval_settings(1, raw=options.raw, workers=options.workers)
        choices = {name: entry.choice for name, entry in chosen.items()}
        self.candidates: list[Method] = build_methods(choices, pair, decoding)
        self.pair = decoding.over(pair)
        self.strict = Method("strict", rule_named("strict"))
        self.warnings: list[str] = []

    def run(self) -> tuple[DecodeConfig, dict[str, Any]]:
        """The decode config, and all numbers behind it."""
        lengths, gain, probes = self._length()
        race = self._race(gain.num_draft_tokens) if self.options.budget is not None else None
        chosen = race.chosen if race else None
        confirmed = self._confirm(chosen) if self.options.confirm else None
        numbers = {
            "task": self.loaded.task.name,
            "lengths": lengths,
            "num_draft_tokens": gain.num_draft_tokens,
            "gain": gain.gain,
            "race": self._race_json(race),
            "rule": chosen or "strict",
            "confirm": dataclasses.asdict(confirmed) if confirmed else None,
            "num_texts": {
                "probe": sum(map(len, probes.values())),
                "trial": race.num_texts if race else 0,
                "confirm": 2 * self.options.confirm,
            },
            "warnings": self.warnings,
        }
        return self._config(chosen, gain, numbers), numbers

    # --- K -----------------------------------------------------------------------------------------------------------

    def _length(self) -> tuple[dict[str, Any], LengthGain, dict[int, list[Rollout]]]:
        from cospec.engine.cost import measure_passes
        from cospec.evaluation.method import requests_of
        from cospec.evaluation.tune.lengths import as_json, best_gain, length_gains, near_best
        from cospec.evaluation.tune.rounds import measure_rounds

        options, lengths = self.options, self.options.lengths
        requests = requests_of(self.pair, self.rows.probe, raw=options.raw)
        batch = min(options.batch_size, len(requests))
        passes = measure_passes(self.pair, batch, [1, *(k + 1 for k in lengths)])
        sampling, drafter = self.settings.sampling, self.settings.drafter
        costs = measure_rounds(self.pair, requests, lengths, sampling, batch_size=batch, drafter=drafter)
        probes = self._probes(requests)
        self._warn_of_load(probes[lengths[-1]])
        self._warn_of_drafter(probes[lengths[-1]])
        gains = length_gains(probes, passes, costs)
        best = best_gain(gains)
        if best.gain <= 1:
            self.warnings.append(
                f"no K pays here: with the best, {best.num_draft_tokens}, strict is {best.gain:.2f} times as fast as "
                "the target alone"
            )
        if len(lengths) > 1 and best.num_draft_tokens == lengths[-1]:
            self.warnings.append(f"K = {lengths[-1]} is the largest that was offered: offer larger ones")
        return {**as_json(gains, passes, costs), "near_best": near_best(gains)}, best, probes

    def _probes(self, requests: Sequence[Request]) -> dict[int, list[Rollout]]:
        """Strict's texts by K: those of the draft model at the largest tell of all others."""
        drafter, lengths = self.settings.drafter, self.options.lengths
        alone = drafter is None or drafter.runs_draft_model
        found = {}
        for k in lengths[-1:] if alone else lengths:
            settings = dataclasses.replace(self.settings, num_draft_tokens=k)
            found[k] = self.strict.engine(self.pair, settings).rollouts(requests)
        return found

    def _warn_of_load(self, probes: Sequence[Rollout]) -> None:
        from cospec.evaluation.table import STARVED

        seconds, busy = (sum(getattr(one.timings, name) for one in probes) for name in ("active_s", "cpu_s"))
        # Where another device does the work there is no processor time.
        if 0 < busy < STARVED * seconds:
            self.warnings.append(
                f"this process had {busy / seconds:.0%} of a core: the machine is busy, and its seconds say little"
            )

    def _warn_of_drafter(self, probes: Sequence[Rollout]) -> None:
        from cospec.evaluation.tune.lengths import share_accepted

        rules = {name: entry.rule for name, entry in self.chosen.items()}
        found = drafter_warning(share_accepted(probes), self.options.drafter or "model", rules)
        self.warnings += [found] if found else []

    # --- the rule ----------------------------------------------------------------------------------------------------

    def _race(self, k: int) -> RaceResult:
        from cospec.evaluation.tune.race import race

        options = self.options
        assert options.budget is not None
        self.settings = dataclasses.replace(self.settings, num_draft_tokens=k)
        self.warnings.append(
            f"what holds on {self.loaded.task.name} need not hold elsewhere: parameters do not transfer between tasks"
        )
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
                chunk=max(options.batch_size, 16),
                max_failed_share=options.max_failed_share,
                on_chunk=on_chunk,
            )

    def _race_json(self, race: RaceResult | None) -> dict[str, Any] | None:
        if race is None:
            return None
        return {
            "budget": self.options.budget,
            "confidence": self.options.confidence,
            "num_problems": race.num_problems,
            "num_texts": race.num_texts,
            "candidates": [result.to_json() for result in race.results],
        }

    def _confirm(self, chosen: str | None) -> PairedAccuracy | None:
        """The choice against the target itself, on problems that nothing was chosen on."""
        from cospec.evaluation import Method, evaluate
        from cospec.evaluation.paired import paired_accuracy

        assert self.options.budget is not None
        method = next((method for method in self.candidates if method.name == chosen), self.strict)
        task = dataclasses.replace(self.loaded.task, rows=tuple(self.rows.confirm))
        share = self.options.max_failed_share
        both = [Method("target", "target"), method]
        (found,) = evaluate(self.pair, both, [task], self.settings, max_failed_share=share).tasks
        target, mine = (result.outcomes for result in found.results)
        return paired_accuracy(mine, target, self.options.budget / 100)

    # --- the choice --------------------------------------------------------------------------------------------------

    def _config(self, chosen: str | None, gain: LengthGain, numbers: Mapping[str, Any]) -> DecodeConfig:
        from cospec.decode_file import DecodeConfig

        choice = self.chosen[chosen].choice if chosen else None
        arbiter = choice.arbiter.resolve() if choice and choice.arbiter else None
        return DecodeConfig(
            rule=choice.name if choice else "strict",
            arbiter=str(arbiter) if arbiter else None,
            arbiter_digest=arbiter_digest(arbiter) if arbiter else None,
            threshold=choice.threshold if choice and arbiter else None,
            num_draft_tokens=gain.num_draft_tokens,
            bonus=self.options.bonus,
            drafter=self.options.drafter or "model",
            sampling=self.settings.sampling,
            provenance=self._provenance(chosen, numbers),
        )

    def _provenance(self, chosen: str | None, numbers: Mapping[str, Any]) -> dict[str, Any]:
        from cospec import __version__

        spec, task = self.pair.spec, self.loaded.described
        race = numbers["race"]
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
            "gain_of_strict": round(numbers["gain"], 4),
            "budget_points": self.options.budget,
            "confidence": self.options.confidence if race else None,
            "trial": next((entry for entry in race["candidates"] if entry["name"] == chosen), None) if race else None,
            "confirm": numbers["confirm"],
            "warnings": list(numbers["warnings"]),
        }
