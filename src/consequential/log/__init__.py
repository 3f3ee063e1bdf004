"""The log of decisions."""

from consequential.log.columns import DecisionLogError
from consequential.log.concerns import data_concerns, propensity_concerns
from consequential.log.decision_log import DecisionLog
from consequential.log.estimation import EstimatedPropensity
from consequential.log.scan import LogScan

__all__ = [
    "DecisionLog",
    "DecisionLogError",
    "EstimatedPropensity",
    "LogScan",
    "data_concerns",
    "propensity_concerns",
]
