"""Compiled passes beside plain ones: the same texts, and the seconds of both."""

from __future__ import annotations

import functools

from made_pair import MadePair
from meter import timed
from methods import Ours, Written
from results import Results, say
from sizes import Size

from cospec.engine.compiled import CompileMode
from cospec.engine.rules import rule_named

#: How passes are compiled, by the device's type; elsewhere nothing is.
MODES: dict[str, CompileMode] = {"cuda": "graphs"}
_REPEATS = 3


def compiled_beside_plain(results: Results, size: Size, made: MadePair) -> None:
    """Seconds of target-only and strict over the longest case's tokens, plain and compiled in turn.

    A run records its graphs anew, and that is in its seconds.
    """
    mode = MODES.get(made.pair.device.type)
    if mode is None:
        return
    for together in size.profiled_together:
        for name in ("target", "strict"):
            label = f"{mode}, {name} by {together}"
            if results.left_s <= 0:
                results.leave_out(label)
                continue
            with results.part(label):
                seconds = _seconds(results, size, made, name, together, mode)
                results.put(compiled=results.found.get("compiled", {}) | {label: seconds})
                say(f"{label}: {min(seconds['plain']) / min(seconds[mode]):.2f} times the plain passes' speed")


def _seconds(
    results: Results, size: Size, made: MadePair, name: str, together: int, mode: CompileMode
) -> dict[str, list[float]]:
    """Of every repeat, by the way; the first texts of both are compared and not timed."""
    num_new, prompts = max(case.num_new for case in size.cases), made.prompts(together, size.prompt_len)
    modes: dict[str, CompileMode | None] = {"plain": None, mode: mode}
    ways = {
        way: Ours(made.pair, rule_named(name), size.num_draft_tokens, compile_mode=how) for way, how in modes.items()
    }

    def write(way: str) -> Written:
        return ways[way].write(prompts, num_new, together)

    same = write("plain").output_ids == write(mode).output_ids
    results.check(f"{mode}, {name} by {together}: the plain passes' text", None if same else "the texts part")
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(_REPEATS):
        for way in ways:
            seconds[way].append(timed(functools.partial(write, way), made.pair.device)[1])
    return seconds
