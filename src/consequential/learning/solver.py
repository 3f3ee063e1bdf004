"""The solver: the best policy of a class on a whole log, without a learning rate.

Full batch and deterministic. Without a constraint it is L-BFGS on the objective; with one, an
augmented Lagrangian around it, which comes from looser constraints to the one asked for. The
problem is not convex, so there are several starts. From a sample to more rows, and to less
shrinkage, L-BFGS begins with the curvature there: then few passes are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.learning.constraints import Constraint
from consequential.learning.problem import FitProblem, Price
from consequential.objective.functionals import Sums

Floats = NDArray[np.float64]

# continuation in the gap, on top of the one asked for
_RELAXED = (0.15, 0.1, 0.05, 0.02, 0.01)
KEPT = 1e-4  # excess of a benefit up to which a constraint counts as kept
_MAX_ROUNDS = 15
_MAX_RESTORED = 6
_NEARLY_KEPT = 0.02
_FARTHEST = 1e15  # a longer step comes of a gradient that has vanished, and would overflow in time
_STRANGE = 0.05  # a fall of the objective, by its unit, that more rows do not explain
_STEEP_AT_LAST = 100.0  # what is left to correct of the price is small
_STEEPEST = 2000.0  # a steeper price would drown the utility in rounding
# the shrinkage under which starts are tried comes first; it then goes down to the one asked for
SHRINKING = (1e-4, 3e-6)
# a step that gains less, in units of the utility's scale, is the last one
_SMALLEST_GAIN = 1e-7
_SMALLEST_GAIN_NEARBY = 1e-5
_LEAST_CURVED = 1e-4  # of the most curved direction: no step is longer than that allows
_MANY_PARAMETERS = 500  # the curvature then takes longer than many passes


@dataclass(frozen=True, slots=True)
class Attempt:
    """Where one start ended."""

    theta: Floats
    sums: Sums
    value: float  # the objective there, without the constraint's terms
    violation: float
    converged: bool
    n_passes: int
    price: Price
    shape: Floats

    @property
    def worth(self) -> tuple[bool, float]:
        """By which attempts compare: a constraint that is kept, then the objective."""
        return self.is_kept, self.value if self.is_kept else -self.violation

    @property
    def is_kept(self) -> bool:
        """Whether the constraint is, or all but is."""
        return self.violation <= 10.0 * KEPT


@dataclass
class Climb:
    """An ascent in progress: where it is, what it has learned of the curvature, what it cost.

    With `shape` R, `R R'` is the inverse curvature to begin with: an ascent that goes on from
    another need not find out again which way is steep.
    """

    problem: FitProblem
    price: Price
    beta: Floats
    shape: Floats
    max_passes: int
    n_passes: int = 0
    converged: bool = False
    close: bool = False  # whether it begins so close to the end that Newton's steps are right
    seen: Any = None  # the inverse curvature, after an ascent

    @classmethod
    def of(cls, problem: FitProblem, theta: Floats, price: Price, max_passes: int) -> Climb:
        """Begin at a theta, without knowing anything."""
        beta = problem.rooted(problem.standardised(theta))
        return cls(problem, price, beta, np.eye(len(beta)), max_passes)

    @classmethod
    def on(cls, problem: FitProblem, attempt: Attempt, max_passes: int) -> Climb:
        """Go on from an attempt, maybe on other rows."""
        climb = cls.of(problem, attempt.theta, replace(attempt.price), max_passes)
        climb.n_passes = attempt.n_passes
        return climb

    def minimise(self, smallest_gain: float) -> None:
        """Run L-BFGS until a step gains less than that."""
        from scipy.optimize import minimize

        begin, shape = self.beta, self.shape
        if self.close:
            # L-BFGS makes its first step of length 1; here it should be Newton's
            slope = self.problem.loss(begin, self.price)[1]
            shape = shape * (float(np.linalg.norm(slope @ shape)) or 1.0)

        def loss(gamma: Floats) -> tuple[float, Floats]:
            value, gradient = self.problem.loss(begin + shape @ gamma, self.price)
            return value, gradient @ shape

        found = minimize(
            loss,
            np.zeros(len(begin)),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": self.max_passes,
                "maxfun": self.max_passes,
                "ftol": smallest_gain,
                "gtol": 1e-7,
                "maxcor": 20,
            },
        )
        self.beta = begin + shape @ found.x
        self.seen = shape @ found.hess_inv.todense() @ shape.T
        self.converged = bool(found.success)
        self.n_passes += int(found.nfev)

    def satisfy(
        self, smallest_gain: float, n_rounds: int = _MAX_ROUNDS, *, carried: bool = False
    ) -> None:
        """Raise the constraint's price until it is kept, or so many times.

        With `carried` each round begins with the curvature the last one has seen: quicker, but
        bold where the way is still long.
        """
        last = np.inf
        for _ in range(n_rounds):
            self.minimise(smallest_gain)
            if not self.price.constraint.binds:
                return
            sums = self.problem.at(self.theta)[0]
            self.n_passes += 1
            violation = self.price.constraint.violation(sums)
            self.price.multipliers = self.price.pressure(sums)
            if violation <= KEPT:
                return
            if violation > 0.25 * last:
                self.price.steepness = min(4.0 * self.price.steepness, _STEEPEST)
            last = violation
            if carried:
                self.shape = _root(self.seen)

    def look_around(self) -> None:
        """Find the curvature."""
        values, vectors = np.linalg.eigh(self.problem.curvature(self.beta, self.price))
        least = _LEAST_CURVED * max(float(np.abs(values).max()), 1e-300)
        self.shape = vectors / np.sqrt(np.maximum(np.abs(values), least))
        self.close = True
        self.n_passes += 1

    def restore(self) -> None:
        """Go the shortest way to where the constraint is kept, if it is all but kept."""
        for _ in range(_MAX_RESTORED if self.price.constraint.binds else 0):
            excess, slope = self.problem.worst(self.beta, self.price.constraint)
            self.n_passes += 1
            # shortest by what the curvature says of lengths
            step = slope if self.seen is None else self.seen @ slope
            steep, longest = float(slope @ step), float(np.abs(step).max())
            near = 0.5 * KEPT < excess <= _NEARLY_KEPT
            if not near or excess * longest >= _FARTHEST * steep:
                return
            self.beta = self.beta - (excess / steep) * step

    @property
    def theta(self) -> Floats:
        """The parameters of the inputs as they are."""
        return self.problem.original(self.problem.squared(self.beta)[0])

    def reached(self) -> Attempt:
        """Return what is reached here; one more pass."""
        sums, value = self.problem.at(self.theta)
        violation = self.price.constraint.violation(sums)
        return Attempt(
            self.theta,
            sums,
            value,
            violation,
            self.converged and violation <= KEPT,
            self.n_passes + 1,
            self.price,
            self.shape if self.seen is None else _root(self.seen),
        )


def _root(matrix: Floats) -> Floats:
    """R with `R R'` the matrix, whose all but vanishing directions are kept from vanishing."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    floored = np.maximum(values, 1e-8 * max(float(values.max()), 1e-300))
    root: Floats = vectors * np.sqrt(floored)
    return root


