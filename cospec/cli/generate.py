"""`cospec generate`: decode one prompt, or a file of prompts to JSON lines on stdout."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cospec.cli.decode_option import DecodeFileOption, rule_from_file, warn_of_other_pair
from cospec.cli.methods import check_methods
from cospec.cli.options import (
    ArbiterOption,
    AttnOption,
    BatchSizeOption,
    BonusOption,
    CompileOption,
    DeviceOption,
    DrafterOption,
    DraftOption,
    DtypeOption,
    EosOption,
    JsonOption,
    MaxNewTokensOption,
    MinPOption,
    NumDraftTokensOption,
    PackedOption,
    PairOption,
    PenaltyOption,
    PromptsOption,
    RawOption,
    RuleOption,
    SeedOption,
    StopOption,
    TargetOption,
    TemperatureOption,
    ThresholdOption,
    TopKOption,
    TopPOption,
    on_interrupt,
    written,
)
from cospec.cli.outgrown import Outgrown
from cospec.cli.rows_to_decode import rows_to_decode
from cospec.jsonl import dumps
from cospec.prompt_rows import PromptRow

if TYPE_CHECKING:
    from cospec.cli.loading import DecodeOptions
    from cospec.engine.decode import Engine
    from cospec.engine.record import Rollout
    from cospec.pair import Pair


MeasuredRatioOption = Annotated[
    str | None,
    typer.Option(
        "--cost-ratio",
        metavar="RATIO|auto",
        help="Blocks as long as pays for each row, one token at least, a draft step taking this share of a target "
        "pass's time; auto: measure it.",
    ),
]


def command(
    context: typer.Context,
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="One prompt; or use --prompts.")] = None,
    prompts: PromptsOption = None,
    pair: PairOption = None,
    draft: DraftOption = None,
    target: TargetOption = None,
    rule: RuleOption = None,
    arbiter: ArbiterOption = None,
    decode: DecodeFileOption = None,
    threshold: ThresholdOption = 0.5,
    bonus: BonusOption = None,
    drafter: DrafterOption = None,
    num_draft_tokens: NumDraftTokensOption = 5,
    cost_ratio: MeasuredRatioOption = None,
    max_new_tokens: MaxNewTokensOption = 512,
    eos_token_id: EosOption = None,
    stop: StopOption = None,
    batch_size: BatchSizeOption = 8,
    temperature: TemperatureOption = 0.0,
    top_k: TopKOption = 0,
    top_p: TopPOption = 1.0,
    min_p: MinPOption = 0.0,
    repetition_penalty: PenaltyOption = 1.0,
    raw: RawOption = False,
    seed: SeedOption = 0,
    compile_mode: CompileOption = None,
    packed: PackedOption = False,
    device: DeviceOption = None,
    dtype: DtypeOption = None,
    attn: AttnOption = None,
    json: JsonOption = False,
    stream: Annotated[bool, typer.Option("--stream", help="Print texts while they are written.")] = False,
) -> None:
    """Decode one prompt, or the prompts of a file.

    A file's results are JSON lines on stdout, one per row, in the order of the file; a single prompt prints its text
    alone unless --json is given. With --stream, JSON comes as lines {"id", "piece"} round by round and a row's full
    line once it has ended. `--pair tiny` is the bundled pair.
    """
    given, rows = locals(), _rows(prompt, prompts)
    loaded, engine = _load(given, written(context))
    from cospec.evaluation.method import requests_of

    requests, text_only = requests_of(loaded, rows, raw=raw), prompts is None and not json
    outgrown = Outgrown(loaded)
    if stream:
        _print_stream(outgrown.seen(engine.stream(requests)), rows, text_only)
    else:
        _print_in_order(outgrown.seen(engine.run(requests)), len(rows), text_of if text_only else line_of)
    outgrown.say()


def _load(given: Mapping[str, Any], names: frozenset[str]) -> tuple[Pair, Engine]:
    """Pair and engine of the command's parameters; ``names`` are those that the user wrote."""
    from cospec.cli import loading

    decode, cost_ratio = given["decode"], given["cost_ratio"]
    if decode is not None:
        given = rule_from_file(decode, given, names)
    if cost_ratio == "auto":
        _check_measurable(given["drafter"])
    options = loading.decode_options_of({**given, "cost_ratio": _ratio(cost_ratio)})
    choice = loading.choose_rule(given["rule"], given["arbiter"], given["threshold"])
    check_methods(options, {choice.name: choice}, from_file=decode is not None)
    models = [given[name] for name in ("pair", "draft", "target", "device", "dtype", "attn")]
    use = options.draft_use([choice])
    loading.check_passes(given["compile_mode"], given["packed"], loading.read_pair_spec(*models, draft_use=use))
    pair = loading.load_pair_from_options(*models, draft_use=use)
    warn_of_other_pair(decode, pair)
    if cost_ratio == "auto":
        options = _with_measured_ratio(options, options.over(pair))
    return pair, options.engine(pair, loading.rule_from_options(choice, pair))


