"""Simulation: strategies in worlds, over seeds and penalties."""

from consequential.lab.simulation.runs import Run, Runs, RunsError
from consequential.lab.simulation.simulate import simulate
from consequential.lab.simulation.strategies import (
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
    "paper_strategies",
    "simulate",
]
