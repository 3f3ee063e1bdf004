"""Evaluation: what a policy does to whom."""

from consequential.evaluation.comparison import Comparison, compare
from consequential.evaluation.contradictions import Contradiction, propensity_contradictions
from consequential.evaluation.crossfit import (
    CrossFitted,
    cross_fitted,
    cross_fitted_propensities,
)
from consequential.evaluation.deployed import deployed_gap
from consequential.evaluation.estimate import Estimate
from consequential.evaluation.groups import GroupMetrics, group_metrics
from consequential.evaluation.judged import WinnersCurseWarning
from consequential.evaluation.metrics import Metrics, Population
from consequential.evaluation.monitoring import utility_sequence
from consequential.evaluation.offpolicy import Evaluation, evaluate
from consequential.evaluation.overlap import Overlap, overlap
from consequential.evaluation.sensitivity import Sensitivity, sensitivity
from consequential.evaluation.sequences import mean_sequence
from consequential.evaluation.simultaneous import sup_t_quantile
from consequential.evaluation.weight_bounds import Bounds

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
    "cross_fitted_propensities",
    "deployed_gap",
    "evaluate",
    "group_metrics",
    "mean_sequence",
    "overlap",
    "propensity_contradictions",
    "sensitivity",
    "sup_t_quantile",
    "utility_sequence",
]
