"""Learn to decide when labels exist only for the people you accept, and do it fairly."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from consequential import worlds as worlds
    from consequential.log import DecisionLog as DecisionLog
    from consequential.log import DecisionLogError as DecisionLogError

# Public name -> where it lives. Nothing below is imported until it is asked for, so that
# `import consequential` costs next to nothing.
_HOME = {
    "DecisionLog": "log",
    "DecisionLogError": "log",
    **dict.fromkeys(
        [
            "AcceptAll",
            "DecisionRule",
            "EveryNth",
            "Link",
            "Mixture",
            "Policy",
            "PolicyError",
            "RejectAll",
            "ThresholdPolicy",
            "load_policy",
            "logistic_model",
            "policy_from_model",
            "save_policy",
        ],
        "policies",
    ),
    **dict.fromkeys(
        [
            "BalanceHeuristic",
            "BenefitParity",
            "Clipped",
            "DemographicParity",
            "EqualOpportunity",
            "EqualisedOdds",
            "Fairness",
            "InversePropensity",
            "Objective",
            "PredictiveParity",
            "SelfNormalised",
            "Unweighted",
            "effective_sample_size",
            "fairness_named",
        ],
        "objective",
    ),
    **dict.fromkeys(
        [
            "Aggregated",
            "FitFairPredictor",
            "FitPredictor",
            "GradientStep",
            "Iterative",
            "LastSteps",
            "PreconditionedStep",
            "Step",
            "UpdatePolicy",
            "consequential_learning",
        ],
        "learning",
    ),
    **dict.fromkeys(
        [
            "LearnToDecide",
            "LearnToPredict",
            "Runs",
            "RunsError",
            "Strategy",
            "paper_strategies",
            "simulate",
        ],
        "simulation",
    ),
}
_PACKAGES = ("worlds",)

__all__ = ["__version__", *_HOME, *_PACKAGES]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"consequential.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"consequential.{_HOME[name]}"), name)
    raise AttributeError(f"module 'consequential' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
