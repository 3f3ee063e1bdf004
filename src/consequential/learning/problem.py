"""An objective over the parameters of a policy class, as sums over rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from consequential.learning.constraints import Constraint
from consequential.learning.rows import Passes
from consequential.objective.functionals import Benefit, Coefficients, Sums
from consequential.objective.objective import Objective, deviations
from consequential.policy.links import LinkNumbers, responses

Floats = NDArray[np.float64]

_NEARBY = 1e-6  # a relative difference of sums that is small enough for a derivative
_LEAST_ROOT = 1e-2  # from 0 itself a root would never move


@dataclass(frozen=True)
class Columns:
    """How a pass's columns become utility and benefits: what they are divided by, and constants."""

    constants: Floats  # (benefits, groups)
    defined: NDArray[np.bool_]  # (benefits, groups)
    is_ratio: NDArray[np.bool_]  # (benefits,)
    totals: Floats  # (benefits, groups), what a benefit is a mean over
    group_shares: Floats | None = None  # of all people, where acceptance is counted

    @classmethod
    def of(cls, coefficients: Coefficients, group_shares: Floats | None = None) -> Columns:
        """Return what is known of the functionals beside their rows."""
        shape = (len(coefficients.benefits), coefficients.n_groups)
        return cls(
            np.array([b.constant for b in coefficients.benefits]).reshape(shape),
            np.array([b.defined for b in coefficients.benefits], dtype=np.bool_).reshape(shape),
            np.array([b.denominator is not None for b in coefficients.benefits], dtype=np.bool_),
            np.array([_totals(b) for b in coefficients.benefits]).reshape(shape),
            group_shares,
        )

    @cached_property
    def counted_at(self) -> int:
        """The column of acceptance, where it is counted: after utility, benefits and ratios."""
        return 1 + len(self.constants) + int(self.is_ratio.sum())

    def sums(self, values: Floats) -> Sums:
        """Return the functionals' values from a pass's column sums by group."""
        n_benefits = len(self.constants)
        numerators = np.where(self.defined, values[1 : 1 + n_benefits] + self.constants, np.nan)
        denominators = np.ones_like(numerators)
        denominators[self.is_ratio] = values[1 + n_benefits : self.counted_at]
        rates = None
        if self.group_shares is not None:
            accepted = values[self.counted_at]
            rates = np.append(_divided(accepted, self.group_shares), accepted.sum())
        return Sums(float(values[0].sum()), numerators, denominators, rates)


def _totals(benefit: Benefit) -> Floats:
    """Return what a benefit is a mean over, by group; 0 where there is nobody."""
    scale = np.zeros(len(benefit.defined)) if benefit.scale is None else benefit.scale
    return _divided(np.ones_like(scale), scale)


def _divided(values: Floats, by: Floats) -> Floats:
    """Return a quotient, 0 where there is nobody to divide by."""
    return np.divide(values, by, out=np.zeros_like(values), where=by > 0.0)


@dataclass
class Price:
    """What breaking a constraint costs: an augmented Lagrangian's multipliers and steepness.

    In units of the utility's scale, so that it fits small loans and large ones.
    """

    constraint: Constraint
    steepness: float = 20.0
    multipliers: Floats | float = 0.0

    def pressure(self, sums: Sums) -> Floats:
        """Return the derivative of the cost in each inequality's excess."""
        excess = self.constraint.excess(sums)
        return np.maximum(0.0, self.multipliers + self.steepness * excess)

    def cost(self, pressure: Floats) -> float:
        """Return what is to be paid."""
        return float((pressure**2 - self.multipliers**2).sum()) / (2.0 * self.steepness)


