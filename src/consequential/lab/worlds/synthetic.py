"""Synthetic settings: the paper's two, and one that drifts. Formulas: docs/mathematics.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr, ndtri

from consequential.lab.worlds.score import DensityWorld
from consequential.lab.worlds.world import Parameters, World

if TYPE_CHECKING:
    from consequential.lab.kernels.alias_table import AliasTable

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NormalScores:
    """Normal scores, truncated to an interval; one mean per group."""

    means: tuple[float, ...]
    deviation: float
    bounds: tuple[float, float]

    def density(self, score: Floats) -> Floats:
        """Return the (unnormalised) density of the score, one column per group."""
        standard = (score[:, None] - np.array(self.means)) / self.deviation
        inside = (score >= self.bounds[0]) & (score <= self.bounds[1])
        values: Floats = np.exp(-0.5 * standard**2) * inside[:, None]
        return values

    def sample(self, group: NDArray[np.intp], rng: np.random.Generator) -> Floats:
        """Draw a score for each person of these groups."""
        mean = np.array(self.means)[group]
        low, high = (ndtr((bound - mean) / self.deviation) for bound in self.bounds)
        quantile = low + (high - low) * rng.random(len(group))
        return np.asarray(mean + self.deviation * ndtri(quantile), dtype=np.float64)


class SyntheticWorld(DensityWorld):
    """A paper setting: two equally frequent groups with normal scores."""

    scores: NormalScores
    theta: tuple[float, float]

    def density(self, score: Floats) -> Floats:
        """Return the (unnormalised) density of the score in each group."""
        return self.scores.density(score)

    def propose(self, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[np.intp]]:
        """Draw n people."""
        group = rng.integers(self.n_groups, size=n)
        return self.scores.sample(group, rng)[:, None], group

    def as_alias_table(self) -> AliasTable:
        """Return 2^13 cells per group: constant density within one, label probabilities linear.

        Both errors are of second order in a cell's width: label probabilities are off by less
        than 2e-5, densities relative to themselves by less than 3e-6 within four deviations.
        """
        from consequential.lab.kernels.alias_table import alias_table

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
    """One threshold is optimal, and a harsh start keeps a predictor from finding it.

    The label curve is moved to the right by `shift`.
    """

    name = "first setting"
    bounds = (-0.8, 0.8)
    scores = NormalScores((0.5, -0.5), 1.0, bounds)
    theta = (-3.0, 5.0)
    parameters = Parameters(
        n_proposals=256 * 128, n_iterations=128, batch_size=256, learning_rate=1.0
    )

    def __init__(self, shift: float = 0.0) -> None:
        self.shift = 0.0
        # the paper chooses the cost so that the optimal cut of its curve is at -0.3
        self.cost = float(self.score_probability(np.array([-0.3]))[0])
        self.shift = float(shift)

    def score_probability(self, score: Floats) -> Floats:
        """Return the monotone, ill-calibrated curve of the first setting."""
        if self.shift:  # beyond its ends a moved curve stays what it is there
            score = np.clip(score - self.shift, *self.bounds)
        end, width, height, beyond = 0.8, 30.0, 3.0, 0.1
        fourth_power = ((score - end - beyond) ** 2) ** 2  # 100 times faster than `** 4`
        bump = height * np.exp(-width * fourth_power)
        curve: Floats = (np.tan(score) + np.tan(end) + bump) / (2 * np.tan(end) + height)
        return curve


class Drift(FirstSetting):
    """The first setting while its label curve moves from one place to another, at an even pace.

    As it stands the world is that of step 0.
    """

    name = "first setting, drifting"

    def __init__(self, start: float, end: float, steps: int) -> None:
        if steps < 1:
            raise ValueError(f"a drift takes at least one step, not {steps!r}")
        super().__init__(start)
        self.start, self.end, self.steps = float(start), float(end), int(steps)

    def at(self, time_step: int) -> World:
        """Return the setting, standing still, with the curve where it is at a time step."""
        done = min(time_step / self.steps, 1.0)
        return FirstSetting(self.start + done * (self.end - self.start))


class SecondSetting(SyntheticWorld):
    """Two intervals are worth accepting; a predictor that starts at one never sees the other."""

    name = "second setting"
    cost = 0.55
    # eight deviations beyond the means: the mass outside is below 1e-14
    bounds = (-1.5 - 8 * 3.5, 1.5 + 8 * 3.5)
    scores = NormalScores((1.5, -1.5), 3.5, (-np.inf, np.inf))
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


def drift(start: float = 0.4, end: float = 0.0, steps: int = 200) -> Drift:
    """Return the first setting with a label curve that moves.

    By default people get better: the curve begins too far to the right by 0.4 and ends where the
    paper has it, so that the best cut falls from 0.1 to -0.3. Only a rule that still accepts
    some of the people rejected so far can notice. With `start=0.0, end=0.4` people get worse.

    Parameters
    ----------
    start, end
        How far to the right of its place the curve is at step 0, and from step `steps` on.
    steps
        How many steps the move takes.

    Examples
    --------
    >>> import consequential as cq
    >>> world = cq.worlds.drift()
    >>> [round(world.at(step).optimal().utility, 4) for step in (0, 100, 200)]
    [0.0322, 0.0842, 0.178]
    """
    return Drift(start, end, steps)
