"""Algorithm 1 of the paper: collect, learn, deploy, again; and the learners it runs with."""

from consequential.lab.algorithm.algorithm import consequential_learning
from consequential.lab.algorithm.exploring import FitPosterior
from consequential.lab.algorithm.prediction import FitFairPredictor, FitPredictor, PredictionUpdate
from consequential.lab.algorithm.update import UpdatePolicy

__all__ = [
    "FitFairPredictor",
    "FitPosterior",
    "FitPredictor",
    "PredictionUpdate",
    "UpdatePolicy",
    "consequential_learning",
]