@dataclass(frozen=True)
class FitProblem:
    """An objective over the thetas of one policy class, on the rows of one log.

    The solver's parameters are those of standardised inputs, but for parameters whose sign is
    given: of them, `sign * root^2`, they are the roots. So any solver's parameters are allowed.
    """

    passes: Passes
    columns: Columns
    objective: Objective
    link: LinkNumbers
    centre: Floats  # of the inputs
    scale: Floats
    l2: float
    unit: float  # the utility's scale
    signs: Floats | None = None  # of the parameters: 1, -1, or 0 where any is allowed

    @cached_property
    def n_blocks(self) -> int:
        """Groups that have parameters of their own, else 1."""
        return self.passes.n_parameters // (len(self.centre) + 1)

    def original(self, beta: Floats) -> Floats:
        """Return theta for the inputs as they are, from one for standardised inputs."""
        blocks = beta.copy().reshape(self.n_blocks, -1)
        blocks[:, 1:] /= self.scale
        blocks[:, 0] -= blocks[:, 1:] @ self.centre
        return blocks.ravel()

    def standardised(self, theta: Floats) -> Floats:
        """Return theta for standardised inputs."""
        blocks = theta.copy().reshape(self.n_blocks, -1)
        blocks[:, 0] += blocks[:, 1:] @ self.centre
        blocks[:, 1:] *= self.scale
        return blocks.ravel()

    def rooted(self, beta: Floats) -> Floats:
        """Return the solver's parameters of the nearest policy whose signs are as given."""
        if self.signs is None:
            return beta
        roots = np.maximum(np.sqrt(np.maximum(self.signs * beta, 0.0)), _LEAST_ROOT)
        return np.where(self.signs == 0.0, beta, roots)

    def squared(self, free: Floats) -> tuple[Floats, Floats]:
        """Return parameters for standardised inputs from the solver's, and their derivative."""
        if self.signs is None:
            return free, np.ones_like(free)
        given = self.signs != 0.0
        beta = np.where(given, self.signs * free**2, free)
        return beta, np.where(given, 2.0 * self.signs * free, 1.0)

    def at(self, theta: Floats) -> tuple[Sums, float]:
        """Return the functionals at a theta, and the objective."""
        return self._judged(self.passes.sums(theta, self.link)[:, :, 0])

    def alike(self, totals: Floats, scores: Sequence[float]) -> list[tuple[Sums, float]]:
        """Return the same for policies that give everybody one score, from the passes' totals."""
        chances, _ = responses(self.link, np.array(scores))
        return [self._judged(chance * totals[0] + totals[1]) for chance in chances]

    def _judged(self, values: Floats) -> tuple[Sums, float]:
        sums = self.columns.sums(values)
        return sums, self.objective.value_at(sums)

    def loss(self, free: Floats, price: Price) -> tuple[float, Floats]:
        """Return what is to be minimised, and its gradient, in the solver's parameters."""
        beta, by_free = self.squared(free)
        loss, gradient = self._loss(beta, price)
        return loss, gradient * by_free

    def _loss(self, beta: Floats, price: Price) -> tuple[float, Floats]:
        passed = self._passed(beta)
        value, weights = self._priced(passed[:, :, 0], price)
        free = beta * self._shrunk
        loss = -value / self.unit + 0.5 * self.l2 * float((free**2).sum())
        return loss, -self._gradient(weights, passed) / self.unit + self.l2 * free

    def curvature(self, free: Floats, price: Price) -> Floats:
        """Return the loss's second derivative."""
        beta, by_free = self.squared(free)
        curved = self._curvature(beta, price) * np.outer(by_free, by_free)
        if self.signs is None:
            return curved
        return curved + np.diag(2.0 * self.signs * self._loss(beta, price)[1])

    def _curvature(self, beta: Floats, price: Price) -> Floats:
        theta, passed = self.original(beta), self._passed(beta)
        values = passed[:, :, 0]
        _, weights = self._priced(values, price)
        to_theta = np.column_stack([self.original(unit) for unit in np.eye(len(beta))])
        total = to_theta.T @ self.passes.curvature(theta, self.link, weights) @ to_theta
        # what sums are worth depends on the sums themselves: few numbers, so by differences
        for at in np.ndindex(values.shape):
            alone, there = np.zeros_like(values), values.copy()
            step = _NEARBY * max(float(np.abs(values[at[0]]).max()), 1e-300)
            alone[at], there[at] = 1.0, values[at] + step
            change = (self._priced(there, price)[1] - weights) / step
            total += np.outer(self._gradient(alone, passed), self._gradient(change, passed))
        return np.diag(self.l2 * self._shrunk) - (total + total.T) / (2.0 * self.unit)

    def _priced(self, values: Floats, price: Price) -> tuple[float, Floats]:
        """The objective less what breaking the constraint costs, and its derivative in sums."""
        sums = self.columns.sums(values)
        value, weights = self.objective.value_at(sums), np.zeros_like(values)
        if self.objective.penalty:
            spread = deviations(sums.benefits)
            self._add_weights(weights, sums, -2.0 * self.objective.penalty * spread)
        if price.constraint.binds:
            pressure = price.pressure(sums)
            value -= self.unit * price.cost(pressure)
            by_benefit, by_rate = price.constraint.pulled_back(pressure, sums)
            self._add_weights(weights, sums, -self.unit * by_benefit, -self.unit * by_rate)
        weights[0] = 1.0
        return value, weights

    @cached_property
    def _shrunk(self) -> Floats:
        """1 for a parameter that is shrunk, 0 for an intercept."""
        shrunk = np.ones((self.n_blocks, len(self.centre) + 1))
        shrunk[:, 0] = 0.0
        return shrunk.ravel()

    def worst(self, free: Floats, constraint: Constraint) -> tuple[float, Floats]:
        """Return the largest excess over a constraint, and its gradient."""
        beta, by_free = self.squared(free)
        passed = self._passed(beta)
        sums = self.columns.sums(passed[:, :, 0])
        excess = constraint.excess(sums)
        pressure = np.zeros_like(excess)
        pressure[int(excess.argmax())] = 1.0
        weights = np.zeros_like(passed[:, :, 0])
        self._add_weights(weights, sums, *constraint.pulled_back(pressure, sums))
        return float(excess.max()), self._gradient(weights, passed) * by_free

    def _passed(self, beta: Floats) -> Floats:
        return self.passes.sums(self.original(beta), self.link)

    def _add_weights(
        self, weights: Floats, sums: Sums, by_benefit: Floats, by_rate: Floats | None = None
    ) -> None:
        """Add the derivative in each column's sums, from that in benefits and acceptance rates."""
        columns, n_benefits = self.columns, len(by_benefit)
        if columns.group_shares is not None and by_rate is not None:
            by_share = _divided(by_rate[:-1], columns.group_shares)
            weights[columns.counted_at] += by_share + by_rate[-1]
        usable = sums.usable & columns.defined
        by_numerator = np.zeros_like(by_benefit)
        np.divide(by_benefit, sums.denominators, out=by_numerator, where=usable)
        weights[1 : 1 + n_benefits] += by_numerator
        if columns.is_ratio.any():
            ratios = np.where(usable, sums.benefits, 0.0)
            by_denominator = -(by_numerator * ratios)[columns.is_ratio]
            weights[1 + n_benefits : columns.counted_at] += by_denominator

    def _gradient(self, weights: Floats, passed: Floats) -> Floats:
        """The gradient of weighted sums in standardised parameters."""
        by_group: Floats = np.einsum("cz,czm->zm", weights, passed[:, :, 1:])
        blocks = by_group if self.n_blocks > 1 else by_group.sum(axis=0, keepdims=True)
        blocks[:, 1:] = (blocks[:, 1:] - blocks[:, :1] * self.centre) / self.scale
        return blocks.ravel()
