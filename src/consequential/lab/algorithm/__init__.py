"""Algorithm 1 of the paper: collect, learn, deploy, again; and the learners it runs with."""

from consequential.lab.algorithm.algorithm import (
    Collector,
    Learner,
    TimeStep,
    consequential_learning,
)
from consequential.lab.algorithm.exploring import FitPosterior
from consequential.lab.algorithm.prediction import FitFairPredictor, FitPredictor, PredictionUpdate
from consequential.lab.algorithm.update import Update, UpdatePolicy

__all__ = [
    "Collector",
    "FitFairPredictor",
    "FitPosterior",
    "FitPredictor",
    "Learner",
    "PredictionUpdate",
    "TimeStep",
    "Update",
    "UpdatePolicy",
    "consequential_learning",
]
