"""The scikit-learn face."""

from consequential.estimator.learner import FairPolicyLearner
from consequential.estimator.safety import BoundNotShownError, Safety

__all__ = ["BoundNotShownError", "FairPolicyLearner", "Safety"]
