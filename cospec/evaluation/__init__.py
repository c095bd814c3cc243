"""Methods side by side on the same problems: run them, compare them in pairs, print and plot what came out."""

from cospec.evaluation.evaluate import evaluate
from cospec.evaluation.method import EvalSettings, Method
from cospec.evaluation.result import Evaluation, MethodResult, TaskResult
from cospec.evaluation.sample import Sample, SampleKey, SampleTiming
from cospec.evaluation.summary import summary
from cospec.evaluation.task import EvalTask

__all__ = [
    "EvalSettings",
    "EvalTask",
    "Evaluation",
    "Method",
    "MethodResult",
    "Sample",
    "SampleKey",
    "SampleTiming",
    "TaskResult",
    "evaluate",
    "summary",
]
