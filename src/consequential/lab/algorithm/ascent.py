"""The ascent in NumPy, minibatch by minibatch: what the compiled kernel computes, for any link.

An iteration takes the gradient of the utility from one minibatch. The penalty is a product,
residual times slope of the residual, and would be biased if both came from the same rows. So
minibatches of even number say how large the residuals are and those of odd number which slopes they
have. Both are running means over earlier minibatches, moved to first order as theta moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from consequential.lab.algorithm.steps import Step, StepRule, Surroundings
from consequential.lab.kernels import ROOT_TWO
from consequential.lab.kernels.batch_sums import BatchRows, Benefits
from consequential.lab.kernels.compiled_ascent import Ascent
from consequential.lab.kernels.random import UniformStream
from consequential.objective.functionals import NOBODY
from consequential.objective.objective import centred, decided
from consequential.policy import Policy
from consequential.policy.links import LOGISTIC

Floats = NDArray[np.float64]
Array = Any  # a NumPy or a JAX array


@dataclass(frozen=True, slots=True)
class Schedule:
    """How an ascent uses its minibatches."""

    n_batches: int
    batch_size: int
    n_reference: int

    @property
    def in_batch(self) -> bool:
        """Whether residuals and slopes come from the minibatch itself, as the paper prints it."""
        return self.n_reference == 0 or self.n_batches == 1

    @property
    def memory(self) -> float:
        """How many minibatches a running mean is worth."""
        return max(1.0, self.n_reference / self.batch_size)

    @property
    def n_before(self) -> int:
        """How many minibatches enter the means before the first step."""
        return 0 if self.in_batch else min(self.n_batches, 2 * max(1, int(self.memory / 2)))

    @property
    def refresh_every(self) -> int:
        """After how many iterations the step's metric and the slopes are updated."""
        return max(1, int(self.memory / 4))

    def weight(self, n_absorbed: int) -> float:
        """The weight of the newest minibatch: a plain mean at first, then an exponential one."""
        return 1.0 if self.in_batch else max(2.0 / (self.memory + 1.0), 1.0 / n_absorbed)


def ascend(
    rows: BatchRows, policy: Policy, rule: StepRule, ascent: Ascent, scale: Floats, key: int
) -> tuple[Floats, int]:
    """Return theta after the ascent, and how many steps were not finite and not taken.

    `scale` is `mean(phi phi')`; `key` is that of the random numbers for sampled decisions.
    """
    schedule = Schedule(
        rows.inputs.shape[1] // ascent.batch_size, ascent.batch_size, ascent.n_reference
    )
    theta, penalty, rejected = policy.theta.copy(), ascent.penalty, 0
    looks = penalty > 0 or rule.looks_around
    draws = UniformStream(key)
    means = Means(rows, schedule, penalty > 0)
    none, origin = np.zeros((0, len(theta))), np.zeros(len(theta))
    slopes, nowhere = none, Surroundings(origin, scale, 1.0, scale, none, 0.5, origin)
    step: Step = rule.prepare(nowhere, 0.0, ascent.rate)
    for j in range(-schedule.n_before, ascent.n_iterations):
        batch = Minibatch(rows, j % schedule.n_batches, policy, theta, ascent, draws)
        if looks and schedule.in_batch:
            means.absorb(batch)
        change = np.zeros(len(theta))
        if j >= 0:
            if looks and j % schedule.refresh_every == 0:
                slopes = means.residual_slopes() if penalty else none
                around = means.surroundings(theta, scale, slopes)
                step = rule.prepare(around, penalty, ascent.rate)
            gradient = batch.gradient()
            if penalty:
                gradient = gradient - penalty * (means.residuals() @ slopes)
            change = step(gradient, theta)
            if not np.isfinite(change).all():
                change = np.zeros(len(theta))
                rejected += 1
        if looks and not schedule.in_batch:
            means.absorb(batch)
            means.follow(change)
        theta = theta + change
    return theta, rejected


class Minibatch:
    """A minibatch at theta; its sums are estimates for the whole log."""

    def __init__(
        self,
        rows: BatchRows,
        number: int,
        policy: Policy,
        theta: Floats,
        ascent: Ascent,
        draws: UniformStream,
    ) -> None:
        size = ascent.batch_size
        here = slice(number * size, (number + 1) * size)
        self.number, self.policy = number, policy
        self.phi = rows.inputs[:, here].T
        self.utility, self.columns = (
            rows.total / size * each[..., here] for each in (rows.utility, rows.columns)
        )
        self.shares = rows.batch_shares[number]
        self.eta = self.phi @ theta
        how: Literal["sampled", "expected"] = "sampled" if ascent.sampled else "expected"
        self.decision, self.slope = decided(how, policy, self.eta, draws)

    def gradient(self) -> Floats:
        """Return the gradient of the utility."""
        gradient: Floats = (self.utility * self.slope) @ self.phi
        return gradient


