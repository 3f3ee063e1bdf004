"""Learning: from a log to the parameters of a policy."""

from consequential.learning.constraints import Constraint, GapBound, acceptance_bounds
from consequential.learning.fitting import Fitted, UnexploredLogError, fit_policy

__all__ = [
    "Constraint",
    "Fitted",
    "GapBound",
    "UnexploredLogError",
    "acceptance_bounds",
    "fit_policy",
]
