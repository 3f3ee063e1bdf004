"""Simulation: strategies in worlds, over seeds and penalties."""

from consequential.simulation.runs import Run, Runs, RunsError, Summary
from consequential.simulation.simulate import simulate
from consequential.simulation.strategies import (
    ExploreByPosterior,
    LearnToDecide,
    LearnToPredict,
    Strategy,
    paper_strategies,
)

__all__ = [
    "ExploreByPosterior",
    "LearnToDecide",
    "LearnToPredict",
    "Run",
    "Runs",
    "RunsError",
    "Strategy",
    "Summary",
    "paper_strategies",
    "simulate",
]