class Means:
    """Running means over minibatches."""

    def __init__(self, rows: BatchRows, schedule: Schedule, penalised: bool) -> None:
        self.benefits, self.schedule, self.penalised = rows.benefits, schedule, penalised
        n_columns, m = len(rows.columns), len(rows.inputs)
        n_groups = len(rows.benefits.shares)
        self.levels, self.level_shares = np.zeros(n_columns), np.zeros(n_groups)
        # of the rows that slopes come from
        self.sums, self.shares = np.zeros(n_columns), np.zeros(n_groups)
        self.slopes = np.zeros((n_columns, m))
        self.curvature, self.acceptance_slope = np.zeros((m, m)), np.zeros(m)
        self.steepness, self.acceptance = 0.0, 0.0
        self.n_absorbed = [0, 0]

    def absorb(self, batch: Minibatch) -> None:
        """Bring a minibatch into the means."""
        in_batch = self.schedule.in_batch
        if self.penalised and (in_batch or batch.number % 2 == 0):
            self.absorb_levels(batch, self._weight(0))
        if in_batch or batch.number % 2 == 1:
            self.absorb_slopes(batch, self._weight(1))

    def _weight(self, side: int) -> float:
        self.n_absorbed[side] += 1
        return self.schedule.weight(self.n_absorbed[side])

    def absorb_levels(self, batch: Minibatch, weight: float) -> None:
        """Bring a minibatch into the means of what residuals are made of."""
        self.levels += weight * (batch.columns @ batch.decision - self.levels)
        self.level_shares += weight * (batch.shares - self.level_shares)

    def absorb_slopes(self, batch: Minibatch, weight: float) -> None:
        """Bring a minibatch into the means of slopes and of the step's metric."""
        phi, policy = batch.phi, batch.policy
        propensity, derivative = policy.probability(batch.eta), policy.derivative(batch.eta)
        steepness = LOGISTIC.derivative(batch.eta)
        if self.penalised:
            decision = batch.decision if self.schedule.in_batch else propensity
            self.sums += weight * (batch.columns @ decision - self.sums)
            self.slopes += weight * ((batch.columns * batch.slope) @ phi - self.slopes)
            self.shares += weight * (batch.shares - self.shares)
        squares = (phi * steepness[:, None]).T @ phi / len(phi)
        self.curvature += weight * (squares - self.curvature)
        self.steepness += weight * (float(steepness.mean()) - self.steepness)
        self.acceptance += weight * (float(propensity.mean()) - self.acceptance)
        self.acceptance_slope += weight * (derivative @ phi / len(phi) - self.acceptance_slope)

    def follow(self, change: Floats) -> None:
        """Move the means to where theta goes next."""
        self.acceptance += float(self.acceptance_slope @ change)
        drift = self.slopes @ change
        self.sums += drift
        n_repeats = len(drift) // len(self.shares)
        self.levels += np.tile(ratio(self.level_shares, self.shares), n_repeats) * drift

    def residuals(self) -> Floats:
        """Return the residuals r of the penalty, `lambda/2 sum r^2`."""
        found: Floats = residuals(self.benefits, self.levels, self.level_shares)
        return found

    def residual_slopes(self) -> Floats:
        """Return the gradients of the residuals, one row each."""
        found = group_benefits(self.benefits, self.sums, self.shares)
        values, factors = (each[..., None] for each in found)
        m = self.slopes.shape[1]
        slopes = self.slopes.reshape(-1, *self.benefits.constant.shape, m)
        by_benefit = factors * slopes[0]
        if len(slopes) > 1:
            by_benefit = by_benefit - factors * values * slopes[1]
        centred_slopes: Floats = ROOT_TWO * centred(by_benefit, factors > 0.0).reshape(-1, m)
        return centred_slopes

    def surroundings(self, theta: Floats, scale: Floats, residual_slopes: Floats) -> Surroundings:
        """Return what a step rule needs to know about the neighbourhood of theta."""
        return Surroundings(
            theta.copy(),
            self.curvature.copy(),
            self.steepness,
            scale,
            residual_slopes,
            self.acceptance,
            self.acceptance_slope.copy(),
        )


# The functions below are for NumPy and JAX arrays.


def residuals(benefits: Benefits, sums: Array, shares: Array) -> Array:
    """Return the residuals r of the penalty, `lambda/2 sum r^2`, from sums of columns."""
    values, factors = group_benefits(benefits, sums, shares)
    return ROOT_TWO * centred(values, factors > 0.0).ravel()


def group_benefits(benefits: Benefits, sums: Array, shares: Array) -> tuple[Array, Array]:
    """Return the groups' benefits and the factors of their slopes, both 0 where undefined.

    Sums are scaled to the groups' shares of the whole log: how many people of a group happen to
    be in a minibatch is noise that can be avoided.
    """
    constant, defined, is_ratio, log_shares = benefits
    xp = sums.__array_namespace__()
    scale, denominator = ratio(log_shares, shares), xp.ones(constant.shape)
    scaled = scale * sums.reshape(-1, *constant.shape)
    if len(scaled) > 1:
        denominator = xp.where(is_ratio[:, None], scaled[1], 1.0)
    known = defined & (scale > 0.0) & (denominator > NOBODY)
    divisor = xp.where(known, denominator, 1.0)
    values = xp.where(known, (constant + scaled[0]) / divisor, 0.0)
    return values, xp.where(known, scale / divisor, 0.0)


def ratio(numerator: Array, denominator: Array) -> Array:
    """The quotient, 0 where nobody is there to divide by."""
    xp = denominator.__array_namespace__()
    there = denominator > 0.0
    return xp.where(there, numerator / xp.where(there, denominator, 1.0), 0.0)