def _check_measurable(drafter: str | None) -> None:
    from cospec.engine.drafters import drafter_named

    if not drafter_named(drafter or "model").runs_draft_model:
        raise ValueError(f"--cost-ratio auto measures the draft model, and drafter {drafter} runs none: drop it")


def _ratio(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        # What is to be measured is taken as given until it is.
        return 1.0 if text == "auto" else float(text)
    except ValueError:
        raise ValueError(f"--cost-ratio is {text!r}: give a number above 0, or auto") from None


def _with_measured_ratio(options: DecodeOptions, pair: Pair) -> DecodeOptions:
    import time

    from cospec.engine.cost import measure_cost_ratio
    from cospec.evaluation.table import STARVED

    start, cpu = time.perf_counter(), time.process_time()
    ratio = measure_cost_ratio(pair, options.batch_size, options.num_draft_tokens)
    share = (time.process_time() - cpu) / (time.perf_counter() - start)
    busy = pair.device.type == "cpu" and share < STARVED
    typer.echo(
        f"cospec: a draft step takes {ratio:.3f} of a target pass here"
        f"{' (the machine was busy: it may take another share later)' if busy else ''}: for the same blocks again, "
        f"--cost-ratio {ratio:.3f}",
        err=True,
    )
    return dataclasses.replace(options, cost_ratio=ratio)


def _rows(prompt: str | None, prompts: Path | None) -> list[PromptRow]:
    if prompt is not None and prompts is not None:
        raise ValueError("a prompt and --prompts are both given: keep one of them")
    if prompts is not None:
        return rows_to_decode(prompts)
    if prompt is None:
        raise ValueError("no prompt given: write one behind the command, or use --prompts FILE.jsonl")
    if not prompt.strip():
        raise ValueError("the prompt is empty: give at least one word")
    return [PromptRow(id=1, prompt=prompt)]


def _print_in_order(finished: Iterable[tuple[int, Rollout]], num_rows: int, render: Callable[[Rollout], str]) -> None:
    """Print each result as soon as all before it are printed; those that still wait when work stops come at the end."""
    from cospec.cli.progress import progress

    waiting: dict[int, Rollout] = {}
    printed = 0
    with (
        on_interrupt(lambda: f"the {printed} of {num_rows} lines printed so far" if printed else "nothing"),
        progress("generate", num_rows, bar=not sys.stdout.isatty()) as step,
    ):
        following = 0
        try:
            for index, rollout in finished:
                waiting[index] = rollout
                step()
                while following in waiting:
                    _print(render(waiting.pop(following)))
                    following, printed = following + 1, printed + 1
        finally:
            for index in sorted(waiting):
                _print(render(waiting[index]))
                printed += 1


def _print_stream(events: Iterable[tuple[int, str | Rollout]], rows: Sequence[PromptRow], text_only: bool) -> None:
    """Pieces as they come; a single text by itself, else one JSON line a piece and one for each finished row."""
    done = 0
    with on_interrupt(lambda: f"the {done} of {len(rows)} texts printed so far"):
        for index, event in events:
            if isinstance(event, str):
                _print(event, end="") if text_only else _print(dumps({"id": rows[index].id, "piece": event}))
            else:
                _print("" if text_only else line_of(event))
                done += 1


def _print(line: str, end: str = "\n") -> None:
    sys.stdout.write(line + end)
    sys.stdout.flush()


def text_of(rollout: Rollout) -> str:
    """The text alone."""
    return rollout.text


def line_of(rollout: Rollout) -> str:
    """One JSON line; the id keeps the type it had in the file."""
    row: dict[str, Any] = {
        "id": rollout.id,
        "output_ids": list(rollout.output_ids),
        "text": rollout.text,
        "finish_reason": rollout.finish_reason,
        "num_rounds": rollout.num_rounds,
        "num_drafted": rollout.num_drafted,
        "num_accepted": rollout.num_accepted,
        "num_mismatches": rollout.num_mismatches,
        "num_kept": rollout.num_kept,
    }
    return dumps(row)
