"""The trade-off between utility and fairness, with bands that hold at once."""

from consequential.tradeoff.frontier import frontier
from consequential.tradeoff.points import Frontier, Point

__all__ = ["Frontier", "Point", "frontier"]
