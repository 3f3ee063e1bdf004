"""Evaluation: what a policy does to whom."""

from consequential.evaluation.compare import Comparison, compare
from consequential.evaluation.contradictions import propensity_contradictions
from consequential.evaluation.cross_fitting import CrossFitted, WinnersCurseWarning, cross_fitted
from consequential.evaluation.earnings import Earnings, earnings
from consequential.evaluation.effects import feature_effects
from consequential.evaluation.estimate import Estimate
from consequential.evaluation.evaluate import Evaluation, deployed_gap, evaluate
from consequential.evaluation.groups import GroupMetrics, group_metrics
from consequential.evaluation.overlap import Overlap, overlap
from consequential.evaluation.population import Metrics, Population
from consequential.evaluation.sensitivity import Sensitivity, sensitivity
from consequential.evaluation.swaps import swap_set

__all__ = [
    "Comparison",
    "CrossFitted",
    "Earnings",
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
    "earnings",
    "evaluate",
    "feature_effects",
    "group_metrics",
    "overlap",
    "propensity_contradictions",
    "sensitivity",
    "swap_set",
]
