"""The solver: the best policy of a class on a whole log, without a learning rate.

Full batch and deterministic. Without a constraint it is L-BFGS on the objective; with one, an
augmented Lagrangian around it, which comes from looser constraints to the one asked for. The
problem is not convex, so there are several starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from consequential.learning.constraints import Constraint
from consequential.objective import Coefficients, Objective, Sums
from consequential.policies.compiled import Bend

Floats = NDArray[np.float64]

# continuation in the gap, on top of the one asked for
_RELAXED = (0.15, 0.1, 0.05, 0.02, 0.01)
KEPT = 1e-4  # excess of a benefit up to which a constraint counts as kept
_MAX_ROUNDS = 15
_STEEPEST = 2000.0  # a steeper price would drown the utility in rounding
# the shrinkage under which starts are tried; it then goes down to the one asked for
SHRINKING = (1e-4, 1e-4, 3e-6, 1e-7)


class Passes(Protocol):
    """Sums over rows, wherever they are."""

    @property
    def n_parameters(self) -> int:
        """How many numbers theta has."""
        ...

    def sums(self, theta: Floats, link: Bend) -> Floats:
        """Return sums by column and group: the functional, then its gradient."""
        ...


@dataclass(frozen=True, slots=True)
class Columns:
    """How a pass's columns become utility and benefits: what they are divided by, and constants."""

    utility_constant: float
    constants: Floats  # (benefits, groups)
    defined: NDArray[np.bool_]  # (benefits, groups)
    is_ratio: NDArray[np.bool_]  # (benefits,)

    @classmethod
    def of(cls, coefficients: Coefficients) -> Columns:
        """Return what is known of the functionals beside their rows."""
        shape = (len(coefficients.benefits), coefficients.n_groups)
        return cls(
            coefficients.utility_constant,
            np.array([b.constant for b in coefficients.benefits]).reshape(shape),
            np.array([b.defined for b in coefficients.benefits], dtype=np.bool_).reshape(shape),
            np.array([b.denominator is not None for b in coefficients.benefits], dtype=np.bool_),
        )

    @staticmethod
    def rows(coefficients: Coefficients) -> Floats:
        """Return the columns a pass reads: utility, benefits, and ratios' denominators."""
        ratios = [b.denominator for b in coefficients.benefits if b.denominator is not None]
        return np.stack([coefficients.utility, *(b.values for b in coefficients.benefits), *ratios])

    def sums(self, values: Floats) -> Sums:
        """Return the functionals' values from a pass's column sums by group."""
        n_benefits = len(self.constants)
        numerators = np.where(self.defined, values[1 : 1 + n_benefits] + self.constants, np.nan)
        denominators = np.ones_like(numerators)
        denominators[self.is_ratio] = values[1 + n_benefits :][: int(self.is_ratio.sum())]
        return Sums(float(values[0].sum()) + self.utility_constant, numerators, denominators)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where one start ended, and on the way there, the best without the constraint."""

    theta: Floats
    free_theta: Floats
    value: float  # the objective there, without the constraint's terms
    violation: float
    converged: bool
    n_passes: int
    price: Price

    @property
    def worth(self) -> tuple[bool, float]:
        """By which attempts compare: a constraint that is kept, then the objective."""
        kept = self.violation <= 10.0 * KEPT
        return kept, self.value if kept else -self.violation


@dataclass
class Price:
    """What breaking a constraint costs: an augmented Lagrangian's multipliers and steepness.

    In units of the utility's scale, so that it fits small loans and large ones.
    """

    constraint: Constraint
    steepness: float = 20.0
    multipliers: Floats | float = 0.0

    def pressure(self, benefits: Floats) -> Floats:
        """Return the derivative of the cost in each inequality's excess."""
        excess = self.constraint.excess(benefits)
        return np.maximum(0.0, self.multipliers + self.steepness * excess)

    def cost(self, pressure: Floats) -> float:
        """Return what is to be paid."""
        return float((pressure**2 - self.multipliers**2).sum()) / (2.0 * self.steepness)


