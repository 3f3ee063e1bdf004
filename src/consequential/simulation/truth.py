"""Truth: the metrics of every policy a crew has had, without asking the world one by one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Population
from consequential.evaluation.paths import Cells, path_sums
from consequential.objective import NOBODY, Fairness, benefit_gaps
from consequential.policies import Policy, ThresholdPolicy
from consequential.policies.compiled import THRESHOLD, Bend, bend_of
from consequential.simulation.crew import Crew
from consequential.worlds import DensityWorld, ScoreWorld, World
from consequential.worlds.lending import Lending

Floats = NDArray[np.float64]

_NO_CELLS = Cells(0.0, 0.0, 0)
# a smooth policy that changes more than this over one cell needs the world's closer look
_STEEP = 0.02


@dataclass(frozen=True, slots=True)
class PathMetrics:
    """Metrics along a run, a number a policy."""

    utility: Floats
    benefit_gap: Floats
    acceptance: Floats
    benefits: dict[Hashable, Floats]


class Truth:
    """A world's population as columns, measured once for all runs."""

    def __init__(self, world: World, fairness: Fairness) -> None:
        self.world, self.fairness = world, fairness
        population, self.cells = _population(world)
        self.population = population
        if population is None:
            return
        coefficients = population.coefficients(world.cost, fairness)
        n_groups, n = len(population.groups), len(population.points)

        def by_point(column: Floats) -> Floats:
            return column.reshape(n, n_groups)

        columns = [by_point(coefficients.utility).sum(axis=1), population.mass.sum(axis=1)]
        for benefit in coefficients.benefits:
            columns += list(by_point(benefit.values).T)
        for benefit in coefficients.benefits:
            if benefit.denominator is not None:
                columns += list(by_point(benefit.denominator).T)
        self.columns = np.stack(columns)
        self.coefficients = coefficients

    def along(self, crew: Crew, run: int) -> PathMetrics:
        """Return the metrics of a run's policies."""
        start, thetas = crew.starts[run // len(crew.penalties)], crew.path[run]
        if self.population is None or (isinstance(start, Policy) and start.groups):
            return self._one_by_one(crew, run, range(len(thetas)))
        if isinstance(start, Policy):
            link = bend_of(start)
            phi = start.inputs(self.population.points).T
            assert link is not None
        else:
            assert isinstance(start, ThresholdPolicy)
            link = THRESHOLD
            phi = Policy(thetas[0]).inputs(self.population.points).T
            thetas = thetas.copy()
            thetas[:, 0] -= np.log(start.threshold / (1.0 - start.threshold))
        plain = not isinstance(start, Policy) or start.feature_map is None
        cells = self.cells if plain else _NO_CELLS
        sums = np.empty((len(thetas), len(self.columns)))
        path_sums(np.ascontiguousarray(phi), self.columns, link, thetas, cells, sums)
        metrics = self._metrics(sums)
        closer = self._too_steep(link, thetas, plain)
        if closer.size:
            metrics = _replaced(metrics, closer, self._one_by_one(crew, run, closer.tolist()))
        return metrics

    def _too_steep(self, link: Bend, thetas: Floats, plain: bool) -> NDArray[np.intp]:
        if self.cells.n_cells == 0 or link.bend == 0.0:
            return np.zeros(0, dtype=np.intp)
        if not plain:
            return np.arange(len(thetas))
        steepest = link.bend / 4.0 * np.abs(thetas[:, 1]) * self.cells.width
        return np.flatnonzero(steepest > _STEEP)

    def _metrics(self, sums: Floats) -> PathMetrics:
        groups, benefits = self.coefficients.n_groups, self.coefficients.benefits
        shape = (len(sums), len(benefits), groups)
        values = np.full(shape, np.nan)
        at = 2 + len(benefits) * groups
        for b, benefit in enumerate(benefits):
            first = 2 + b * groups
            numerator = benefit.constant + sums[:, first : first + groups]
            denominator = np.ones_like(numerator)
            if benefit.denominator is not None:
                denominator, at = sums[:, at : at + groups], at + groups
            usable = (denominator > NOBODY) & benefit.defined
            np.divide(numerator, denominator, out=values[:, b], where=usable)
        assert self.population is not None
        return PathMetrics(
            sums[:, 0],
            benefit_gaps(values),
            sums[:, 1],
            dict(zip(self.population.groups, values[:, 0].T, strict=True)),
        )

    def _one_by_one(self, crew: Crew, run: int, steps: list[int] | range) -> PathMetrics:
        found = [self.world.measure(crew.rule(run, step), self.fairness) for step in steps]
        return PathMetrics(
            np.array([each.utility for each in found]),
            np.array([each.benefit_gap for each in found]),
            np.array([each.acceptance for each in found]),
            {
                group: np.array([each.benefits[group] for each in found])
                for group in self.world.groups
            },
        )


def _population(world: World) -> tuple[Population | None, Cells]:
    """Return the points that the world itself measures on, where it does so in the usual way."""
    if type(world).measure is World.measure:
        return world.held_out, _NO_CELLS
    if not isinstance(world, ScoreWorld):
        return None, _NO_CELLS
    kind = type(world)
    if kind.measure is not ScoreWorld.measure or kind.exact is not ScoreWorld.exact:
        return None, _NO_CELLS
    if isinstance(world, DensityWorld) and kind.population_for is DensityWorld.population_for:
        nodes = world.regular_nodes
        n_cells = len(nodes.points) // 4
        low, high = world.bounds
        return nodes, Cells(float(low), float(high - low) / n_cells, n_cells)
    if isinstance(world, Lending) and kind.population_for is Lending.population_for:
        return world.cells(0), _NO_CELLS
    return None, _NO_CELLS


def _replaced(metrics: PathMetrics, at: NDArray[np.intp], closer: PathMetrics) -> PathMetrics:
    for old, new in (
        (metrics.utility, closer.utility),
        (metrics.benefit_gap, closer.benefit_gap),
        (metrics.acceptance, closer.acceptance),
        *((metrics.benefits[group], closer.benefits[group]) for group in metrics.benefits),
    ):
        old[at] = new
    return metrics
