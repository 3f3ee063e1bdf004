"""Learn to decide when labels exist only for the people you accept, and do it fairly."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # what editors and type checkers see
    from consequential import lab as lab
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
    from consequential.evaluation import statistics as statistics
    from consequential.lab import worlds as worlds
    from consequential.lab.algorithm import UpdatePolicy as UpdatePolicy
    from consequential.lab.algorithm import consequential_learning as consequential_learning
    from consequential.lab.simulation import Runs as Runs
    from consequential.lab.simulation import paper_strategies as paper_strategies
    from consequential.lab.simulation import simulate as simulate
    from consequential.learning import BoundNotShownError as BoundNotShownError
    from consequential.learning import FairPolicyLearner as FairPolicyLearner
    from consequential.log import DecisionLog as DecisionLog
    from consequential.log import DecisionLogError as DecisionLogError
    from consequential.log import EstimatedPropensity as EstimatedPropensity
    from consequential.log import LogScan as LogScan
    from consequential.objective import Objective as Objective
    from consequential.objective import fairness as fairness
    from consequential.objective import weightings as weightings
    from consequential.planning import Plan as Plan
    from consequential.planning import plan as plan
    from consequential.policy import AcceptAll as AcceptAll
    from consequential.policy import DecisionRule as DecisionRule
    from consequential.policy import FeatureSummary as FeatureSummary
    from consequential.policy import Logged as Logged
    from consequential.policy import Mixture as Mixture
    from consequential.policy import Policy as Policy
    from consequential.policy import PolicyError as PolicyError
    from consequential.policy import PosteriorPolicy as PosteriorPolicy
    from consequential.policy import RejectAll as RejectAll
    from consequential.policy import ThresholdPolicy as ThresholdPolicy
    from consequential.policy import links as links
    from consequential.policy import load_policy as load_policy
    from consequential.policy import logistic_model as logistic_model
    from consequential.policy import policy_digest as policy_digest
    from consequential.policy import policy_from_json as policy_from_json
    from consequential.policy import policy_from_model as policy_from_model
    from consequential.policy import policy_to_json as policy_to_json
    from consequential.policy import save_policy as save_policy
    from consequential.policy.curves import Curves as Curves
    from consequential.tradeoff import Baselines as Baselines
    from consequential.tradeoff import Frontier as Frontier
    from consequential.tradeoff import baselines as baselines
    from consequential.tradeoff import frontier as frontier
    from consequential.workers import cluster as cluster

# Where the public names live. Nothing is imported until it is asked for, so that
# `import consequential` costs next to nothing.
_NAMES = {
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
    "lab.algorithm": [
        "UpdatePolicy",
        "consequential_learning",
    ],
    "lab.simulation": [
        "Runs",
        "paper_strategies",
        "simulate",
    ],
    "learning": [
        "BoundNotShownError",
        "FairPolicyLearner",
    ],
    "log": [
        "DecisionLog",
        "DecisionLogError",
        "EstimatedPropensity",
        "LogScan",
    ],
    "objective": [
        "Objective",
    ],
    "planning": [
        "Plan",
        "plan",
    ],
    "policy": [
        "AcceptAll",
        "DecisionRule",
        "FeatureSummary",
        "Logged",
        "Mixture",
        "Policy",
        "PolicyError",
        "PosteriorPolicy",
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
    "policy.curves": ["Curves"],  # a policy needs no scikit-learn
    "tradeoff": [
        "Baselines",
        "Frontier",
        "baselines",
        "frontier",
    ],
    "workers": [
        "cluster",
    ],
}
_HOME = {name: package for package, names in _NAMES.items() for name in names}
_MODULES = {
    "fairness": "objective.fairness",
    "lab": "lab",
    "links": "policy.links",
    "statistics": "evaluation.statistics",
    "weightings": "objective.weightings",
    "worlds": "lab.worlds",
}

# What needs Numba is listed where it is installed; asked for without it, it says what to install.
_LISTED = set(_HOME)
if importlib.util.find_spec("numba") is None:
    _LISTED -= {*_NAMES["lab.algorithm"], *_NAMES["lab.simulation"]}

__all__ = ["__version__", *sorted(_LISTED), *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"consequential.{_MODULES[name]}")
    if name in _HOME:
        return getattr(importlib.import_module(f"consequential.{_HOME[name]}"), name)
    raise AttributeError(f"module 'consequential' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
