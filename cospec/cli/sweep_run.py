"""What `cospec sweep` does: expand the grid, decode cell by cell, write and show the table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from cospec.cli.eval_tasks import LoadedTask, load_eval_tasks
from cospec.cli.loading import DecodeOptions, RuleChoice, choose_rule
from cospec.cli.lock import sole_writer
from cospec.cli.methods import build_methods, check_methods, describe, describe_decoding
from cospec.cli.options import on_interrupt
from cospec.cli.progress import Step, progress
from cospec.cli.stopping import StopSignals
from cospec.cli.sweep_costs import c_rel_of
from cospec.cli.sweep_options import SweepOptions
from cospec.jsonl import dumps

if TYPE_CHECKING:
    from cospec.engine.record import Rollout
    from cospec.evaluation import EvalTask, Method, Sample
    from cospec.evaluation.result import MethodResult
    from cospec.evaluation.run import EvalRun
    from cospec.evaluation.sweep.directory import CellId
    from cospec.evaluation.sweep.grid import Grid, Group, Point
    from cospec.pair import Pair


@dataclass(frozen=True, slots=True)
class Chosen:
    """A method of the sweep: what it is built of."""

    choice: RuleChoice

    @property
    def rule(self) -> str:
        """The rule's name without parameters."""
        return self.choice.name.partition(":")[0]


