"""`cospec report`: evaluations, training runs and rollout records as one self-contained page."""

from cospec.evaluation.report.find import Findings, find_runs
from cospec.evaluation.report.page import PAGE, Report, ReportOptions, build_report

__all__ = ["PAGE", "Findings", "Report", "ReportOptions", "build_report", "find_runs"]