@dataclass(frozen=True, slots=True)
class Problem:
    """An objective over the thetas of one policy class, on the rows of one log."""

    passes: Passes
    columns: Columns
    objective: Objective
    link: Bend
    centre: Floats  # of the inputs
    scale: Floats
    l2: float
    unit: float  # the utility's scale
    n_rows: int
    variance_penalty: float = 0.0

    @property
    def n_blocks(self) -> int:
        """Groups that have parameters of their own, else 1."""
        return self.passes.n_parameters // (len(self.centre) + 1)

    def original(self, beta: Floats) -> Floats:
        """Return theta for the inputs as they are, from one for standardised inputs."""
        blocks = beta.reshape(self.n_blocks, -1)
        slopes = blocks[:, 1:] / self.scale
        return np.column_stack([blocks[:, 0] - slopes @ self.centre, slopes]).ravel()

    def standardised(self, theta: Floats) -> Floats:
        """Return theta for standardised inputs."""
        blocks = theta.reshape(self.n_blocks, -1)
        intercept = blocks[:, 0] + blocks[:, 1:] @ self.centre
        return np.column_stack([intercept, blocks[:, 1:] * self.scale]).ravel()

    def at(self, theta: Floats) -> tuple[Sums, float]:
        """Return the functionals at a theta, and the objective."""
        values = self.passes.sums(theta, self.link)[:, :, 0]
        sums = self.columns.sums(values)
        return sums, self._value(sums, values)

    def _value(self, sums: Sums, values: Floats) -> float:
        return self.objective.value_at(sums) - self.variance_penalty * self._error(sums, values)[0]

    def _error(self, sums: Sums, values: Floats) -> tuple[float, float, float]:
        """The utility's standard error, and its derivatives in the sum of squares and the mean."""
        if not self.variance_penalty:
            return 0.0, 0.0, 0.0
        mean = sums.utility - self.columns.utility_constant
        variance = max(float(values[-1].sum()) - mean * mean / self.n_rows, 1e-300)
        error = variance**0.5
        return error, 0.5 / error, -mean / (self.n_rows * error)

    def loss(self, beta: Floats, price: Price) -> tuple[float, Floats]:
        """Return what L-BFGS minimises, and its gradient, in standardised parameters."""
        passed = self.passes.sums(self.original(beta), self.link)
        values, gradients = passed[:, :, 0], passed[:, :, 1:]
        sums = self.columns.sums(values)
        slopes = self.objective.slopes_at(sums)
        value, pull = self._value(sums, values), np.zeros_like(sums.numerators)
        if price.constraint.binds:
            pressure = price.pressure(sums.benefits)
            value -= self.unit * price.cost(pressure)
            pull = -self.unit * price.constraint.pulled_back(pressure)
        # dF/db becomes dF/dnumerator and dF/ddenominator, as everywhere
        by_numerator = slopes.numerators + np.divide(
            pull, sums.denominators, out=np.zeros_like(pull), where=sums.usable
        )
        by_denominator = -by_numerator * np.nan_to_num(sums.benefits, nan=0.0)
        _, by_squares, by_utility = self._error(sums, values)
        weights = np.zeros(values.shape)
        n_benefits = len(self.columns.constants)
        weights[0] = 1.0 - self.variance_penalty * by_utility
        weights[1 : 1 + n_benefits] = np.where(self.columns.defined, by_numerator, 0.0)
        n_ratios = int(self.columns.is_ratio.sum())
        weights[1 + n_benefits :][:n_ratios] = by_denominator[self.columns.is_ratio]
        if self.variance_penalty:
            weights[-1] = -self.variance_penalty * by_squares
        by_group = np.einsum("cz,czm->zm", weights, gradients)
        blocks = by_group if self.n_blocks > 1 else by_group.sum(axis=0, keepdims=True)
        gradient = np.column_stack(
            [blocks[:, 0], (blocks[:, 1:] - blocks[:, :1] * self.centre) / self.scale]
        )
        free = beta.reshape(self.n_blocks, -1).copy()
        free[:, 0] = 0.0  # intercepts are not shrunk
        loss = -value / self.unit + 0.5 * self.l2 * float((free**2).sum())
        return loss, (-gradient / self.unit + self.l2 * free).ravel()


