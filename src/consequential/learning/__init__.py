"""Learning: from a log to a fair policy, as a scikit-learn user does it."""

from consequential.learning.bounds import BoundNotShownError, Safety
from consequential.learning.constraints import Constraint, GapBound, acceptance_bounds
from consequential.learning.fitting import Fitted, UnexploredLogError, fit_policy
from consequential.learning.learner import FairPolicyLearner

__all__ = [
    "BoundNotShownError",
    "Constraint",
    "FairPolicyLearner",
    "Fitted",
    "GapBound",
    "Safety",
    "UnexploredLogError",
    "acceptance_bounds",
    "fit_policy",
]
