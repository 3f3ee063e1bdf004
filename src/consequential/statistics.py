"""Statistics: what evaluations are made of, for analyses of your own."""

from consequential.evaluation.bounds import mean_sequence
from consequential.evaluation.contrasts import sup_t_quantile
from consequential.evaluation.evaluate import utility_sequence
from consequential.evaluation.rules import cross_fitted_propensities

__all__ = ["cross_fitted_propensities", "mean_sequence", "sup_t_quantile", "utility_sequence"]
