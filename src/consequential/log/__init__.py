"""The log of decisions."""

from consequential.log.columns import DecisionLogError
from consequential.log.decision_log import DecisionLog
from consequential.log.estimation import EstimatedPropensity
from consequential.log.scan import LogScan

__all__ = ["DecisionLog", "DecisionLogError", "EstimatedPropensity", "LogScan"]
