"""Worlds: where people come from."""

from consequential.worlds.lending import lending
from consequential.worlds.optimum import Optimum, PiecewisePolicy
from consequential.worlds.score import DensityWorld, ScoreWorld
from consequential.worlds.synthetic import drift, first_setting, second_setting
from consequential.worlds.tables import TableWorld, compas, from_frame, german, taiwan
from consequential.worlds.world import Parameters, People, World

__all__ = [
    "DensityWorld",
    "Optimum",
    "Parameters",
    "People",
    "PiecewisePolicy",
    "ScoreWorld",
    "TableWorld",
    "World",
    "compas",
    "drift",
    "first_setting",
    "from_frame",
    "german",
    "lending",
    "second_setting",
    "taiwan",
]
