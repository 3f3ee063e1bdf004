"""The paper's two synthetic settings. Formulas and constants: docs/notation.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri

from consequential.worlds.score import DensityWorld
from consequential.worlds.world import Parameters

if TYPE_CHECKING:
    from consequential.kernels.alias_table import AliasTable

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Normal:
    """Normal scores, truncated to an interval; one mean a group."""

    means: tuple[float, ...]
    deviation: float
    bounds: tuple[float, float]

    def density(self, score: Floats) -> Floats:
        standard = (score[:, None] - np.array(self.means)) / self.deviation
        inside = (score >= self.bounds[0]) & (score <= self.bounds[1])
        values: Floats = np.exp(-0.5 * standard**2) * inside[:, None]
        return values

    def sample(self, group: NDArray[np.intp], rng: np.random.Generator) -> Floats:
        mean = np.array(self.means)[group]
        low, high = (ndtr((bound - mean) / self.deviation) for bound in self.bounds)
        quantile = low + (high - low) * rng.random(len(group))
        return np.asarray(mean + self.deviation * ndtri(quantile), dtype=np.float64)


class SyntheticWorld(DensityWorld):
    """A paper setting: two equally frequent groups with normal scores."""

    scores: _Normal
    theta: tuple[float, float]

    def density(self, score: Floats) -> Floats:
        """Return the (unnormalised) density of the score in each group."""
        return self.scores.density(score)

    def propose(self, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.intp]]:
        """Draw n people."""
        group = rng.integers(self.n_groups, size=n)
        return self.scores.sample(group, rng)[:, None], group

    def as_alias_table(self) -> AliasTable:
        """Return 2^13 cells a group: constant density within one, label probabilities linear.

        Both errors are of second order in a cell's width: label probabilities are off by less
        than 2e-5, densities relative to themselves by less than 3e-6 within four deviations.
        """
        from consequential.kernels.alias_table import alias_table

        population = self.cells(2**13)
        edges = np.linspace(*self.bounds, 2**13 + 1)
        probability = self.score_probability(edges)
        return alias_table(
            population.mass.T.ravel(),
            np.tile(edges[:-1], self.n_groups)[:, None],
            np.repeat(np.arange(self.n_groups), 2**13),
            np.tile(probability[:-1], self.n_groups),
            width=edges[1] - edges[0],
            label_change=np.tile(np.diff(probability), self.n_groups),
        )

    def initial_theta(self, rng: np.random.Generator) -> Floats:
        """Return the paper's imperfect initial model."""
        return np.array(self.theta)


class FirstSetting(SyntheticWorld):
    """One threshold is optimal, and a harsh start keeps a predictor from finding it."""

    name = "first setting"
    bounds = (-0.8, 0.8)
    scores = _Normal((0.5, -0.5), 1.0, bounds)
    theta = (-3.0, 5.0)
    parameters = Parameters(
        n_proposals=256 * 128, n_iterations=128, batch_size=256, learning_rate=1.0
    )

    def __init__(self) -> None:
        # the paper chooses the cost so that the optimal cut is at -0.3
        self.cost = float(self.score_probability(np.array([-0.3]))[0])

    def score_probability(self, score: Floats) -> Floats:
        """Return the monotone, ill-calibrated curve of the first setting."""
        end, width, height, shift = 0.8, 30.0, 3.0, 0.1
        bump = height * np.exp(-width * (score - end - shift) ** 4)
        curve: Floats = (np.tan(score) + np.tan(end) + bump) / (2 * np.tan(end) + height)
        return curve


class SecondSetting(SyntheticWorld):
    """Two intervals are worth accepting; a predictor that starts at one never sees the other."""

    name = "second setting"
    cost = 0.55
    # eight deviations beyond the means: the mass outside is below 1e-14
    bounds = (-1.5 - 8 * 3.5, 1.5 + 8 * 3.5)
    scores = _Normal((1.5, -1.5), 3.5, (-np.inf, np.inf))
    theta = (-3.5, 0.6)
    parameters = Parameters(
        n_proposals=128 * 32,
        n_iterations=32,
        batch_size=128,
        learning_rate=0.5,
        decay=0.8,
        decay_every=30,
    )

    def score_probability(self, score: Floats) -> Floats:
        """Return the curve that crosses the cost three times."""
        hill = 0.8 * expit(0.6 * (score + 3)) * expit(-5 * (score - 3))
        return np.asarray(hill + expit(score - 5), dtype=np.float64)


def first_setting() -> FirstSetting:
    """Return the paper's first setting.

    Examples
    --------
    >>> import consequential as cq
    >>> round(cq.worlds.first_setting().cost, 4)
    0.1424
    """
    return FirstSetting()


def second_setting() -> SecondSetting:
    """Return the paper's second setting.

    Examples
    --------
    >>> import consequential as cq
    >>> round(cq.worlds.second_setting().optimal().utility, 4)
    0.092
    """
    return SecondSetting()
