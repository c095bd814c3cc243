"""Labellers: what a mismatch is worth, for the supervised warm-up."""

from cospec.labels.record import MismatchLabel, RolloutLabels, labels_from_json
from cospec.labels.report import Complementarity, complementarity

__all__ = ["Complementarity", "MismatchLabel", "RolloutLabels", "complementarity", "labels_from_json"]
