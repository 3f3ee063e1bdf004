"""Statistics: further figures of a rule, and what evaluations are made of."""

from consequential.evaluation.any_time import mean_sequence
from consequential.evaluation.contrasts import sup_t_quantile
from consequential.evaluation.cross_fitting import cross_fitted_propensities
from consequential.evaluation.earnings import Earnings, earnings
from consequential.evaluation.evaluate import utility_sequence
from consequential.evaluation.swaps import SwapSet, swap_set

__all__ = [
    "Earnings",
    "SwapSet",
    "cross_fitted_propensities",
    "earnings",
    "mean_sequence",
    "sup_t_quantile",
    "swap_set",
    "utility_sequence",
]
