"""Evaluation: what a policy does to whom."""

from consequential.evaluation.comparison import Comparison, compare
from consequential.evaluation.crossfit import cross_fitted_propensities
from consequential.evaluation.estimate import Estimate
from consequential.evaluation.judged import WinnersCurseWarning
from consequential.evaluation.metrics import Metrics, Population
from consequential.evaluation.offpolicy import Evaluation, evaluate
from consequential.evaluation.sequences import mean_sequence
from consequential.evaluation.simultaneous import sup_t_quantile

__all__ = [
    "Comparison",
    "Estimate",
    "Evaluation",
    "Metrics",
    "Population",
    "WinnersCurseWarning",
    "compare",
    "cross_fitted_propensities",
    "evaluate",
    "mean_sequence",
    "sup_t_quantile",
]
