"""Ground truth: the metrics of all policies that runs have had, measured together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Population
from consequential.lab.kernels.functionals import path_sums
from consequential.lab.kernels.links import THRESHOLD, propensities
from consequential.lab.simulation.compiled_runs import CompiledRuns
from consequential.lab.worlds import DensityWorld, ScoreWorld, World
from consequential.lab.worlds.lending import Lending
from consequential.lab.worlds.world import world_at
from consequential.objective.fairness import Fairness, benefit_gaps
from consequential.objective.functionals import NOBODY
from consequential.policy import Policy, ThresholdPolicy, link_numbers
from consequential.policy.links import LinkNumbers

Floats = NDArray[np.float64]
PathMetrics = dict[str, Floats]  # by name, one number per policy of a run


class Cells(NamedTuple):
    """A score cut into equal cells with four Gauss nodes each, which are the points."""

    low: float
    width: float
    n_cells: int  # 0 where points are not such nodes


_NO_CELLS = Cells(0.0, 0.0, 0)
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(4)
# A policy that changes more than this over one cell is measured by the world itself: four nodes per
# cell then no longer give twelve digits. A jump is cut out of its cell; a kink is not.
_STEEP, _STEEP_WITH_A_KINK = 0.2, 0.02


class GroundTruth:
    """The metrics of runs over time: of one population, or of one per step if the world drifts."""

    def __init__(self, world: World, fairness: Fairness) -> None:
        self.world, self.fairness = world, fairness
        self._still = None if world.drifts else _Population(world, fairness)

    def measure(
        self, all_runs: list[CompiledRuns], each: Callable[..., Iterator[Any]], *, last_only: bool
    ) -> Iterator[list[PathMetrics]]:
        """Yield the metrics along the runs of each strategy, row t in the world of step t.

        `each` is `map`, or that of a pool of threads.
        """
        if self._still is not None and not last_only:
            steps = range(all_runs[0].time_steps + 1)
            for runs in all_runs:
                one = partial(self._still.metrics, runs, steps)
                yield list(each(one, range(runs.n_runs)))
            return
        n_rows = all_runs[0].time_steps + 1
        names = _names(self.world)
        found = [
            [{name: np.full(n_rows, np.nan) for name in names} for _ in range(runs.n_runs)]
            for runs in all_runs
        ]

        def measure(step: int) -> None:
            # all runs at once: the population of a step takes much memory
            population = self._still or _Population(world_at(self.world, step), self.fairness)
            for runs, metrics in zip(all_runs, found, strict=True):
                for run, own in enumerate(metrics):
                    for name, values in population.metrics(runs, [step], run).items():
                        own[name][step] = values[0]

        list(each(measure, range(n_rows)[-1:] if last_only else range(n_rows)))
        yield from found


def _names(world: World) -> list[str]:
    return ["utility", "benefit_gap", "acceptance", *(f"benefit {group}" for group in world.groups)]


class _Population:
    """The population of a world as columns, measured for many policies at once."""

    def __init__(self, world: World, fairness: Fairness) -> None:
        self.world, self.fairness = world, fairness
        self.population, self.cells = _points(world)
        if self.population is None:
            return
        population = self.population
        self.coefficients = population.coefficients(world.cost, fairness)
        shape = len(population.points), len(population.groups)
        benefits = self.coefficients.benefits
        by_group = [benefit.values for benefit in benefits]
        by_group += [b.denominator for b in benefits if b.denominator is not None]
        columns = [
            self.coefficients.utility.reshape(shape).sum(axis=1)[None],
            population.mass.sum(axis=1)[None],
            *(column.reshape(shape).T for column in by_group),
        ]
        self.columns = np.ascontiguousarray(np.concatenate(columns))
        self.plain_inputs = _inputs(Policy(np.zeros(population.points.shape[1] + 1)), population)

    def metrics(self, runs: CompiledRuns, steps: Iterable[int], run: int) -> PathMetrics:
        """Return the metrics of the policies that a run had at steps."""
        start, chosen = runs.start, list(steps)
        if self.population is None or (isinstance(start, Policy) and start.groups):
            return self._one_by_one(runs, run, chosen)
        thetas = np.ascontiguousarray(runs.path[run, chosen])
        plain = not isinstance(start, Policy) or start.feature_map is None
        inputs = self.plain_inputs
        if isinstance(start, Policy):
            link = link_numbers(start)
            assert link is not None
            inputs = inputs if plain else _inputs(start, self.population)
        else:
            assert isinstance(start, ThresholdPolicy)
            link = THRESHOLD
            thetas[:, 0] -= np.log(start.threshold / (1.0 - start.threshold))
        sums = path_sums(inputs, self.columns, link, thetas)
        cells = self.cells if plain else _NO_CELLS
        if cells.n_cells > 0 and link.flat > 0.0 and link.below < 2.0:
            _cut_at_jumps(self.columns, link, thetas, cells, sums)
        metrics = self._from_sums(sums)
        steep = self._too_steep(link, thetas, plain)
        if steep.size:
            closer = self._one_by_one(runs, run, [chosen[row] for row in steep])
            for name, values in closer.items():
                metrics[name][steep] = values
        return metrics

    def _too_steep(self, link: LinkNumbers, thetas: Floats, plain: bool) -> NDArray[np.intp]:
        if self.cells.n_cells == 0 or link.below == 0.0:
            return np.zeros(0, dtype=np.intp)
        if not plain:
            return np.arange(len(thetas))
        steepest = link.below / 4.0 * np.abs(thetas[:, 1]) * self.cells.width
        return np.flatnonzero(steepest > (_STEEP_WITH_A_KINK if link.below > 1.0 else _STEEP))

    def _from_sums(self, sums: Floats) -> PathMetrics:
        n_groups, benefits = self.coefficients.n_groups, self.coefficients.benefits
        numerators, denominators = np.split(sums[:, 2:], [len(benefits) * n_groups], axis=1)
        values = np.full((len(sums), len(benefits), n_groups), np.nan)
        n_ratios = 0
        for b, benefit in enumerate(benefits):
            numerator = benefit.constant + numerators[:, b * n_groups : (b + 1) * n_groups]
            denominator = np.ones_like(numerator)
            if benefit.denominator is not None:
                denominator = denominators[:, n_ratios * n_groups : (n_ratios + 1) * n_groups]
                n_ratios += 1
            usable = (denominator > NOBODY) & benefit.defined
            np.divide(numerator, denominator, out=values[:, b], where=usable)
        found = [sums[:, 0].copy(), benefit_gaps(values), sums[:, 1].copy(), *values[:, 0].T.copy()]
        return dict(zip(_names(self.world), found, strict=True))

    def _one_by_one(self, runs: CompiledRuns, run: int, steps: list[int]) -> PathMetrics:
        found = [self.world.measure(runs.rule(run, step), self.fairness) for step in steps]
        groups = self.world.groups
        columns = [
            [each.utility, each.benefit_gap, each.acceptance, *(each.benefits[g] for g in groups)]
            for each in found
        ]
        return dict(zip(_names(self.world), np.array(columns).T, strict=True))


def _points(world: World) -> tuple[Population | None, Cells]:
    """Return the points on which the world itself measures, if it does so in the usual way."""
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


def _cut_at_jumps(
    columns: Floats, link: LinkNumbers, thetas: Floats, cells: Cells, sums: Floats
) -> None:
    """Integrate the cells in which policies jump in two parts, one on each side of the jump."""
    with np.errstate(divide="ignore", invalid="ignore"):
        jump = (-thetas[:, 0] / thetas[:, 1] - cells.low) / cells.width
    (rows,) = np.nonzero((jump > 0.0) & (jump < cells.n_cells))
    cell = jump[rows].astype(np.intp)
    cut = (2.0 * (jump[rows] - cell) - 1.0)[:, None]  # within the cell, on [-1, 1] as the nodes are
    left, right = (cut + 1.0) / 2.0, (1.0 - cut) / 2.0
    nodes = np.broadcast_to(_NODES, (len(rows), 4))
    places = np.hstack([nodes, -1.0 + left * (nodes + 1.0), cut + right * (nodes + 1.0)])
    weights = np.hstack([-np.ones_like(cut), left, right]).repeat(4, axis=1)
    weights = weights * np.tile(_NODE_WEIGHTS, 3)  # the cell as it was is taken out
    score = cells.low + cells.width * (cell[:, None] + (places + 1.0) / 2.0)
    eta = thetas[rows, :1] + thetas[rows, 1:2] * score
    propensity = np.empty(eta.size)
    propensities(link, eta.ravel(), propensity)
    # the density of the coefficients within a cell: the cubic through its four nodes
    basis = np.ones((*places.shape, 4))
    for j, other in permutations(range(4), 2):
        basis[..., j] *= (places - _NODES[other]) / (_NODES[j] - _NODES[other])
    by_node = columns.reshape(len(columns), -1, 4)[:, cell] / _NODE_WEIGHTS
    # plain sums: a product of matrices may round differently from call to call
    change = ((weights * propensity.reshape(eta.shape))[..., None] * basis).sum(axis=1)
    sums[rows] += (by_node * change).sum(axis=2).T


def _inputs(policy: Policy, population: Population) -> Floats:
    return np.ascontiguousarray(policy.inputs(population.points).T)
