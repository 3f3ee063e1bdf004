"""The trade-off between utility and fairness, and how the usual ways do on the same log."""

from consequential.tradeoff.baseline import Baselines, baselines
from consequential.tradeoff.frontier import frontier
from consequential.tradeoff.points import Frontier

__all__ = ["Baselines", "Frontier", "baselines", "frontier"]
