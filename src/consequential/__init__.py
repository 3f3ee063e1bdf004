"""Learn to decide when labels exist only for the people you accept, and do it fairly."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # what editors and type checkers see
    from consequential import accelerated as accelerated
    from consequential import fairness as fairness
    from consequential import links as links
    from consequential import sequences as sequences
    from consequential import statistics as statistics
    from consequential import steps as steps
    from consequential import weightings as weightings
    from consequential import worlds as worlds
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
    from consequential.evaluation import evaluate as evaluate
    from consequential.evaluation import group_metrics as group_metrics
    from consequential.evaluation import overlap as overlap
    from consequential.evaluation import sensitivity as sensitivity
    from consequential.learning.algorithm import consequential_learning as consequential_learning
    from consequential.learning.exploring import FitPosterior as FitPosterior
    from consequential.learning.prediction import FitFairPredictor as FitFairPredictor
    from consequential.learning.prediction import FitPredictor as FitPredictor
    from consequential.learning.update import UpdatePolicy as UpdatePolicy
    from consequential.log import DecisionLog as DecisionLog
    from consequential.log import DecisionLogError as DecisionLogError
    from consequential.log import EstimatedPropensity as EstimatedPropensity
    from consequential.log import LogScan as LogScan
    from consequential.objective import Objective as Objective
    from consequential.planning import Plan as Plan
    from consequential.planning import plan as plan
    from consequential.policies import AcceptAll as AcceptAll
    from consequential.policies import Curves as Curves
    from consequential.policies import DecisionRule as DecisionRule
    from consequential.policies import FeatureSummary as FeatureSummary
    from consequential.policies import Logged as Logged
    from consequential.policies import Mixture as Mixture
    from consequential.policies import Policy as Policy
    from consequential.policies import PolicyError as PolicyError
    from consequential.policies import PosteriorPolicy as PosteriorPolicy
    from consequential.policies import Preparation as Preparation
    from consequential.policies import Reason as Reason
    from consequential.policies import RejectAll as RejectAll
    from consequential.policies import ThresholdPolicy as ThresholdPolicy
    from consequential.policies import load_policy as load_policy
    from consequential.policies import logistic_model as logistic_model
    from consequential.policies import policy_digest as policy_digest
    from consequential.policies import policy_from_json as policy_from_json
    from consequential.policies import policy_from_model as policy_from_model
    from consequential.policies import policy_to_json as policy_to_json
    from consequential.policies import save_policy as save_policy
    from consequential.simulation import ExploreByPosterior as ExploreByPosterior
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

# Where the public names live. Nothing is imported until it is asked for, so that
# `import consequential` costs next to nothing.
_NAMES = {
    "log": ["DecisionLog", "DecisionLogError", "EstimatedPropensity", "LogScan"],
    "policies": [
        "AcceptAll",
        "Curves",
        "DecisionRule",
        "FeatureSummary",
        "Logged",
        "Mixture",
        "Policy",
        "PolicyError",
        "PosteriorPolicy",
        "Preparation",
        "Reason",
        "RejectAll",
        "ThresholdPolicy",
        "load_policy",
        "logistic_model",
        "policy_digest",
        "policy_from_json",
        "policy_from_model",
        "policy_to_json",
        "save_policy",
    ],
    "objective": ["Objective"],
    "evaluation": [
        "Comparison",
        "Estimate",
        "Evaluation",
        "GroupMetrics",
        "Overlap",
        "Sensitivity",
        "WinnersCurseWarning",
        "compare",
        "evaluate",
        "group_metrics",
        "overlap",
        "sensitivity",
    ],
    "learning.algorithm": ["consequential_learning"],
    "learning.exploring": ["FitPosterior"],
    "learning.prediction": ["FitFairPredictor", "FitPredictor"],
    "learning.update": ["UpdatePolicy"],
    "estimator": ["BoundNotShownError", "FairPolicyLearner"],
    "tradeoff": ["Frontier", "frontier"],
    "planning": ["Plan", "plan"],
    "baseline": ["Baselines", "baselines"],
    "simulation": [
        "ExploreByPosterior",
        "LearnToDecide",
        "LearnToPredict",
        "Runs",
        "RunsError",
        "Strategy",
        "paper_strategies",
        "simulate",
    ],
    "workers": ["cluster"],
}
_HOME = {name: package for package, names in _NAMES.items() for name in names}
_MODULES = (
    "accelerated",
    "fairness",
    "links",
    "sequences",
    "statistics",
    "steps",
    "weightings",
    "worlds",
)

__all__ = ["__version__", *_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"consequential.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"consequential.{_HOME[name]}"), name)
    raise AttributeError(f"module 'consequential' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
