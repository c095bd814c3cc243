"""The arithmetic of `cospec bench` on given numbers: limits, ratios, shares, points of a sweep."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from conftest import family_pair, random_prompts

from cospec.engine.request import Request
from cospec.evaluation.bench.cells import CellKey, Contender, Forwards, Measured, Passes, cut_at_end, sample_of
from cospec.evaluation.bench.forwards import Timed, summed
from cospec.evaluation.bench.limit import BareTimes, LimitShare, LimitTerms, limit_shares
from cospec.evaluation.bench.rounds import ProbeTime, Repeat, measure, repeat_from_json
from cospec.evaluation.bench.store import BenchRun
from cospec.evaluation.bench.summary import results
from cospec.evaluation.bench.sweep import bare_round_s, points, sweep_contenders
from cospec.evaluation.bench.table import lines, warnings
from cospec.evaluation.bench.workload import Workload, check_workload
from cospec.jsonl import dumps

TARGET, STRICT = CellKey("cospec", "target", 1), CellKey("cospec", "strict", 1)
ASSISTED, OTHER = CellKey("transformers", "assisted", 1), CellKey("vllm", "generate", 1)
TEXTS = ((1, 2, 3, 4), (5, 6))

# --- the limit -------------------------------------------------------------------------------------------------------


def test_the_limit_is_the_tokens_of_a_round_by_what_its_passes_cost_in_target_passes() -> None:
    terms = LimitTerms(4.0, 0.010, 0.016, 5, 0.002, 0.5, 0.004)
    assert terms.round_s == pytest.approx(0.016 + 0.010 + 0.002)
    assert terms.limit == pytest.approx(4.0 * 0.010 / 0.028)
    # Drafts that cost nothing and verification at the price of one token: the round's tokens are all there is.
    assert LimitTerms(4.0, 0.01, 0.01, 5, 0.0).limit == pytest.approx(4.0)


def repeat_of(samples: Mapping[CellKey, Measured], probes: Sequence[ProbeTime] = (), index: int = 0) -> Repeat:
    return Repeat(index, {key: sample_of(key, index, measured) for key, measured in samples.items()}, tuple(probes))


def a_comparison(strict_s: float = 0.5, index: int = 0) -> Repeat:
    """Six tokens: the target alone in six passes, strict in three rounds, one of them short."""
    alone = Forwards((Passes("target", 1, 1, 6, 0.6),), {"target": 0.1})
    drafts = (Passes("draft", 1, 1, 4, 0.04), Passes("draft", 1, 2, 2, 0.04))
    verified = (Passes("target", 1, 2, 1, 0.11), Passes("target", 1, 3, 2, 0.24))
    strict = Forwards((*drafts, *verified), {"target": 0.1, "draft": 0.02})
    cells = {
        TARGET: Measured(0.8, TEXTS, 6, alone, 100.0),
        STRICT: Measured(strict_s + 0.12, TEXTS, 3, strict, 120.0),
        ASSISTED: Measured(1.2, TEXTS, 3, strict, 90.0),
        OTHER: Measured(0.4, ((1, 2, 3, 4), (5, 7)), None, None, None),
    }
    shapes = [("target", 1, 0.1), ("target", 2, 0.11), ("target", 3, 0.12), ("draft", 1, 0.01), ("draft", 2, 0.02)]
    return repeat_of(cells, [ProbeTime("engine", 1, *shape[:1], 1, shape[1], 9, shape[2]) for shape in shapes], index)


def test_the_share_of_the_limit_is_measured_without_the_prompts() -> None:
    (found,) = limit_shares([a_comparison()])
    (terms,) = found.terms
    assert found.key == STRICT
    assert terms == LimitTerms(2.0, 0.1, pytest.approx((0.11 + 2 * 0.12) / 3), 2.0, pytest.approx(0.08 / 6))
    assert found.measured == (pytest.approx((6 / 0.5) / (6 / 0.7)),)
    assert found.relative_share == pytest.approx(1.4 / terms.limit)
    assert found.share == pytest.approx((0.11 + 2 * 0.12 + 0.08) / 0.5)


@pytest.mark.parametrize("num_repeats", [1, 4, 5])
def test_a_printed_limit_is_what_its_printed_terms_make(num_repeats: int) -> None:
    """Were each term a median of its own, they would be of different repeats and make another number."""
    seconds = [(0.10, 0.31, 0.020), (0.30, 0.12, 0.010), (0.20, 0.13, 0.090), (0.12, 0.50, 0.015), (0.25, 0.21, 0.030)]
    terms = [LimitTerms(2.0 + i, one, verified, 2.0, drafted) for i, (one, verified, drafted) in enumerate(seconds)]
    shares = tuple(0.9 + i / 100 for i in range(num_repeats))
    found = LimitShare(STRICT, tuple(terms[:num_repeats]), (1.5,) * num_repeats, shares).to_json()
    names = [field.name for field in dataclasses.fields(LimitTerms)]
    assert LimitTerms(**{name: found[name] for name in names}).limit == found["limit"]
    limits = sorted(each.limit for each in terms[:num_repeats])
    assert found["limit"] == statistics.median_low(limits)
    apart = {name: statistics.median(getattr(each, name) for each in terms[:num_repeats]) for name in names}
    assert num_repeats == 1 or LimitTerms(**apart).limit != pytest.approx(found["limit"], rel=0.05)


def test_a_batch_that_empties_is_counted_with_the_rows_it_has() -> None:
    key = CellKey("cospec", "strict", 5)
    probes = [ProbeTime("engine", 5, "target", rows, 2, 9, seconds) for rows, seconds in ((1, 0.1), (5, 0.3))]
    bare = BareTimes(key, [*probes, ProbeTime("engine", 1, "target", 1, 2, 9, 7.0)])
    assert [bare.pass_s("target", rows, 2) for rows in (1, 2, 5)] == pytest.approx([0.1, 0.15, 0.3])
    forwards = Forwards((Passes("target", 2, 2, 3, 9.0), Passes("target", 5, 2, 1, 9.0)))
    sample = sample_of(key, 0, Measured(9.0, TEXTS, 4, forwards))
    assert bare.rounds_s(sample) == pytest.approx(3 * 0.15 + 0.3)


def test_an_arbiter_costs_its_share_of_the_rounds() -> None:
    key, before = CellKey("cospec", "sft", 1), a_comparison()
    sample = before.samples[STRICT]
    assert sample.forwards is not None
    passes = (*sample.forwards.passes, Passes("arbiter", 1, 9, 2, 0.06))
    with_arbiter = dataclasses.replace(sample, key=key, forwards=Forwards(passes, sample.forwards.prefill))
    probes = (*before.probes, ProbeTime("engine", 1, "arbiter", 1, 9, 9, 0.03, "sft"))
    repeat = Repeat(0, {**before.samples, key: with_arbiter}, probes)
    strict, sft = limit_shares([repeat])
    assert (sft.terms[0].mismatch_share, sft.terms[0].arbiter_s) == (pytest.approx(2 / 3), 0.03)
    assert sft.terms[0].round_s == pytest.approx(strict.terms[0].round_s + 0.02)


# --- ratios and shares -----------------------------------------------------------------------------------------------


class Given:
    """A contender with numbers given in advance."""

    def __init__(self, *keys: CellKey, note: str | None = None) -> None:
        self.keys, self._note = keys, note
        self.log: list[str] = []

    def note(self, key: CellKey) -> str | None:
        return self._note

    def warm_up(self) -> None:
        self.log.append("warm-up")

    def run(self) -> Measured:
        self.log.append("run")
        return Measured(1.0, TEXTS)


def test_the_results_have_the_promised_keys_and_ratios_of_the_same_repeat() -> None:
    repeats = [a_comparison(0.5), a_comparison(0.25, 1), a_comparison(1.0, 2)]
    contenders: list[Contender] = [Given(OTHER, note="elsewhere")]
    found = results(repeats, contenders)
    cells = {(cell["engine"], cell["method"]): cell for cell in found["cells"]}
    strict, other = cells["cospec", "strict"], cells["vllm", "generate"]
    assert {"engine", "method", "batch", "tokens_per_s", "tokens_per_round", "share"} <= strict.keys()
    assert {"peak_mb", "identical_to_target"} <= strict.keys()
    assert strict["tokens_per_s"] == [pytest.approx(6 / seconds) for seconds in (0.62, 0.37, 1.12)]
    expected = {"median": 0.8 / 0.62, "min": 0.8 / 1.12, "max": 0.8 / 0.37}
    assert strict["ratio_to_target"] == pytest.approx(expected)
    assert strict["ratio_to_assisted"]["median"] == pytest.approx(1.2 / 0.62)
    assert strict["tokens_per_round"] == 2.0
    assert strict["identical_to_target"] is True
    assert (other["identical_to_target"], other["num_identical"], other["note"]) == (False, 1, "elsewhere")
    assert (other["tokens_per_round"], other["peak_mb"]) == (None, None)
    assert other["share"] == dict.fromkeys(("draft", "target", "arbiter", "rest"))
    assert found["model_limit_share"] == pytest.approx(limit_shares(repeats)[0].share)
    json.loads(dumps(found))


def test_the_parts_of_the_time_add_up_and_prompts_count_with_their_model() -> None:
    found = results([a_comparison()], [])["cells"][1]
    assert sum(found["share"].values()) == pytest.approx(1)
    assert found["share"]["draft"] == pytest.approx(0.10 / 0.62)
    assert found["share"]["target"] == pytest.approx(0.45 / 0.62)
    assert found["overhead"] == pytest.approx(0.62 / 0.55)
    assert found["prefill_share"] == pytest.approx(0.12 / 0.62)


@pytest.mark.parametrize(
    ("ids", "real"), [([7, 9, 2, 0, 0], (7, 9, 2)), ([7, 9, 8, 6, 2], (7, 9, 8, 6)), ([3, 2], (3,)), ([7], (7,))]
)
def test_output_ends_with_the_first_end_or_at_the_cap(ids: list[int], real: tuple[int, ...]) -> None:
    assert cut_at_end(ids, (2, 3), 4) == real


def test_a_head_makes_a_backbones_pass_one_of_a_round() -> None:
    timed = [
        Timed("target", "backbone", (1, 9), 0.0, 4.0),
        Timed("target", "whole", (1, 2), 4.0, 5.0),
        Timed("arbiter", "backbone", (1, 7), 5.0, 7.0),
        Timed("arbiter", "head", None, 7.0, 7.5),
        Timed("target", "backbone", (1, 2), 8.0, 9.0),
        Timed("target", "head", None, 9.0, 9.25),
        Timed("draft", "backbone", (1, 3), 10.0, 16.0),
    ]
    found = summed(timed, lambda start, stop: stop - start)
    assert found.passes == (Passes("arbiter", 1, 7, 1, 2.5), Passes("target", 1, 2, 2, 2.25))
    assert found.prefill == {"target": 4.0, "draft": 6.0}
    assert (found.total_s, found.prefill_s, found.seconds("target")) == (14.75, 10.0, 6.25)


# --- repeats ---------------------------------------------------------------------------------------------------------


def test_every_repeat_runs_every_cell_before_the_next_and_each_in_the_opposite_order() -> None:
    shared: list[str] = []
    both = [Given(TARGET), Given(STRICT, ASSISTED)]
    for name, contender in zip("ab", both, strict=True):
        contender.run = lambda name=name: shared.append(name) or Measured(1.0, TEXTS)  # type: ignore[method-assign]
    whole: list[Repeat] = []
    found = measure(both, lambda samples: (), 3, on_repeat=whole.append)
    assert shared == ["a", "b", "b", "a", "a", "b"]
    assert [list(repeat.samples) for repeat in found] == [[TARGET, STRICT, ASSISTED]] * 3
    assert whole == found
    assert both[0].log == ["warm-up"]


def test_finished_repeats_are_not_run_again() -> None:
    contender = Given(TARGET)
    first = measure([contender], lambda samples: (), 2)
    again = measure([contender], lambda samples: (), 2, kept=first)
    assert again == first
    assert contender.log == ["warm-up", "run", "run"]
    more = measure([contender], lambda samples: (), 3, kept=first)
    assert more[:2] == first
    assert contender.log[3:] == ["warm-up", "run"]


def test_a_repeat_is_kept_as_it_was(tmp_path: Path) -> None:
    repeat = a_comparison()
    run = BenchRun(tmp_path / "run", {"dtype": "float32"})
    run.add("cells", repeat)
    with (tmp_path / "run" / "cells.jsonl").open("a") as file:
        file.write('{"repeat": 1, "sam')
    again = BenchRun(tmp_path / "run", {"dtype": "float32"})
    assert again.repeats("cells", list(repeat.samples)) == [repeat]
    with pytest.raises(ValueError, match="dtype was 'float32', now 'bfloat16'"):
        BenchRun(tmp_path / "run", {"dtype": "bfloat16"})
    with pytest.raises(ValueError, match="does not hold the repeats of this bench"):
        again.repeats("cells", [TARGET])
    with pytest.raises(ValueError, match="another version"):
        repeat_from_json({"repeat": 0, "samples": [{"key": {}}], "probes": []})


# --- sweeps ----------------------------------------------------------------------------------------------------------


def work_of(*lengths: int, cap: int = 8, drafts: int = 2) -> Workload:
    requests = tuple(Request(index, ids) for index, ids in enumerate(random_prompts(*lengths)))
    return Workload(requests, cap, drafts, ())


def test_a_sweep_of_the_context_ends_where_the_pair_does_and_says_so() -> None:
    pair = dataclasses.replace(family_pair("llama", "sdpa"), target_context=9000, draft_context=1100)
    found = points("context", None, pair, work_of(3))
    assert found.at == (256, 512, 1024, 1100 - 8)
    assert found.clipped is not None
    assert "1092 tokens instead of 8192: the draft's context holds 1100, and 8 must fit" in found.clipped
    assert points("context", None, pair, work_of(3), arbiters=True).at[-1] == 1100 - 8 - 9
    assert points("context", 512, pair, work_of(3)).at == (256, 512)
    assert points("context", 512, pair, work_of(3)).clipped is None
    assert points("context", None, dataclasses.replace(pair, draft_context=160), work_of(3)).at == (152,)
    with pytest.raises(ValueError, match="--sweep-to 100 is below the first point"):
        points("context", 100, pair, work_of(3))


def test_a_sweep_of_the_batch_doubles() -> None:
    pair = family_pair("llama", "sdpa")
    assert points("batch", None, pair, work_of(3)).at == (1, 2, 4, 8, 16, 32)
    assert points("batch", 6, pair, work_of(3)).at == (1, 2, 4, 6)
    (contender,) = sweep_contenders(points("batch", 1, pair, work_of(3, 5, 9)), pair, work_of(3, 5, 9), {"x": None}, 1)
    (request,) = contender.work.requests
    assert len(request.prompt_ids) == 5


def test_prompts_of_a_sweep_end_as_a_prompt_does() -> None:
    pair, work = family_pair("llama", "sdpa"), work_of(4, 6)
    contenders = sweep_contenders(points("context", None, pair, work), pair, work, {"x": None}, 3)
    assert [contender.keys[0] for contender in contenders] == [CellKey("cospec", "x", 3, 152)]
    rows = contenders[0].work.prompts
    assert len(rows) == 3
    assert rows[0] == rows[1] == rows[2]
    assert rows[0][-10:] == work.prompts[0] + work.prompts[1]


def test_bare_passes_of_a_short_block_lie_between_one_token_and_a_block() -> None:
    shapes = [("target", 1, 0.10), ("target", 3, 0.14), ("draft", 1, 0.01)]
    probes = [ProbeTime("plain", 1, part, 1, width, 0, seconds) for part, width, seconds in shapes]
    sample = a_comparison().samples[STRICT]
    # Widths 2, 3 and 3: verification of 8/3 tokens; two drafts a round.
    assert bare_round_s(sample, probes, 2) == pytest.approx(0.10 + 0.04 * (8 / 3 - 1) / 2 + 2 * 0.01)


def test_a_sweep_of_one_point_says_nothing_of_growth() -> None:
    point = {"method": "target", "at": 49, "seconds_per_round": [0.1], "bare_s": 0.1, "cpu_share": 1.0}
    sweep = {"sweep": "context", "clipped": None, "points": [point, {**point, "method": "strict"}]}
    found = {"limits": [], "cells": [], "sweeps": [sweep], "warnings": [], "left_out": []}
    assert lines(found) == []
    sweep["points"] = [point, {**point, "at": 98}]
    (line,) = lines(found)
    assert line.startswith("target: from context 49 to 98 a round takes 1.00 times")


@pytest.mark.parametrize(("device", "cpu_share", "num"), [("cpu", 0.5, 1), ("cpu", 0.97, 0), ("cuda", 0.5, 0)])
def test_a_machine_that_was_busy_is_warned_of(device: str, cpu_share: float, num: int) -> None:
    found = {"cells": [{"cpu_share": cpu_share}], "sweeps": [], "settings": {"device": device}}
    assert len(warnings(found)) == num
    assert all("the machine was busy: in one place this process had 50% of a core" in line for line in warnings(found))


def test_a_share_above_all_of_the_limit_is_explained() -> None:
    (limit,) = limit_shares([a_comparison()])
    found = {"cells": [], "sweeps": [], "warnings": [], "left_out": []}
    for measured, reason in ((9.0, True), (0.1, False)):
        changed = dataclasses.replace(limit, measured=(measured,)).to_json()
        (line,) = lines(found | {"limits": [changed]})
        assert (", as target-only loses even more beside its bare passes)" in line) == reason


# --- what cannot be measured -----------------------------------------------------------------------------------------


def test_prompts_that_some_engine_could_not_finish_are_refused_by_the_model_that_could_not() -> None:
    pair = family_pair("llama", "sdpa")
    check_workload(work_of(3, 152), pair, [1, 2])
    check_workload(work_of(3, 143), pair, [1], arbiters=True)
    with pytest.raises(ValueError, match=r"153 tokens, 8 .*\(the text\), .*holds 160: .* or lower --max-new-tokens"):
        check_workload(work_of(3, 153), pair, [1])
    with pytest.raises(ValueError, match=r"1 has 144 tokens, 17 must fit behind it \(the text and a region of"):
        check_workload(work_of(3, 144), pair, [1], arbiters=True)
    short = dataclasses.replace(pair, draft_context=20)
    with pytest.raises(ValueError, match=r"the draft's context holds 20: shorten the prompt$"):
        check_workload(work_of(20), short, [1])
    with pytest.raises(ValueError, match="--batch 3 is more than the 2 prompts"):
        check_workload(work_of(3, 4), pair, [1, 3])
