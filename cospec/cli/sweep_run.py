"""What `cospec sweep` does: expand the grid, decode cell by cell, write and show the table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cospec.cli.eval_tasks import LoadedTask, load_eval_tasks
from cospec.cli.loading import DecodeOptions, RuleChoice, choose_rule
from cospec.cli.lock import sole_writer
from cospec.cli.methods import build_methods, check_methods, describe, describe_decoding
from cospec.cli.options import on_interrupt
from cospec.cli.progress import Step, progress
from cospec.cli.stopping import StopSignals
from cospec.cli.sweep_options import SweepOptions
from cospec.jsonl import dumps, write_json_atomic

if TYPE_CHECKING:
    from cospec.engine.record import Rollout
    from cospec.evaluation import EvalTask, Method, Sample
    from cospec.evaluation.result import MethodResult
    from cospec.evaluation.run import EvalRun
    from cospec.evaluation.sweep.grid import Grid, Group, Point
    from cospec.pair import Pair

COSTS = "costs.json"
#: Results by task and method.
_Results = dict[tuple[str, str], "MethodResult"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """A method of the sweep: what it is built of, and the parameters its cells are told apart by."""

    choice: RuleChoice
    parameters: Mapping[str, Any]

    @property
    def rule(self) -> str:
        """The rule's name without parameters."""
        return self.choice.name.partition(":")[0]


def run_sweep(options: SweepOptions) -> None:
    """The whole command; what can be refused is refused before models are loaded."""
    from cospec.cli.loading import check_passes, read_pair_spec
    from cospec.evaluation.plots import require_matplotlib
    from cospec.evaluation.sweep.grid import groups_of

    options, grid = options.resolved()
    options.check()
    if options.plot:
        require_matplotlib()
    loaded = load_eval_tasks(options)
    chosen = choose(grid)
    choices = {name: entry.choice for name, entry in chosen.items()}
    groups = groups_of(grid, {name: entry.rule for name, entry in chosen.items()})
    for group in groups:
        if group.num_draft_tokens is not None:
            check_methods(_decoding(options, group), {name: choices[name] for name in group.methods})
    spec = read_pair_spec(*options.models, draft_use=options.decoding().draft_use(choices.values()))
    check_passes(None, options.packed, spec)
    if options.dry_run:
        from cospec.cli.sweep_report import show_plan

        show_plan(options, loaded, groups)
        return
    assert options.out is not None
    with sole_writer(options.out), StopSignals() as stop:
        rows = _Sweep(options, loaded, chosen, groups, stop).run()
    from cospec.cli.sweep_report import report

    report(rows, options)


def choose(grid: Grid) -> dict[str, Chosen]:
    """The methods by name; ValueError for an unknown rule, a value out of range and two methods that are the same."""
    from cospec.evaluation.sweep.grid import points_of

    if not grid.methods:
        raise ValueError("the grid has no methods: give one or more")
    found: dict[str, Chosen] = {}
    for point in points_of(grid.methods):
        name, chosen = _choose(point)
        if name in found:
            raise ValueError(f"the grid names {name} twice: drop one")
        found[name] = chosen
    return found


def _choose(point: Point) -> tuple[str, Chosen]:
    from cospec.engine.rules import rule_named
    from cospec.evaluation.sweep.grid import parameters_of

    if point.spec is not None:
        if point.spec.partition(":")[0] == "target":
            raise ValueError("the target alone is decoded for every sampling anyway: leave `target` out of the grid")
        spec = rule_named(point.spec).spec
        return spec, Chosen(choose_rule(spec, None), parameters_of(spec))
    assert point.arbiter is not None
    given = dict(point.parameters)
    threshold = _share(given.get("threshold", 0.5))
    choice = choose_rule(None, Path(point.arbiter), threshold)
    name = point.name or Path(point.arbiter).resolve().name
    return f"{name}:threshold={threshold:g}", Chosen(choice, {"threshold": threshold})


