"""Worlds: where people come from."""

from consequential.lab.worlds.lending import lending
from consequential.lab.worlds.optimum import Optimum, PiecewisePolicy
from consequential.lab.worlds.score import DensityWorld, ScoreWorld
from consequential.lab.worlds.synthetic import drift, first_setting, second_setting
from consequential.lab.worlds.tables import TableWorld, compas, from_frame, german, taiwan
from consequential.lab.worlds.world import Parameters, People, World

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
