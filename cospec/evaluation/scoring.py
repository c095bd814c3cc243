"""Judging what was decoded: several texts at once where the scorer allows it, and a stop where scoring itself fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cospec.evaluation.sample import Sample
from cospec.evaluation.statistics import wilson
from cospec.evaluation.task import EvalTask
from cospec.prompt_rows import PromptRow
from cospec.scoring import Verdict, safe_score
from cospec.scoring.threads import stoppable_threads

#: Fewer samples than this say too little to stop before the end.
ENOUGH = 20


class TooManyFailures(ValueError):
    """The scorer failed on more samples than allowed; all of them have been handed over before."""


def score_all(task: EvalTask, texts: Sequence[str], rows: Sequence[PromptRow], workers: int) -> list[Verdict]:
    """The verdicts in order; in ``workers`` threads where the task's scorer works in processes of its own."""
    jobs = [(text, row.scorer_row()) for text, row in zip(texts, rows, strict=True)]
    if workers == 1 or not task.scores_in_parallel or len(jobs) < 2:
        return [safe_score(task.scorer, *job) for job in jobs]
    with stoppable_threads(workers) as pool:
        return list(pool.map(lambda job: safe_score(task.scorer, *job), jobs))


def rescored(samples: Sequence[Sample], tasks: Sequence[EvalTask], workers: int) -> list[Sample]:
    """The same texts judged by the present scorers, in the same order; samples of other tasks stay as they are."""
    rows = {(task.name, row.id): row for task in tasks for row in task.rows}
    found = list(samples)
    for task in tasks:
        places = [index for index, sample in enumerate(found) if sample.task == task.name]
        wanted = [rows[found[index].key.problem] for index in places]
        verdicts = score_all(task, [found[index].text for index in places], wanted, workers)
        for index, verdict in zip(places, verdicts, strict=True):
            found[index] = found[index].judged(verdict)
    return found


class FailureLimit:
    """Stops a method on a task, of ``total`` samples, whose scoring fails on more than ``share`` of them.

    At the end the share itself decides. Before it, the lower end of its 95 % interval does: the order in which samples
    come, which another batch or a resumed run changes, should not stop a run that would end well.
    """

    def __init__(self, share: float, total: int) -> None:
        self.share, self.total, self.num_seen = share, total, 0
        self._failed: list[Sample] = []

    def add(self, sample: Sample) -> None:
        """Count one sample; `TooManyFailures` above the limit."""
        self.num_seen += 1
        if sample.is_failure:
            self._failed.append(sample)
        num_failed = len(self._failed)
        if self.num_seen == self.total:
            stop = num_failed > self.share * self.total
        else:
            stop = self.num_seen >= ENOUGH and wilson(num_failed, self.num_seen)[0] > self.share
        if stop:
            raise TooManyFailures(self._message())

    def _message(self) -> str:
        last = self._failed[-1]
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(s.verdict for s in self._failed).items())
        return (
            f"the scorer of task {last.task!r} failed on {len(self._failed)} of {self.num_seen} samples under method "
            f"{last.method!r} ({kinds}; {last.id!r}: {last.reason}), more than the allowed share of {self.share:g}: "
            "mend the scorer, or allow more with --max-failed-share"
        )
