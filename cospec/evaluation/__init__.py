"""Methods side by side on the same prompts: run them, compare them in pairs, print and plot what came out."""

from cospec.evaluation.evaluate import Evaluation, MethodResult, evaluate
from cospec.evaluation.method import EvalSettings, Method, Sample
from cospec.evaluation.summary import summary

__all__ = ["EvalSettings", "Evaluation", "Method", "MethodResult", "Sample", "evaluate", "summary"]
