"""Estimator: learning from a log as a scikit-learn user does it."""

from consequential.estimator.learner import FairPolicyLearner
from consequential.estimator.safety import BoundNotShownError, Safety

__all__ = ["BoundNotShownError", "FairPolicyLearner", "Safety"]
