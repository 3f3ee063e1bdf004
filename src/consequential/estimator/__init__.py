"""The scikit-learn face."""

from consequential.estimator.learner import FairPolicyLearner

__all__ = ["FairPolicyLearner"]
