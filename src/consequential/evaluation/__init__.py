"""Evaluation: what a policy does to whom."""

from consequential.evaluation.comparison import Comparison, compare
from consequential.evaluation.crossfit import cross_fitted_propensities
from consequential.evaluation.estimate import Estimate
from consequential.evaluation.judged import WinnersCurseWarning
from consequential.evaluation.metrics import Metrics, Population
from consequential.evaluation.offpolicy import Evaluation, evaluate
from consequential.evaluation.overlap import Overlap, overlap
from consequential.evaluation.sequences import mean_sequence
from consequential.evaluation.simultaneous import sup_t_quantile

__all__ = [
    "Comparison",
    "Estimate",
    "Evaluation",
    "Metrics",
    "Overlap",
    "Population",
    "WinnersCurseWarning",
    "compare",
    "cross_fitted_propensities",
    "evaluate",
    "mean_sequence",
    "overlap",
    "sup_t_quantile",
]
