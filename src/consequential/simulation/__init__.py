"""Simulation: strategies in worlds, over seeds and penalties."""

from consequential.simulation.exploring_strategies import ExploreByPosterior, RefitPolicy
from consequential.simulation.runs import Run, Runs, RunsError, Summary
from consequential.simulation.simulate import simulate
from consequential.simulation.strategies import (
    LearnToDecide,
    LearnToPredict,
    Strategy,
    paper_strategies,
)

__all__ = [
    "ExploreByPosterior",
    "LearnToDecide",
    "LearnToPredict",
    "RefitPolicy",
    "Run",
    "Runs",
    "RunsError",
    "Strategy",
    "Summary",
    "paper_strategies",
    "simulate",
]