def _share(value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = -1.0
    if not 0 <= found <= 1:
        raise ValueError(f"an arbiter's threshold is {value!r}: it lies in [0, 1]")
    return found


def _decoding(options: SweepOptions, group: Group) -> DecodeOptions:
    """How a group decodes; ValueError for settings that no engine takes."""
    return replace(options.decoding(), sampling=group.sampling, num_draft_tokens=group.num_draft_tokens or 1)


class _Sweep:
    """The sweep with its models loaded."""

    def __init__(
        self,
        options: SweepOptions,
        loaded: Sequence[LoadedTask],
        chosen: Mapping[str, Chosen],
        groups: Sequence[Group],
        stop: StopSignals,
    ) -> None:
        from cospec.cli.loading import load_pair_from_options
        from cospec.evaluation.run import check_begun

        assert options.out is not None
        self.options, self.loaded, self.groups, self.stop, self.out = options, loaded, groups, stop, options.out
        self.tasks: list[EvalTask] = [entry.task for entry in loaded]
        self.chosen = {**chosen, "target": Chosen(RuleChoice("target"), {})}
        for group in groups:
            known = {**describe_decoding(_decoding(options, group)), "repeats": repeats_of(group, options)}
            described = {entry.task.name: {**entry.described, "raw": options.raw} for entry in loaded}
            check_begun(self.out / group.folder, known | {"tasks": described}, self.tasks)
        decoding = options.decoding()
        use = decoding.draft_use(entry.choice for entry in chosen.values())
        self.pair: Pair = load_pair_from_options(*options.models, draft_use=use)
        decoding.check_ids(self.pair)
        choices = {name: entry.choice for name, entry in self.chosen.items()}
        self.methods: dict[str, Method] = {m.name: m for m in build_methods(choices, self.pair, decoding)}
        self.task_records = {entry.task.name: entry.describe(self.pair, options.raw) for entry in loaded}
        self.decoding_pair = decoding.over(self.pair)

    def run(self) -> list[dict[str, Any]]:
        """All rows of the table, which is written anew after each cell."""
        from cospec.evaluation.sweep.row import adjusted
        from cospec.evaluation.sweep.store import write_table

        rows: list[dict[str, Any]] = []
        c_rel = self._c_rel()
        kept = f"all finished texts in {self.out}"
        with on_interrupt(lambda: kept), progress("sweep", self._num_left(), "texts") as step:
            targets: _Results = {}
            for group in self.groups:
                for key, result in self._results(group, step):
                    if group.num_draft_tokens is None:
                        targets[key] = result
                    rows.append(self._row(group, result, targets[key[0], "target"], key[0], c_rel))
                    with self.stop.held():
                        write_table(self.out, rows)
        rows = adjusted(rows)
        write_table(self.out, rows)
        return rows

    def _c_rel(self) -> float:
        """The cost of a draft step: as the options say, or measured once for all runs on this directory."""
        from cospec.evaluation.sweep.store import read_costs

        if self.options.c_rel is not None:
            return self.options.c_rel
        found = read_costs(self.out / COSTS)
        if found is None:
            found = self._measured()
            write_json_atomic(self.out / COSTS, found)
        return float(found["c_rel"])

    def _measured(self) -> dict[str, Any]:
        """c_rel, and target passes by width; a drafter that is no model of the pair's is timed within rounds."""
        from cospec.engine.cost import measure_passes
        from cospec.evaluation.method import requests_of
        from cospec.evaluation.tune.rounds import measure_rounds

        lengths = sorted({group.num_draft_tokens for group in self.groups if group.num_draft_tokens})
        rows = self.tasks[0].rows[: self.options.batch_size]
        costs = measure_passes(self.decoding_pair, len(rows), [1, *(k + 1 for k in lengths)])
        drafter = self.options.decoding().make_drafter()
        if drafter.runs_draft_model:
            c_rel = costs.c_rel
        else:
            pair, sampling = self.decoding_pair, self.groups[0].sampling
            requests = requests_of(pair, rows, raw=self.options.raw)
            c_rel = measure_rounds(pair, requests, lengths, sampling, batch_size=len(rows), drafter=drafter).c_rel
        return {
            "c_rel": c_rel,
            "draft_step_s": costs.draft_step_s,
            "target_s": {str(width): seconds for width, seconds in costs.target_s.items()},
        }

    def _results(self, group: Group, step: Step) -> Iterator[tuple[tuple[str, str], MethodResult]]:
        """Every cell of a group, decoded where it is not there yet."""
        from cospec.evaluation import evaluate
        from cospec.evaluation.scoring import TooManyFailures

        run, settings = self._open(group), self._settings(group)
        kept: dict[tuple[str, str], list[Sample]] = {}
        for sample in run.samples():
            kept.setdefault((sample.task, sample.method), []).append(sample)
        for name in group.methods:
            for task in self.tasks:
                try:
                    found = evaluate(
                        self.decoding_pair,
                        [self.methods[name]],
                        [task],
                        settings,
                        kept=kept.pop((task.name, name), ()),
                        on_sample=self._keeper(run, step),
                        max_failed_share=self.options.max_failed_share,
                    )
                except TooManyFailures as error:
                    raise ValueError(f"{error}; kept: all finished texts in {self.out}") from error
                yield (task.name, name), found.tasks[0].results[0]

    def _keeper(self, run: EvalRun, step: Step) -> Callable[[Sample, Rollout], None]:
        def keep(sample: Sample, rollout: Rollout) -> None:
            with self.stop.held():
                run.add(sample)
            step()

        return keep

    def _open(self, group: Group) -> EvalRun:
        from cospec.evaluation.run import EvalRun

        methods = [self.methods[name] for name in group.methods]
        choices = {name: self.chosen[name].choice for name in group.methods}
        described = describe(self.pair, _decoding(self.options, group), choices, methods)
        described |= {"repeats": repeats_of(group, self.options), "tasks": self.task_records}
        return EvalRun(self.out / group.folder, json.loads(dumps(described)))

    def _settings(self, group: Group) -> Any:
        options = self.options
        decoding, repeats = _decoding(options, group), repeats_of(group, options)
        return decoding.eval_settings(repeats, raw=options.raw, workers=options.workers)

    def _num_left(self) -> int:
        from cospec.evaluation.sweep.store import num_samples

        have = sum(num_samples(self.out / group.folder) for group in self.groups)
        rows = sum(len(task.rows) for task in self.tasks)
        wanted = sum(len(group.methods) * rows * repeats_of(group, self.options) for group in self.groups)
        return wanted - have

    def _row(self, group: Group, result: MethodResult, target: MethodResult, task: str, c_rel: float) -> dict[str, Any]:
        from cospec.evaluation.sweep.row import CellKey, cell_row

        chosen = self.chosen[result.name]
        key = CellKey(
            task,
            group.sampling,
            result.name,
            chosen.rule,
            group.num_draft_tokens,
            self.options.decoding().make_drafter().spec if group.num_draft_tokens else None,
            tuple(chosen.parameters.items()),
        )
        return cell_row(key, result, target, c_rel, self.options.margin)


def repeats_of(group: Group, options: SweepOptions) -> int:
    """Texts a problem in a group: greedy ones would all be the same."""
    return 1 if group.sampling.greedy else options.repeats
