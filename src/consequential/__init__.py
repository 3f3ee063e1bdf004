"""Learn to decide when labels exist only for the people you accept, and do it fairly."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # what editors and type checkers see
    from consequential import worlds as worlds
    from consequential.accelerated import DifferentiablePolicy as DifferentiablePolicy
    from consequential.accelerated import UpdateDifferentiable as UpdateDifferentiable
    from consequential.baseline import Baselines as Baselines
    from consequential.baseline import baselines as baselines
    from consequential.estimator import BoundNotShownError as BoundNotShownError
    from consequential.estimator import FairPolicyLearner as FairPolicyLearner
    from consequential.evaluation import Comparison as Comparison
    from consequential.evaluation import Estimate as Estimate
    from consequential.evaluation import Evaluation as Evaluation
    from consequential.evaluation import GroupMetrics as GroupMetrics
    from consequential.evaluation import Overlap as Overlap
    from consequential.evaluation import Sensitivity as Sensitivity
    from consequential.evaluation import WinnersCurseWarning as WinnersCurseWarning
    from consequential.evaluation import compare as compare
    from consequential.evaluation import cross_fitted_propensities as cross_fitted_propensities
    from consequential.evaluation import evaluate as evaluate
    from consequential.evaluation import group_metrics as group_metrics
    from consequential.evaluation import mean_sequence as mean_sequence
    from consequential.evaluation import overlap as overlap
    from consequential.evaluation import sensitivity as sensitivity
    from consequential.evaluation import sup_t_quantile as sup_t_quantile
    from consequential.evaluation import utility_sequence as utility_sequence
    from consequential.learning import Aggregated as Aggregated
    from consequential.learning import FitFairPredictor as FitFairPredictor
    from consequential.learning import FitPredictor as FitPredictor
    from consequential.learning import GradientStep as GradientStep
    from consequential.learning import Iterative as Iterative
    from consequential.learning import LastSteps as LastSteps
    from consequential.learning import PreconditionedStep as PreconditionedStep
    from consequential.learning import Step as Step
    from consequential.learning import UpdatePolicy as UpdatePolicy
    from consequential.learning import consequential_learning as consequential_learning
    from consequential.log import DecisionLog as DecisionLog
    from consequential.log import DecisionLogError as DecisionLogError
    from consequential.log import EstimatedPropensity as EstimatedPropensity
    from consequential.log import LogScan as LogScan
    from consequential.objective import BalanceHeuristic as BalanceHeuristic
    from consequential.objective import BenefitParity as BenefitParity
    from consequential.objective import Clipped as Clipped
    from consequential.objective import DemographicParity as DemographicParity
    from consequential.objective import DoublyRobust as DoublyRobust
    from consequential.objective import EqualisedOdds as EqualisedOdds
    from consequential.objective import EqualOpportunity as EqualOpportunity
    from consequential.objective import Fairness as Fairness
    from consequential.objective import InversePropensity as InversePropensity
    from consequential.objective import Objective as Objective
    from consequential.objective import PredictiveParity as PredictiveParity
    from consequential.objective import SelfNormalised as SelfNormalised
    from consequential.objective import Unweighted as Unweighted
    from consequential.objective import effective_sample_size as effective_sample_size
    from consequential.objective import fairness_named as fairness_named
    from consequential.planning import Plan as Plan
    from consequential.planning import plan as plan
    from consequential.policies import AcceptAll as AcceptAll
    from consequential.policies import DecisionRule as DecisionRule
    from consequential.policies import EveryNth as EveryNth
    from consequential.policies import Link as Link
    from consequential.policies import Logged as Logged
    from consequential.policies import Mixture as Mixture
    from consequential.policies import Policy as Policy
    from consequential.policies import PolicyError as PolicyError
    from consequential.policies import RejectAll as RejectAll
    from consequential.policies import ThresholdPolicy as ThresholdPolicy
    from consequential.policies import load_policy as load_policy
    from consequential.policies import logistic_model as logistic_model
    from consequential.policies import policy_from_model as policy_from_model
    from consequential.policies import save_policy as save_policy
    from consequential.simulation import LearnToDecide as LearnToDecide
    from consequential.simulation import LearnToPredict as LearnToPredict
    from consequential.simulation import Runs as Runs
    from consequential.simulation import RunsError as RunsError
    from consequential.simulation import Strategy as Strategy
    from consequential.simulation import paper_strategies as paper_strategies
    from consequential.simulation import simulate as simulate
    from consequential.tradeoff import Frontier as Frontier
    from consequential.tradeoff import frontier as frontier
    from consequential.workers import cluster as cluster

# Public name -> where it lives. Nothing below is imported until it is asked for, so that
# `import consequential` costs next to nothing.
_HOME = {
    "DecisionLog": "log",
    "DecisionLogError": "log",
    "LogScan": "log",
    "EstimatedPropensity": "log",
    **dict.fromkeys(
        [
            "AcceptAll",
            "DecisionRule",
            "EveryNth",
            "Link",
            "Logged",
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
            "DoublyRobust",
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
            "Comparison",
            "Estimate",
            "Evaluation",
            "GroupMetrics",
            "Overlap",
            "Sensitivity",
            "WinnersCurseWarning",
            "compare",
            "cross_fitted_propensities",
            "evaluate",
            "group_metrics",
            "mean_sequence",
            "overlap",
            "sensitivity",
            "sup_t_quantile",
            "utility_sequence",
        ],
        "evaluation",
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
    **dict.fromkeys(["Plan", "plan"], "planning"),
    **dict.fromkeys(["Baselines", "baselines"], "baseline"),
    **dict.fromkeys(["Frontier", "frontier"], "tradeoff"),
    "BoundNotShownError": "estimator",
    "FairPolicyLearner": "estimator",
    "cluster": "workers",
    **dict.fromkeys(["DifferentiablePolicy", "UpdateDifferentiable"], "accelerated"),
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
