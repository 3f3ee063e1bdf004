"""The objective: utility less a fairness penalty, as linear functionals of propensities."""

from consequential.objective.objective import Objective

__all__ = ["Objective"]
