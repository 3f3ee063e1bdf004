"""Learning: from a policy and a log to a better policy."""

from consequential.learning.algorithm import Collector, Learner, Step, consequential_learning
from consequential.learning.constraints import Constraint
from consequential.learning.fitting import Fitted, UnexploredLogError, fit_policy
from consequential.learning.prediction import FitFairPredictor, FitPredictor, PredictionUpdate
from consequential.learning.sequences import (
    Aggregated,
    Iterative,
    LastSteps,
    Sequence,
    sequence_named,
)
from consequential.learning.steps import GradientStep, PreconditionedStep, StepRule
from consequential.learning.update import Update, UpdatePolicy

__all__ = [
    "Aggregated",
    "Collector",
    "Constraint",
    "FitFairPredictor",
    "FitPredictor",
    "Fitted",
    "GradientStep",
    "Iterative",
    "LastSteps",
    "Learner",
    "PreconditionedStep",
    "PredictionUpdate",
    "Sequence",
    "Step",
    "StepRule",
    "UnexploredLogError",
    "Update",
    "UpdatePolicy",
    "consequential_learning",
    "fit_policy",
    "sequence_named",
]
