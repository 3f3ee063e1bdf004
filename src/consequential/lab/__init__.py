"""The lab: worlds, Algorithm 1, simulations and the paper's experiments.

What most programs need (`worlds`, `simulate`, `paper_strategies`, `Runs`, `UpdatePolicy` and
`consequential_learning`) are names of `consequential` itself; the other strategies and learners,
and the parts that they are made of, are found here.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors and type checkers see
    from consequential.lab import differentiable as differentiable
    from consequential.lab import worlds as worlds
    from consequential.lab.algorithm import FitFairPredictor as FitFairPredictor
    from consequential.lab.algorithm import FitPosterior as FitPosterior
    from consequential.lab.algorithm import FitPredictor as FitPredictor
    from consequential.lab.algorithm import sequences as sequences
    from consequential.lab.algorithm import steps as steps
    from consequential.lab.simulation import ExploreByPosterior as ExploreByPosterior
    from consequential.lab.simulation import LearnToDecide as LearnToDecide
    from consequential.lab.simulation import LearnToPredict as LearnToPredict
    from consequential.lab.simulation import RunsError as RunsError
    from consequential.lab.simulation import Strategy as Strategy

# Where these names live; imported when they are asked for, since worlds need no simulation.
_HOME = {
    "ExploreByPosterior": "simulation",
    "FitFairPredictor": "algorithm",
    "FitPosterior": "algorithm",
    "FitPredictor": "algorithm",
    "LearnToDecide": "simulation",
    "LearnToPredict": "simulation",
    "RunsError": "simulation",
    "Strategy": "simulation",
}
_MODULES = {
    "differentiable": "differentiable",
    "sequences": "algorithm.sequences",
    "steps": "algorithm.steps",
    "worlds": "worlds",
}

__all__ = [*_HOME, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"consequential.lab.{_MODULES[name]}")
    if name in _HOME:
        return getattr(importlib.import_module(f"consequential.lab.{_HOME[name]}"), name)
    raise AttributeError(f"module 'consequential.lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
