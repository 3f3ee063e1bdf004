"""Learning: from a log to a fair policy, as a scikit-learn user does it."""

from consequential.learning.bounds import BoundNotShownError
from consequential.learning.learner import FairPolicyLearner

__all__ = ["BoundNotShownError", "FairPolicyLearner"]