def solve_free(problem: FitProblem, start: Floats, *, max_passes: int) -> Attempt:
    """Return the best policy found from a start (parameters of the inputs as they are)."""
    climb = Climb.of(problem, start, Price(Constraint()), max_passes)
    climb.minimise(_SMALLEST_GAIN)
    return climb.reached()


def constrain(
    problem: FitProblem,
    attempt: Attempt,
    constraint: Constraint,
    *,
    by_degrees: bool,
    max_passes: int,
) -> Attempt:
    """Go on from a free attempt to the best that keeps a constraint.

    By degrees it is reached by way of looser constraints, each tightened from the last. That is for
    starts that break the constraint by far, such as the best policy without it.
    """
    climb = Climb.on(problem, attempt, max_passes)
    for by in _RELAXED if by_degrees else ():
        climb.price.constraint = constraint.relaxed(by)
        climb.satisfy(_SMALLEST_GAIN_NEARBY, n_rounds=2)
    climb.price.constraint = constraint
    climb.satisfy(_SMALLEST_GAIN)
    return climb.reached()


def distinct(problem: FitProblem, attempts: Mapping[str, Attempt]) -> dict[str, Attempt]:
    """Return attempts of which no two ended in the same place; of those that did, the first."""
    kept: dict[str, Attempt] = {}
    for name, attempt in attempts.items():
        here = problem.standardised(attempt.theta)
        others = (problem.standardised(other.theta) for other in kept.values())
        if not any(np.allclose(here, there, rtol=0.05, atol=0.05) for there in others):
            kept[name] = attempt
    return kept


def polish(stages: Sequence[FitProblem], attempt: Attempt, *, max_passes: int) -> Attempt:
    """Go on from an attempt, through problems with ever less shrinkage and ever more rows.

    Less shrinkage makes a policy steep, and a steep policy no longer moves: so it comes late and
    by degrees. Where a step does no good the one before it stands.
    """
    on_the_way = [attempt]
    for problem in stages[:-1]:
        on_the_way.append(_bettered(problem, on_the_way[-1], max_passes))
    last, tried = stages[-1], []
    for k, attempt in enumerate(reversed(on_the_way)):
        # too steep a policy cannot be moved to where all rows want it: then one that is less so
        l2 = last.l2 if k == 0 else max(last.l2, stages[max(len(on_the_way) - 2 - k, 0)].l2)
        problem = replace(last, l2=l2)
        found = _bettered(problem, attempt, max_passes, final=True)
        tried.append(found)
        if found.is_kept and found.value > attempt.value - _STRANGE * last.unit:
            break
    return max(tried, key=lambda found: found.worth)


def _bettered(
    problem: FitProblem,
    attempt: Attempt,
    max_passes: int,
    *,
    final: bool = False,
) -> Attempt:
    """Ascend from an attempt; stay there if that is better."""
    climb = Climb.on(problem, attempt, max_passes)
    before = climb.reached()
    if final:
        climb.price.steepness = max(climb.price.steepness, _STEEP_AT_LAST)
    if len(climb.beta) <= _MANY_PARAMETERS:
        climb.look_around()
        climb.satisfy(_SMALLEST_GAIN_NEARBY, 2)
    else:
        climb.shape = attempt.shape
        climb.satisfy(_SMALLEST_GAIN, 3, carried=True)
    if final:
        climb.restore()
    after = climb.reached()
    # a constraint that was all but kept, and now is, may cost a little
    mended = after.violation <= KEPT < before.violation
    affordable = after.value > before.value - _STRANGE * problem.unit
    if after.worth >= before.worth or (mended and affordable):
        return after
    return replace(before, converged=attempt.converged, n_passes=after.n_passes)
