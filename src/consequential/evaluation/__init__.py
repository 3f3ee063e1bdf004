"""Evaluation: what a policy does to whom."""

from consequential.evaluation.compare import Comparison, compare
from consequential.evaluation.cross_fitting import CrossFitted, WinnersCurseWarning
from consequential.evaluation.estimate import Estimate
from consequential.evaluation.evaluate import Evaluation, evaluate
from consequential.evaluation.groups import GroupMetrics, group_metrics
from consequential.evaluation.overlap import Overlap, overlap
from consequential.evaluation.population import Metrics, Population
from consequential.evaluation.sensitivity import Sensitivity, sensitivity

__all__ = [
    "Comparison",
    "CrossFitted",
    "Estimate",
    "Evaluation",
    "GroupMetrics",
    "Metrics",
    "Overlap",
    "Population",
    "Sensitivity",
    "WinnersCurseWarning",
    "compare",
    "evaluate",
    "group_metrics",
    "overlap",
    "sensitivity",
]
