"""Learning: from a policy and a log to a better policy."""

from consequential.learning.algorithm import Collector, Learner, TimeStep, consequential_learning
from consequential.learning.constraints import Constraint, GapBound, acceptance_bounds
from consequential.learning.exploring import FitPosterior
from consequential.learning.fitting import Fitted, UnexploredLogError, fit_policy
from consequential.learning.prediction import FitFairPredictor, FitPredictor, PredictionUpdate
from consequential.learning.update import Update, UpdatePolicy

__all__ = [
    "Collector",
    "Constraint",
    "FitFairPredictor",
    "FitPosterior",
    "FitPredictor",
    "Fitted",
    "GapBound",
    "Learner",
    "PredictionUpdate",
    "TimeStep",
    "UnexploredLogError",
    "Update",
    "UpdatePolicy",
    "acceptance_bounds",
    "consequential_learning",
    "fit_policy",
]