def minimise(
    problem: Problem, beta: Floats, price: Price, max_passes: int, tolerance: float
) -> tuple[Floats, bool, int]:
    """Run L-BFGS from beta; return where it ended, whether it converged, and its passes."""
    from scipy.optimize import minimize

    found = minimize(
        problem.loss,
        beta,
        args=(price,),
        jac=True,
        method="L-BFGS-B",
        options={
            "maxiter": max_passes,
            "maxfun": max_passes,
            "ftol": tolerance,
            "gtol": 1e-7,
            "maxcor": 20,
        },
    )
    return found.x, bool(found.success), int(found.nfev)


def solve(
    problem: Problem, start: Floats, constraint: Constraint, *, max_passes: int, tolerance: float
) -> Attempt:
    """Return the best policy found from one start (parameters of the inputs as they are)."""
    price = Price(Constraint())
    beta = problem.standardised(start)
    beta, converged, n_passes = minimise(problem, beta, price, max_passes, tolerance)
    free_theta = problem.original(beta)
    if constraint.binds:
        price = Price(constraint)
        for by in _RELAXED:
            price.constraint = constraint.relaxed(by)
            beta, _, more = _satisfied(problem, beta, price, max_passes, tolerance, n_rounds=2)
            n_passes += more
        price.constraint = constraint
        beta, converged, more = _satisfied(problem, beta, price, max_passes, tolerance)
        n_passes += more
    theta = problem.original(beta)
    return _reached(problem, theta, free_theta, converged, n_passes, price)


def polish(
    stages: Sequence[Problem], attempt: Attempt, *, max_passes: int, tolerance: float
) -> Attempt:
    """Go on from an attempt, through problems with ever less shrinkage and ever more rows.

    Less shrinkage makes a policy steep, and a steep policy no longer moves: so it comes late and
    by degrees. The last two problems are about the same rows, so that it shows whether the last
    step did any good.
    """
    last = None
    for k, problem in enumerate(stages):
        final = k == len(stages) - 1
        beta = problem.standardised(attempt.theta)
        price = attempt.price
        beta, converged, more = _satisfied(
            problem, beta, price, max_passes, tolerance, n_rounds=_MAX_ROUNDS if final else 3
        )
        theta = problem.original(beta)
        free_theta = attempt.free_theta if price.constraint.binds else theta
        n_passes = attempt.n_passes + more
        last, attempt = attempt, _reached(problem, theta, free_theta, converged, n_passes, price)
    if last is not None and len(stages) > 1 and last.worth > attempt.worth:
        return replace(last, n_passes=attempt.n_passes)
    return attempt


def _reached(
    problem: Problem,
    theta: Floats,
    free_theta: Floats,
    converged: bool,
    n_passes: int,
    price: Price,
) -> Attempt:
    sums, value = problem.at(theta)
    violation = price.constraint.violation(sums.benefits)
    return Attempt(theta, free_theta, value, violation, converged, n_passes, price)


def _satisfied(
    problem: Problem,
    beta: Floats,
    price: Price,
    max_passes: int,
    tolerance: float,
    n_rounds: int = _MAX_ROUNDS,
) -> tuple[Floats, bool, int]:
    """Raise the constraint's price until it is kept, or so many times."""
    n_passes, last = 0, np.inf
    for _ in range(n_rounds):
        beta, converged, more = minimise(problem, beta, price, max_passes, tolerance)
        n_passes += more
        if not price.constraint.binds:
            return beta, converged, n_passes
        benefits = problem.at(problem.original(beta))[0].benefits
        n_passes += 1
        violation = price.constraint.violation(benefits)
        price.multipliers = price.pressure(benefits)
        if violation <= KEPT:
            return beta, converged, n_passes
        if violation > 0.25 * last:
            price.steepness = min(4.0 * price.steepness, _STEEPEST)
        last = violation
    return beta, False, n_passes
