"""The log of decisions."""

from consequential.log.checks import DecisionLogError
from consequential.log.decision_log import DecisionLog

__all__ = ["DecisionLog", "DecisionLogError"]
