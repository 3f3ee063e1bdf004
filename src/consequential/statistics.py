"""Statistics: what evaluations are made of, for analyses of your own."""

from consequential.evaluation.confidence_sequences import mean_sequence, utility_sequence
from consequential.evaluation.contrasts import sup_t_quantile
from consequential.evaluation.crossfit import cross_fitted_propensities

__all__ = ["cross_fitted_propensities", "mean_sequence", "sup_t_quantile", "utility_sequence"]
