"""Objectives: what a policy is worth, as a smooth function of a few linear functionals."""

from consequential.objective.balance import BalanceHeuristic
from consequential.objective.fairness import (
    BenefitParity,
    DemographicParity,
    EqualisedOdds,
    EqualOpportunity,
    Fairness,
    PredictiveParity,
    ShapedFairness,
    benefit_gap,
    benefit_gaps,
    fairness_named,
)
from consequential.objective.functionals import NOBODY, Benefit, Coefficients, Shape, Sums, Tally
from consequential.objective.objective import (
    ROOT_TWO,
    Objective,
    Slopes,
    Whole,
    decided,
    deviations,
)
from consequential.objective.weights import (
    Clipped,
    DoublyRobust,
    InversePropensity,
    SelfNormalised,
    Unweighted,
    Weighting,
    counted_rows,
    effective_sample_size,
)

__all__ = [
    "NOBODY",
    "ROOT_TWO",
    "BalanceHeuristic",
    "Benefit",
    "BenefitParity",
    "Clipped",
    "Coefficients",
    "DemographicParity",
    "DoublyRobust",
    "EqualOpportunity",
    "EqualisedOdds",
    "Fairness",
    "InversePropensity",
    "Objective",
    "PredictiveParity",
    "SelfNormalised",
    "Shape",
    "ShapedFairness",
    "Slopes",
    "Sums",
    "Tally",
    "Unweighted",
    "Weighting",
    "Whole",
    "benefit_gap",
    "benefit_gaps",
    "counted_rows",
    "decided",
    "deviations",
    "effective_sample_size",
    "fairness_named",
]