def run_sweep(options: SweepOptions) -> None:
    """The whole command; what can be refused is refused before models are loaded."""
    from cospec.cli.loading import check_passes, read_pair_spec
    from cospec.evaluation.plots import require_matplotlib
    from cospec.evaluation.sweep.grid import groups_of
    from cospec.evaluation.sweep.store import require_pyarrow

    options, grid = options.resolved()
    options.check()
    if options.makes_plots:
        require_matplotlib()
    if options.makes_parquet:
        require_pyarrow()
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
    from cospec.engine.parameters import show
    from cospec.engine.rules import rule_named

    if point.spec is not None:
        if point.spec.partition(":")[0] == "target":
            raise ValueError("the target alone is decoded for every sampling anyway: leave `target` out of the grid")
        spec = rule_named(point.spec).spec
        return spec, Chosen(choose_rule(spec, None))
    assert point.arbiter is not None
    given = dict(point.parameters)
    threshold = _share(given.get("threshold", 0.5))
    choice = choose_rule(None, Path(point.arbiter), threshold)
    name = point.name or Path(point.arbiter).resolve().name
    return f"{name}:threshold={show(threshold)}", Chosen(choice)


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

        assert options.out is not None
        self.options, self.groups, self.stop, self.out = options, groups, stop, options.out
        self.tasks: list[EvalTask] = [entry.task for entry in loaded]
        _check_begun(options, loaded, groups)
        decoding = options.decoding()
        use = decoding.draft_use(entry.choice for entry in chosen.values())
        self.pair: Pair = load_pair_from_options(*options.models, draft_use=use)
        decoding.check_ids(self.pair)
        choices = {"target": RuleChoice("target"), **{name: entry.choice for name, entry in chosen.items()}}
        self.methods: dict[str, Method] = {m.name: m for m in build_methods(choices, self.pair, decoding)}
        described = describe(self.pair, decoding, choices, list(self.methods.values()))
        described |= {"tasks": {entry.task.name: entry.describe(self.pair, options.raw) for entry in loaded}}
        # As it will be read back: a tuple is a list then.
        self.settings: dict[str, Any] = json.loads(dumps(described))
        self.decoding_pair = decoding.over(self.pair)

    def run(self) -> list[dict[str, Any]]:
        """All rows of the table: the grid's, and behind them what else is finished in the directory."""
        from cospec.evaluation.sweep.directory import CellRows, StoredGroup, check_groups, read_rows
        from cospec.evaluation.sweep.row import adjusted
        from cospec.evaluation.sweep.store import write_table

        # All groups before the first is decoded.
        check_groups(self.out, _without_own(self.settings), rescore=self.options.rescore)
        if self.options.rescore:
            self._rescore()
        num_kept = self._num_kept()
        c_rel = c_rel_of(self.options, self.decoding_pair, self.settings, self.groups, self.tasks[0].rows)
        rows, cells = read_rows(self.out), CellRows(c_rel, self.options.margin)
        kept = f"all finished texts in {self.out}"
        with on_interrupt(lambda: kept), progress("sweep", self._num_left(num_kept), "texts") as step:
            for group in self.groups:
                run = self._open(group, num_kept)
                for task, result in self._results(group, run, step):
                    cells.add(StoredGroup(run.directory, run.settings), task, result)
                    with self.stop.held():
                        write_table(self.out, [*(rows | cells.rows).values()])
        cells.add_finished(self.out, self.tasks)
        if cells.mixed:
            typer.echo(
                f"cospec: warning: {len(cells.mixed)} cells have no speed-up by the clock: they and the target alone "
                "were decoded on several machines",
                err=True,
            )
        table = adjusted([*cells.rows.values()])
        write_table(self.out, table)
        return table

    def _rescore(self) -> None:
        """Judge all texts of the tasks that are in the directory again, whatever grid they are of."""
        from cospec.evaluation.run import EvalRun
        from cospec.evaluation.scoring import rescored
        from cospec.evaluation.sweep.directory import stored_groups

        for group in stored_groups(self.out):
            tasks = {name: self.settings["tasks"].get(name, entry) for name, entry in group.settings["tasks"].items()}
            EvalRun(
                group.path,
                {**group.settings, "tasks": tasks},
                lambda samples: rescored(samples, self.tasks, self.options.workers),
            )

    def _num_kept(self) -> Counter[CellId]:
        """How many texts each cell has."""
        from cospec.evaluation.sweep.directory import stored_groups

        return Counter(
            {cell: len(samples) for group in stored_groups(self.out) for cell, samples in group.samples().items()}
        )

    def _num_left(self, num_kept: Counter[CellId], groups: Sequence[Group] = ()) -> int:
        """How many texts of the grid, or of some groups of it, are missing."""
        return sum(
            len(task.rows) * repeats_of(group, self.options) - num_kept[group.folder, name, task.name]
            for group in groups or self.groups
            for name in group.methods
            for task in self.tasks
        )

    def _open(self, group: Group, num_kept: Counter[CellId]) -> EvalRun:
        from cospec.evaluation.run import EvalRun
        from cospec.evaluation.run_settings import ENVIRONMENTS

        own = {
            "sampling": asdict(group.sampling),
            "num_draft_tokens": group.num_draft_tokens or 1,
            "repeats": repeats_of(group, self.options),
            "methods": {name: self.settings["methods"][name] for name in group.methods},
        }
        # Where nothing is missing, this machine takes no part.
        here = self.settings[ENVIRONMENTS] if self._num_left(num_kept, [group]) else []
        return EvalRun(self.out / group.folder, self.settings | own | {ENVIRONMENTS: here})

    def _results(self, group: Group, run: EvalRun, step: Step) -> Iterator[tuple[str, MethodResult]]:
        """Every cell of a group with its task, decoded where it is not there yet."""
        from cospec.evaluation import evaluate
        from cospec.evaluation.scoring import TooManyFailures

        decoding, repeats = _decoding(self.options, group), repeats_of(group, self.options)
        settings = decoding.eval_settings(repeats, raw=self.options.raw, workers=self.options.workers)
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
                    where = f"all finished texts in {self.out}, which --rescore judges again"
                    raise ValueError(f"{error}; kept: {where}") from error
                yield task.name, found.tasks[0].results[0]

    def _keeper(self, run: EvalRun, step: Step) -> Callable[[Sample, Rollout], None]:
        def keep(sample: Sample, rollout: Rollout) -> None:
            with self.stop.held():
                run.add(sample)
            step()

        return keep


def _check_begun(options: SweepOptions, loaded: Sequence[LoadedTask], groups: Sequence[Group]) -> None:
    """ValueError, before models are loaded, for a directory that this sweep cannot go on with."""
    from cospec.evaluation.run import check_settings
    from cospec.evaluation.sweep.directory import check_groups, check_texts

    assert options.out is not None
    tasks = {"tasks": {entry.task.name: {**entry.described, "raw": options.raw} for entry in loaded}}
    check_groups(options.out, _without_own(describe_decoding(options.decoding())) | tasks, rescore=options.rescore)
    check_texts(options.out, [entry.task for entry in loaded], rescore=options.rescore)
    for group in groups:
        known = describe_decoding(_decoding(options, group)) | {"repeats": repeats_of(group, options)} | tasks
        check_settings(options.out / group.folder, known, rescore=options.rescore)


def _without_own(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that are each group's own."""
    return {key: value for key, value in settings.items() if key not in ("sampling", "num_draft_tokens")}


def repeats_of(group: Group, options: SweepOptions) -> int:
    """Texts a problem in a group: greedy ones would all be the same."""
    return 1 if group.sampling.greedy else options.repeats
