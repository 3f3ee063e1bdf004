"""Truth: the metrics of every policy a crew has had, without asking the world one by one."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import Any

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
from consequential.worlds.world import world_at

Floats = NDArray[np.float64]

_NO_CELLS = Cells(0.0, 0.0, 0)
# A policy that changes more than this over one cell needs the world's closer look: four nodes a
# cell then no longer give twelve digits. A jump is cut out of its cell; a kink is not.
_STEEP, _STEEP_WITH_A_KINK = 0.2, 0.02
# A logistic policy whose score changes less than this over a wide cell is, to twelve digits, the
# polynomial through its values at eight places: 1.3e-4 (change / 4)^8 is how far apart they may be.
_WIDE_CELLS, _PLACES, _GENTLE = 256, 8, 0.38

_WHOLE = slice(None)


@dataclass(frozen=True, slots=True)
class PathMetrics:
    """Metrics along a run, a number a policy."""

    utility: Floats
    benefit_gap: Floats
    acceptance: Floats
    benefits: dict[Hashable, Floats]


class Course:
    """The truth over time: one for all steps, or one a step where the world drifts."""

    def __init__(self, world: World, fairness: Fairness) -> None:
        self.world, self.fairness = world, fairness
        self._still = None if world.drifts else Truth(world, fairness)

    def paths(
        self, crews: list[Crew], each: Callable[..., Iterator[Any]], last_only: bool = False
    ) -> Iterator[list[PathMetrics]]:
        """Yield the metrics along each crew's runs, row t in the world as it is at step t.

        `each` is `map`, or that of a pool of threads.
        """
        if self._still is not None and not last_only:
            for crew in crews:
                by_seed = each(partial(self._still.along, crew), range(len(crew.starts)))
                yield [path for paths in by_seed for path in paths]
            return
        n_rows, groups = crews[0].time_steps + 1, self.world.groups
        paths = [[_no_metrics(n_rows, groups) for _ in range(crew.n_runs)] for crew in crews]

        def measure(step: int) -> None:
            # all runs at once: a step's truth takes much room and is needed no more afterwards
            truth = self._still or Truth(world_at(self.world, step), self.fairness)
            for crew, rows in zip(crews, paths, strict=True):
                found = (
                    truth.along(crew, s, slice(step, step + 1)) for s in range(len(crew.starts))
                )
                for path, there in zip(rows, chain.from_iterable(found), strict=True):
                    _replace(path, [step], there)

        list(each(measure, range(n_rows)[-1:] if last_only else range(n_rows)))
        yield from paths


@dataclass(frozen=True, slots=True)
class _Wide:
    """A score's distribution at few places, for policies that are smooth; the world need not be."""

    phi: Floats
    columns: Floats
    width: float


