"""Evaluation: what a policy does to whom."""

from consequential.evaluation.compare import Comparison, compare
from consequential.evaluation.contradictions import Contradiction, propensity_contradictions
from consequential.evaluation.estimate import Estimate
from consequential.evaluation.evaluate import Evaluation, deployed_gap, evaluate
from consequential.evaluation.groups import GroupMetrics, group_metrics
from consequential.evaluation.overlap import Overlap, overlap
from consequential.evaluation.population import Metrics, Population
from consequential.evaluation.rules import CrossFitted, WinnersCurseWarning, cross_fitted
from consequential.evaluation.sensitivity import Bounds, Sensitivity, sensitivity

__all__ = [
    "Bounds",
    "Comparison",
    "Contradiction",
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
    "cross_fitted",
    "deployed_gap",
    "evaluate",
    "group_metrics",
    "overlap",
    "propensity_contradictions",
    "sensitivity",
]
