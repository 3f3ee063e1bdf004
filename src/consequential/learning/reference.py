"""The ascent in NumPy: what the compiled kernel computes, written to be read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.learning.steps import StepRule, Surroundings
from consequential.objective import ROOT_TWO, Coefficients, Objective, decided, deviations
from consequential.policies import LOGISTIC, Policy
from consequential.policies.uniforms import UniformStream

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Circle:
    """Rows in random order, read in a circle: minibatches, and the windows before them."""

    phi: Floats
    scale: Floats  # mean(phi phi')
    coefficients: Coefficients
    batch_size: int
    n_reference: int

    @property
    def refresh_every(self) -> int:
        """After how many minibatches a quarter of a window has been passed.

        Less often, large penalties overshoot; with shorter windows, their noise is theta's.
        """
        return max(1, self.n_reference // (4 * self.batch_size))

    def rows(self, start: int, length: int) -> slice | NDArray[np.intp]:
        """Positions of a stretch of the circle."""
        start %= len(self.phi)
        if start + length <= len(self.phi):
            return slice(start, start + length)
        return np.arange(start, start + length) % len(self.phi)

    def value(self, objective: Objective, policy: Policy, n_checked: int) -> float:
        """Return the objective estimated on the first rows."""
        first = slice(0, n_checked)
        propensity = policy.probability(self.phi[first] @ policy.theta)
        return objective.value_at(self.coefficients.take(first).sums(propensity))


def ascend(
    circle: Circle,
    objective: Objective,
    policy: Policy,
    step_rule: StepRule,
    rate: float,
    n_iterations: int,
    key: int,
) -> tuple[Floats, int]:
    """Return theta after the ascent, and how many steps were not finite and not taken."""
    look = _Look(circle, objective, policy, UniformStream(key))
    theta, penalty = policy.theta.copy(), objective.penalty
    rejected = 0
    residuals, around = np.zeros(0), look.nowhere(theta)
    step = step_rule.prepare(around, penalty, rate)
    for j in range(n_iterations):
        position = j * circle.batch_size
        if (penalty or step_rule.looks_around) and j % circle.refresh_every == 0:
            residuals = look.residuals(theta, position)
            around = look.around(theta, position)
            step = step_rule.prepare(around, penalty, rate)
        gradient = look.utility_gradient(theta, position)
        if penalty:
            slopes = around.residual_slopes
            now = residuals + slopes @ (theta - around.theta)
            gradient = gradient - penalty * (now @ slopes)
        change = step(gradient, theta)
        if np.isfinite(change).all():
            theta = theta + change
        else:
            rejected += 1
    return theta, rejected


@dataclass(frozen=True, slots=True)
class _Look:
    """What rows of the circle say about an objective at theta."""

    circle: Circle
    objective: Objective
    policy: Policy
    draws: UniformStream

    def _taken(self, eta: Floats) -> Floats:
        return decided(self.objective.decisions, self.policy, eta, self.draws)[0]

    def _slope(self, eta: Floats) -> Floats:
        return decided(self.objective.decisions, self.policy, eta, self.draws)[1]

    def utility_gradient(self, theta: Floats, position: int) -> Floats:
        circle = self.circle
        rows = circle.rows(position, circle.batch_size)
        phi = circle.phi[rows]
        slope = self._slope(phi @ theta)
        scale = len(circle.phi) / len(phi)
        gradient: Floats = (circle.coefficients.utility[rows] * slope) @ phi * scale
        return gradient

    def residuals(self, theta: Floats, position: int) -> Floats:
        """Return the residuals r of the penalty, `lambda/2 sum r^2`, from the far window."""
        if not self.objective.penalty:
            return np.zeros(0)
        circle = self.circle
        window = circle.rows(position - 2 * circle.n_reference, circle.n_reference)
        taken = self._taken(circle.phi[window] @ theta)
        benefits = circle.coefficients.take(window).sums(taken).benefits
        return ROOT_TWO * deviations(benefits).ravel()

    def around(self, theta: Floats, position: int) -> Surroundings:
        """Return what the near window says about the neighbourhood of theta."""
        circle = self.circle
        window = circle.rows(position - circle.n_reference, circle.n_reference)
        phi = circle.phi[window]
        eta = phi @ theta
        propensity, derivative = self.policy.probability(eta), self.policy.derivative(eta)
        steepness = LOGISTIC.derivative(eta)
        slopes = np.zeros((0, len(theta)))
        if self.objective.penalty:
            here = circle.coefficients.take(window)
            sums = here.sums(propensity)
            by_benefit = here.benefit_slopes(sums, self._slope(eta), phi)
            known = np.isfinite(sums.benefits)[:, :, None]
            mean = (by_benefit * known).sum(axis=1, keepdims=True)
            mean /= np.maximum(known.sum(axis=1, keepdims=True), 1)
            slopes = ROOT_TWO * ((by_benefit - mean) * known).reshape(-1, len(theta))
        return Surroundings(
            theta.copy(),
            (phi * steepness[:, None]).T @ phi / len(phi),
            float(steepness.mean()),
            circle.scale,
            slopes,
            float(propensity.mean()),
            derivative @ phi / len(phi),
        )

    def nowhere(self, theta: Floats) -> Surroundings:
        """Return surroundings for a step rule that does not look at them."""
        none, scale = np.zeros((0, len(theta))), self.circle.scale
        return Surroundings(theta, scale, 1.0, scale, none, 0.5, np.zeros(len(theta)))