class Truth:
    """The population of a world that stands still, as columns, measured once for all runs."""

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
        n_inputs = population.points.shape[1] + 1
        self._plain_phi = _inputs(Policy(np.zeros(n_inputs)), population)
        self._wide = None
        if self.cells.n_cells > 0 and self.cells.n_cells % _WIDE_CELLS == 0:
            self._wide = _widened(self._plain_phi[1], self.columns, self.cells)

    def along(self, crew: Crew, seed: int, steps: slice = _WHOLE) -> list[PathMetrics]:
        """Return the metrics of the policies that each run of a seed has had."""
        start, n_runs = crew.starts[seed], len(crew.penalties)
        runs = range(seed * n_runs, (seed + 1) * n_runs)
        places = list(product(runs, range(crew.time_steps + 1)[steps]))
        if self.population is None or (isinstance(start, Policy) and start.groups):
            return _apart(self._one_by_one(crew, places), n_runs)
        thetas = crew.path[runs[0] : runs[-1] + 1, steps].reshape(len(places), -1)
        plain = not isinstance(start, Policy) or start.feature_map is None
        if isinstance(start, Policy):
            link = bend_of(start)
            phi = self._plain_phi if plain else _inputs(start, self.population)
            assert link is not None
        else:
            assert isinstance(start, ThresholdPolicy)
            link = THRESHOLD
            phi = self._plain_phi
            thetas = thetas.copy()
            thetas[:, 0] -= np.log(start.threshold / (1.0 - start.threshold))
        cells = self.cells if plain else _NO_CELLS
        sums = np.empty((len(thetas), len(self.columns)))
        if plain and self._wide is not None and link.flat == 0.0:
            self._add_up_smooth(self._wide, link, thetas, sums)
        else:
            path_sums(phi, self.columns, link, thetas, cells, sums)
        metrics = self._metrics(sums)
        closer = self._too_steep(link, thetas, plain)
        if closer.size:
            there = [places[row] for row in closer]
            _replace(metrics, closer, self._one_by_one(crew, there))
        return _apart(metrics, n_runs)

    def _add_up_smooth(self, wide: _Wide, link: Bend, thetas: Floats, sums: Floats) -> None:
        """Add up policies without a jump: in wide cells those that change little over one."""
        gentle = np.abs(thetas[:, 1]) * wide.width <= _GENTLE
        for chosen, phi, columns in (
            (gentle, wide.phi, wide.columns),
            (~gentle, self._plain_phi, self.columns),
        ):
            found = np.empty((int(chosen.sum()), len(columns)))
            path_sums(phi, columns, link, thetas[chosen], self.cells, found)
            sums[chosen] = found

    def _too_steep(self, link: Bend, thetas: Floats, plain: bool) -> NDArray[np.intp]:
        if self.cells.n_cells == 0 or link.bend == 0.0:
            return np.zeros(0, dtype=np.intp)
        if not plain:
            return np.arange(len(thetas))
        steepest = link.bend / 4.0 * np.abs(thetas[:, 1]) * self.cells.width
        return np.flatnonzero(steepest > (_STEEP_WITH_A_KINK if link.bend > 1.0 else _STEEP))

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
            sums[:, 0].copy(),
            benefit_gaps(values),
            sums[:, 1].copy(),
            dict(zip(self.population.groups, values[:, 0].T.copy(), strict=True)),
        )

    def _one_by_one(self, crew: Crew, places: Sequence[tuple[int, int]]) -> PathMetrics:
        """Return the metrics of the policies that runs had at steps."""
        found = [self.world.measure(crew.rule(run, step), self.fairness) for run, step in places]
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


def _widened(score: Floats, columns: Floats, cells: Cells) -> _Wide:
    """Return weights of places in wide cells under which a polynomial has the same sums."""
    width = cells.width * cells.n_cells / _WIDE_CELLS
    middles = cells.low + width * (np.arange(_WIDE_CELLS) + 0.5)
    places = np.cos(np.pi * (np.arange(_PLACES) + 0.5) / _PLACES)  # Chebyshev's, on [-1, 1]
    within = (score.reshape(_WIDE_CELLS, -1) - middles[:, None]) / (width / 2.0)
    basis = np.ones((*within.shape, _PLACES))
    for j in range(_PLACES):
        for other in range(_PLACES):
            if other != j:
                basis[..., j] *= (within - places[other]) / (places[j] - places[other])
    by_cell = columns.reshape(len(columns), _WIDE_CELLS, -1)
    weights = np.einsum("cgi,gij->cgj", by_cell, basis)
    scores = (middles[:, None] + width / 2.0 * places).ravel()
    return _Wide(np.stack([np.ones_like(scores), scores]), weights.reshape(len(columns), -1), width)


def _inputs(policy: Policy, population: Population) -> Floats:
    return np.ascontiguousarray(policy.inputs(population.points).T)


def _no_metrics(n_rows: int, groups: tuple[Hashable, ...]) -> PathMetrics:
    utility, gap, acceptance, *benefits = np.full((3 + len(groups), n_rows), np.nan)
    return PathMetrics(utility, gap, acceptance, dict(zip(groups, benefits, strict=True)))


def _apart(metrics: PathMetrics, n_runs: int) -> list[PathMetrics]:
    """Return the metrics of each run, given those of one run after the other."""
    utility, gap, acceptance, *benefits = (
        values.reshape(n_runs, -1)
        for values in (
            metrics.utility,
            metrics.benefit_gap,
            metrics.acceptance,
            *metrics.benefits.values(),
        )
    )
    return [
        PathMetrics(
            utility[run],
            gap[run],
            acceptance[run],
            {group: own[run] for group, own in zip(metrics.benefits, benefits, strict=True)},
        )
        for run in range(n_runs)
    ]


def _replace(metrics: PathMetrics, at: NDArray[np.intp] | list[int], by: PathMetrics) -> None:
    for old, new in (
        (metrics.utility, by.utility),
        (metrics.benefit_gap, by.benefit_gap),
        (metrics.acceptance, by.acceptance),
        *((metrics.benefits[group], by.benefits[group]) for group in metrics.benefits),
    ):
        old[at] = new
