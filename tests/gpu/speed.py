"""Tokens per second of every method on the made pair, where the time goes, and how near the bandwidth's limit it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from made_pair import MadePair
from meter import Meter, median, timed
from methods import Method, Written
from results import Results, say
from sizes import Case


@dataclass(slots=True)
class Cell:
    """One method in one case.

    ``seconds`` holds every repeat. All else is of a run of its own before them, with clocks around the models: the
    ``share`` of its time by part, its passes, the weights they read, and its peak of device memory, weights included.
    ``acceptance`` is the share of matches among the draft tokens that were tested.
    """

    engine: str
    method: str
    batch: int
    num_prompts: int
    new_tokens: int
    tokens_per_round: float
    acceptance: float | None
    keep_rate: float | None
    identical_to_target: bool
    share: dict[str, float]
    passes: dict[str, int]
    weights_read_gb: float
    peak_mb: float | None
    metered_s: float
    seconds: list[float] = field(default_factory=list)

    @property
    def tokens_per_row(self) -> float:
        """New tokens of one row of the batch, all texts that stand in it: what the time grows with."""
        return self.new_tokens * self.num_prompts / self.batch

    @property
    def tokens_per_s(self) -> list[float]:
        return [self.new_tokens * self.num_prompts / seconds for seconds in self.seconds]

    def bandwidth_share(self, bytes_per_s: float) -> float | None:
        """The time in which the device could move the weights of all passes, by the median time."""
        seconds = median(self.seconds)
        return self.weights_read_gb * 1e9 / bytes_per_s / seconds if seconds else None

    def to_json(self, bytes_per_s: float) -> dict[str, Any]:
        more = {"tokens_per_s": self.tokens_per_s, "median_tokens_per_s": median(self.tokens_per_s)}
        return asdict(self) | more | {"bandwidth_share": self.bandwidth_share(bytes_per_s)}

    def line(self, bytes_per_s: float) -> str:
        rate, near = median(self.tokens_per_s), self.bandwidth_share(bytes_per_s)
        parts = ", ".join(f"{part} {share:.0%}" for part, share in self.share.items() if share)
        speed = f"{rate:8.1f} tokens/s, {near:4.0%} of the bandwidth" if rate and near else "no time to repeat it"
        return f"{self.method:14} {speed}, {self.tokens_per_round:.2f} a round; {parts}"


def ratios(cells: Sequence[Cell]) -> dict[str, float]:
    """Tokens per second of `strict` by those of other ways to write the target's texts behind the same prompts."""
    found = {}
    for mine in cells:
        for other in cells:
            same = (mine.num_prompts, mine.new_tokens) == (other.num_prompts, other.new_tokens)
            is_pair = mine.method == "strict" and other.method in ("target", "generate", "assisted")
            rates = median(mine.tokens_per_s), median(other.tokens_per_s)
            if same and is_pair and rates[0] and rates[1]:
                name = f"strict by {mine.batch} / {other.method} by {other.batch}"
                found[f"{name}, {mine.num_prompts} prompts, {mine.new_tokens} new"] = rates[0] / rates[1]
    return found


class Bench:
    """Runs cases, method by method within each repeat, so that a drift of the machine meets all alike."""

    def __init__(
        self,
        made: MadePair,
        methods: Mapping[str, Method],
        prompt_len: int,
        results: Results,
        bytes_per_s: float,
        reserve_s: float,
    ) -> None:
        self.made, self.methods, self.prompt_len = made, methods, prompt_len
        self.results, self.bytes_per_s, self.reserve_s = results, bytes_per_s, reserve_s
        self.device = made.pair.device
        self.cells: list[Cell] = []

    @property
    def left_s(self) -> float:
        return self.results.left_s - self.reserve_s

    def run(self, case: Case) -> None:
        """All cells of a case; what breaks or has no time is noted and left out."""
        say(f"-- {case.label} ({self.left_s:.0f} s left)")
        cells: dict[str, Cell] = {}
        for name in case.methods:
            if not self._has_time_for(name, case):
                self.results.leave_out(f"{name}, {case.label}")
                continue
            with self.results.part(f"{name}, {case.label}"):
                cells[name] = self._metered(name, case)
                self.cells.append(cells[name])
        for repeat in range(case.repeats):
            for name, cell in cells.items():
                if self.left_s > cell.metered_s:
                    cell.seconds.append(self._write(name, case)[1])
                else:
                    self.results.leave_out(f"{name}, {case.label}, repeat {repeat + 1}")
            self.results.put(cells=[cell.to_json(self.bytes_per_s) for cell in self.cells])
        for name, cell in cells.items():
            say(cell.line(self.bytes_per_s))
            if "arbiter" not in name:
                wrong = None if cell.identical_to_target else "see the pair's permutation"
                self.results.check(f"{name}, {case.label}: the target's text", wrong)

    def _has_time_for(self, name: str, case: Case) -> bool:
        """Whether the metered run fits, by what the same method took in an earlier case."""
        before = [cell for cell in self.cells if (cell.method, cell.batch) == (name, case.together)]
        slowest = max((cell.metered_s / cell.tokens_per_row for cell in before), default=0.0)
        return self.left_s > slowest * case.num_new * case.num_prompts / case.together

    def _write(self, name: str, case: Case) -> tuple[Written, float]:
        prompts = self.made.prompts(case.num_prompts, self.prompt_len)
        return timed(lambda: self.methods[name].write(prompts, case.num_new, case.together), self.device)

    def _metered(self, name: str, case: Case) -> Cell:
        method, prompts = self.methods[name], self.made.prompts(case.num_prompts, self.prompt_len)
        # Whatever is done but once is done here, outside of all numbers.
        method.write(prompts[: case.together], min(8, case.num_new), case.together)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        with Meter(self.made.pair, method) as meter:
            written, seconds = self._write(name, case)
        spent = {part: value / seconds for part, value in meter.seconds().items()}
        peak = torch.cuda.max_memory_allocated(self.device) / 1e6 if self.device.type == "cuda" else None
        found, tokens = written.acceptance, case.num_prompts * case.num_new
        rounds = found.num_rounds if found else meter.num_passes["target"] * case.together
        tested = found.num_accepted + found.num_mismatches - found.num_kept if found else 0
        return Cell(
            engine=method.engine,
            method=name,
            batch=case.together,
            num_prompts=case.num_prompts,
            new_tokens=case.num_new,
            tokens_per_round=tokens / rounds,
            acceptance=(found.num_accepted - found.num_kept) / tested if found and tested else None,
            keep_rate=found.keep_rate if found else None,
            identical_to_target=written.output_ids == [self.made.target_text(p, case.num_new) for p in prompts],
            share=spent | {"rest": 1.0 - sum(spent.values())},
            passes=dict(meter.num_passes),
            weights_read_gb=meter.weight_bytes / 1e9,
            peak_mb=peak,
            metered_s=seconds,
        )
