"""The solver: the best policy of a class on a whole log, without a learning rate.

Full batch and deterministic. Without a constraint it is L-BFGS on the objective; with one, an
augmented Lagrangian around it, which comes from looser constraints to the one asked for. The
problem is not convex, so there are several starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from consequential.learning.constraints import Constraint
from consequential.learning.problem import Price, Problem

Floats = NDArray[np.float64]

# continuation in the gap, on top of the one asked for
_RELAXED = (0.15, 0.1, 0.05, 0.02, 0.01)
KEPT = 1e-4  # excess of a benefit up to which a constraint counts as kept
_MAX_ROUNDS = 15
_MAX_RESTORED = 6
_NEARLY_KEPT = 0.02
_STEEPEST = 2000.0  # a steeper price would drown the utility in rounding
# the shrinkage under which starts are tried comes first; it then goes down to the one asked for
SHRINKING = (1e-4, 3e-6, 1e-7)
# a step that gains less, in units of the utility's scale, is the last one; where a sample has led
# close already, the rest is far below what the log can tell
_SMALLEST_GAIN = 1e-7
_SMALLEST_GAIN_AT_LAST = 1e-6


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
        return self.is_kept, self.value if self.is_kept else -self.violation

    @property
    def is_kept(self) -> bool:
        """Whether the constraint is, or all but is."""
        return self.violation <= 10.0 * KEPT


def minimise(
    problem: Problem, beta: Floats, price: Price, max_passes: int, smallest_gain: float
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
            "ftol": smallest_gain,
            "gtol": 1e-7,
            "maxcor": 20,
        },
    )
    return found.x, bool(found.success), int(found.nfev)


def solve_free(problem: Problem, start: Floats, *, max_passes: int) -> Attempt:
    """Return the best policy found from a start (parameters of the inputs as they are)."""
    price = Price(Constraint())
    beta, converged, n_passes = minimise(
        problem, problem.standardised(start), price, max_passes, _SMALLEST_GAIN
    )
    theta = problem.original(beta)
    return _reached(problem, theta, theta, converged, n_passes + 1, price)


def constrain(
    problem: Problem, attempt: Attempt, constraint: Constraint, *, max_passes: int
) -> Attempt:
    """Go on from a free attempt to the best that keeps a constraint, by way of looser ones."""
    if not constraint.binds:
        return attempt
    price, beta, n_passes = Price(constraint), problem.standardised(attempt.theta), attempt.n_passes
    for by in _RELAXED:
        price.constraint = constraint.relaxed(by)
        beta, _, more = _satisfied(problem, beta, price, max_passes, _SMALLEST_GAIN, n_rounds=2)
        n_passes += more
    price.constraint = constraint
    beta, converged, more = _satisfied(problem, beta, price, max_passes, _SMALLEST_GAIN)
    theta, n_passes = problem.original(beta), n_passes + more
    return _reached(problem, theta, attempt.theta, converged, n_passes, price)


def distinct(problem: Problem, attempts: Mapping[str, Attempt]) -> dict[str, Attempt]:
    """Return attempts of which no two ended in the same place; of those that did, the first."""
    kept: dict[str, Attempt] = {}
    for name, attempt in attempts.items():
        here = problem.standardised(attempt.theta)
        others = (problem.standardised(other.theta) for other in kept.values())
        if not any(np.allclose(here, there, rtol=0.05, atol=0.05) for there in others):
            kept[name] = attempt
    return kept


def polish(stages: Sequence[Problem], attempt: Attempt, *, max_passes: int) -> Attempt:
    """Go on from an attempt, through problems with ever less shrinkage and ever more rows.

    Less shrinkage makes a policy steep, and a steep policy no longer moves: so it comes late and
    by degrees. Where a step does no good the one before it stands.
    """
    on_the_way = [attempt]
    for problem in stages[:-1]:
        on_the_way.append(_bettered(problem, on_the_way[-1], max_passes, _SMALLEST_GAIN))
    # too steep a policy cannot be moved to where all rows want it: then from a less steep one
    more_rows = len(stages) > 1 and stages[-1].n_rows > stages[-2].n_rows
    gain = _SMALLEST_GAIN_AT_LAST if more_rows else _SMALLEST_GAIN
    for attempt in reversed(on_the_way):
        found = _bettered(stages[-1], attempt, max_passes, gain, final=True)
        if found.is_kept:
            break
    return found


def _bettered(
    problem: Problem, attempt: Attempt, max_passes: int, gain: float, *, final: bool = False
) -> Attempt:
    """Ascend from an attempt; stay there if that is better."""
    price = replace(attempt.price)
    n_passes = attempt.n_passes + 1
    before = _reached(
        problem, attempt.theta, attempt.free_theta, attempt.converged, n_passes, price
    )
    beta, converged, more = _satisfied(
        problem, problem.standardised(attempt.theta), price, max_passes, gain, n_rounds=3
    )
    n_passes += more
    if final and price.constraint.binds:
        beta, more = _restored(problem, beta, price.constraint)
        n_passes += more
    theta = problem.original(beta)
    free_theta = attempt.free_theta if price.constraint.binds else theta
    after = _reached(problem, theta, free_theta, converged, n_passes, price)
    return after if after.worth >= before.worth else replace(before, n_passes=n_passes)


def _restored(problem: Problem, beta: Floats, constraint: Constraint) -> tuple[Floats, int]:
    """Go the shortest way to where the constraint is kept, if it is all but kept."""
    for k in range(_MAX_RESTORED):
        excess, slope = problem.worst(beta, constraint)
        steep = float(slope @ slope)
        if excess <= 0.5 * KEPT or excess > _NEARLY_KEPT or steep == 0.0:
            return beta, k + 1
        beta = beta - (excess / steep) * slope
    return beta, _MAX_RESTORED


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
    smallest_gain: float,
    n_rounds: int = _MAX_ROUNDS,
) -> tuple[Floats, bool, int]:
    """Raise the constraint's price until it is kept, or so many times."""
    n_passes, last = 0, np.inf
    for _ in range(n_rounds):
        beta, converged, more = minimise(problem, beta, price, max_passes, smallest_gain)
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
