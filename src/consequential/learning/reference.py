"""The ascent in NumPy: what the compiled kernel computes, written to be read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consequential.learning.steps import Step, StepRule, Surroundings
from consequential.objective import NOBODY, ROOT_TWO, Coefficients, Objective, decided, deviations
from consequential.policies import LOGISTIC, Policy
from consequential.policies.uniforms import UniformStream

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Circle:
    """Rows in random order, read in a circle of minibatches."""

    phi: Floats
    scale: Floats  # mean(phi phi')
    coefficients: Coefficients
    shares: Floats  # of the groups among all rows of the log, of which these may be a part
    batch_size: int
    n_reference: int

    @property
    def n_batches(self) -> int:
        """How many minibatches the circle is cut into."""
        return len(self.phi) // self.batch_size

    @property
    def on_the_spot(self) -> bool:
        """Whether residuals and slopes come from the minibatch itself, as the paper prints it."""
        return self.n_reference == 0 or self.n_batches == 1

    @property
    def memory(self) -> float:
        """How many minibatches a running mean is worth."""
        return max(1.0, self.n_reference / self.batch_size)

    @property
    def n_before(self) -> int:
        """How many minibatches are looked at before the first step."""
        return before_first_step(self.n_reference, self.batch_size, self.n_batches)

    @property
    def refresh_every(self) -> int:
        """After how many steps their metric, and with it the slopes, is brought up to date."""
        return max(1, int(self.memory / 4))

    def value(self, objective: Objective, policy: Policy, n_checked: int) -> float:
        """Return the objective estimated on the first rows."""
        first = slice(0, n_checked)
        propensity = policy.probability(self.phi[first] @ policy.theta)
        return objective.value_at(self.coefficients.take(first).sums(propensity))


def before_first_step(n_reference: int, batch_size: int, n_batches: int) -> int:
    """Return how many minibatches are looked at before the first step."""
    if n_reference == 0 or n_batches == 1:
        return 0
    return min(n_batches, 2 * max(1, n_reference // (2 * batch_size)))


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
    if policy.support is not None and policy.support.overrules:
        raise ValueError(
            "minibatch ascent learns for everybody, but this policy decides only on people whom "
            "the log it was learned from supports: learn with FairPolicyLearner, or ascend from "
            "dataclasses.replace(policy, support=None)"
        )
    theta, penalty, rejected = policy.theta.copy(), objective.penalty, 0
    looks = penalty > 0 or step_rule.looks_around
    draws = UniformStream(key)
    found = _Running(circle, objective)
    slopes, step = np.zeros((0, len(theta))), step_rule.prepare(_nowhere(circle), 0.0, rate)
    for j in range(-circle.n_before, n_iterations):
        batch = _Batch(circle, objective, policy, theta, j % circle.n_batches, draws)
        if looks and circle.on_the_spot:
            found.absorb(batch)
        change = np.zeros(len(theta))
        if j >= 0:
            if looks and j % circle.refresh_every == 0:
                slopes, step = found.prepared(step_rule, theta, rate)
            gradient = batch.utility_gradient()
            if penalty:
                gradient = gradient - penalty * (found.residuals() @ slopes)
            change = step(gradient, theta)
            if not np.isfinite(change).all():
                change = np.zeros(len(theta))
                rejected += 1
        if looks and not circle.on_the_spot:
            found.absorb(batch)
            found.follow(change)
        theta = theta + change
    return theta, rejected


def _nowhere(circle: Circle) -> Surroundings:
    """Return surroundings for a step rule that does not look at them."""
    none, origin = np.zeros((0, len(circle.scale))), np.zeros(len(circle.scale))
    return Surroundings(origin, circle.scale, 1.0, circle.scale, none, 0.5, origin)


class _Batch:
    """What a minibatch says about an objective at theta: estimates for the whole log."""

    def __init__(
        self,
        circle: Circle,
        objective: Objective,
        policy: Policy,
        theta: Floats,
        number: int,
        draws: UniformStream,
    ) -> None:
        rows = slice(number * circle.batch_size, (number + 1) * circle.batch_size)
        self.number, self.policy = number, policy
        self.phi = circle.phi[rows]
        self.rows = circle.coefficients.take(rows)
        self.eta = self.phi @ theta
        self.taken, self.slope = decided(objective.decisions, policy, self.eta, draws)

    def utility_gradient(self) -> Floats:
        gradient: Floats = (self.rows.utility * self.slope) @ self.phi
        return gradient

    def sizes(self) -> Floats:
        """Groups' shares of the minibatch."""
        return np.bincount(self.rows.group, minlength=self.rows.n_groups) / len(self.phi)

    def by_group(self, by_row: Floats) -> Floats:
        """Return sums over each benefit's rows of a group, of numerators and of denominators."""
        member = self.rows.group[:, None] == np.arange(self.rows.n_groups)
        columns = by_row.reshape(len(by_row), -1)
        sums = np.zeros((2, len(self.rows.benefits), self.rows.n_groups, columns.shape[1]))
        for b, benefit in enumerate(self.rows.benefits):
            sums[0, b] = (member * benefit.values[:, None]).T @ columns
            if benefit.denominator is not None:
                sums[1, b] = (member * benefit.denominator[:, None]).T @ columns
        return sums.reshape(sums.shape[:3] + by_row.shape[1:])


@dataclass(slots=True)
class _Levels:
    """Means of functionals: numerators and denominators of benefits, and sizes of groups."""

    sums: Floats  # (2, benefits, groups)
    sizes: Floats  # (groups,)

    def benefits(self, circle: Circle) -> tuple[Floats, Floats]:
        """Return benefits, NaN where nobody is there, and what their slopes are divided by.

        Sums are scaled to the groups' shares of the whole log: how many of a group happen to be
        in a minibatch is noise that need not be.
        """
        rows = circle.coefficients
        there = self.sizes > 0.0
        scale = np.divide(circle.shares, self.sizes, out=np.zeros(len(there)), where=there)
        numerators, denominators = self.sums * scale
        for b, benefit in enumerate(rows.benefits):
            numerators[b] += benefit.constant
            if benefit.denominator is None:
                denominators[b] = 1.0
        defined = np.array([benefit.defined for benefit in rows.benefits]).reshape(numerators.shape)
        known = defined & there & (denominators > NOBODY)
        nan = np.full_like(numerators, np.nan)
        benefits = np.divide(numerators, denominators, out=nan, where=known)
        divisor = np.divide(scale, denominators, out=np.zeros_like(numerators), where=known)
        return benefits, divisor


@dataclass(slots=True)
class _Running:
    """Running means over minibatches, followed to first order as theta moves.

    Minibatches of even number say how large residuals are, those of odd number which slopes they
    have: the product of the two would be biased if both came from the same rows.
    """

    circle: Circle
    objective: Objective
    levels: _Levels = field(init=False)
    beside: _Levels = field(init=False)  # of the rows that slopes come from
    slopes: Floats = field(init=False)  # of `beside.sums`: (2, benefits, groups, inputs)
    curvature: Floats = field(init=False)
    steepness: float = 0.0
    acceptance: float = 0.0
    acceptance_slope: Floats = field(init=False)
    n_absorbed: list[int] = field(default_factory=lambda: [0, 0])

    def __post_init__(self) -> None:
        rows, m = self.circle.coefficients, self.circle.phi.shape[1]
        shape = (2, len(rows.benefits), rows.n_groups)
        self.levels = _Levels(np.zeros(shape), np.zeros(rows.n_groups))
        self.beside = _Levels(np.zeros(shape), np.zeros(rows.n_groups))
        self.slopes, self.curvature = np.zeros((*shape, m)), np.zeros((m, m))
        self.acceptance_slope = np.zeros(m)

    def absorb(self, batch: _Batch) -> None:
        """Bring a minibatch into the means."""
        on_the_spot = self.circle.on_the_spot
        if on_the_spot or batch.number % 2 == 0:
            self._absorb_levels(batch, self._weight(0))
        if on_the_spot or batch.number % 2 == 1:
            self._absorb_slopes(batch, self._weight(1))

    def _weight(self, side: int) -> float:
        """As a plain mean at first, then so that minibatches are forgotten."""
        self.n_absorbed[side] += 1
        if self.circle.on_the_spot:
            return 1.0
        return max(2.0 / (self.circle.memory + 1.0), 1.0 / self.n_absorbed[side])

    def _absorb_levels(self, batch: _Batch, weight: float) -> None:
        if self.objective.penalty:
            self.levels.sums += weight * (batch.by_group(batch.taken) - self.levels.sums)
            self.levels.sizes += weight * (batch.sizes() - self.levels.sizes)

    def _absorb_slopes(self, batch: _Batch, weight: float) -> None:
        phi, policy = batch.phi, batch.policy
        propensity, derivative = policy.probability(batch.eta), policy.derivative(batch.eta)
        steepness = LOGISTIC.derivative(batch.eta)
        if self.objective.penalty:
            by_input = batch.by_group(batch.slope[:, None] * phi)
            self.slopes += weight * (by_input - self.slopes)
            taken = batch.taken if self.circle.on_the_spot else propensity
            self.beside.sums += weight * (batch.by_group(taken) - self.beside.sums)
            self.beside.sizes += weight * (batch.sizes() - self.beside.sizes)
        squares = (phi * steepness[:, None]).T @ phi / len(phi)
        self.curvature += weight * (squares - self.curvature)
        self.steepness += weight * (float(steepness.mean()) - self.steepness)
        self.acceptance += weight * (float(propensity.mean()) - self.acceptance)
        self.acceptance_slope += weight * (derivative @ phi / len(phi) - self.acceptance_slope)

    def follow(self, change: Floats) -> None:
        """Bring the means to where theta goes next."""
        self.acceptance += float(self.acceptance_slope @ change)
        there = self.beside.sizes > 0.0
        sizes = np.zeros(len(there))
        ratio = np.divide(self.levels.sizes, self.beside.sizes, out=sizes, where=there)
        drift = self.slopes @ change
        self.beside.sums += drift
        self.levels.sums += ratio * drift

    def residuals(self) -> Floats:
        """Return the residuals r of the penalty, `lambda/2 sum r^2`."""
        return ROOT_TWO * deviations(self.levels.benefits(self.circle)[0]).ravel()

    def prepared(self, rule: StepRule, theta: Floats, rate: float) -> tuple[Floats, Step]:
        """Return the residuals' slopes, and the step that goes with them."""
        none = np.zeros((0, len(theta)))
        slopes = self._residual_slopes() if self.objective.penalty else none
        around = Surroundings(
            theta.copy(),
            self.curvature.copy(),
            self.steepness,
            self.circle.scale,
            slopes,
            self.acceptance,
            self.acceptance_slope.copy(),
        )
        return slopes, rule.prepare(around, self.objective.penalty, rate)

    def _residual_slopes(self) -> Floats:
        benefits, divisor = self.beside.benefits(self.circle)
        known = np.isfinite(benefits)[..., None]
        numerators, denominators = self.slopes
        by_benefit = numerators - np.nan_to_num(benefits)[..., None] * denominators
        by_benefit = by_benefit * divisor[..., None]
        mean = (by_benefit * known).sum(axis=1, keepdims=True)
        mean /= np.maximum(known.sum(axis=1, keepdims=True), 1)
        m = self.circle.phi.shape[1]
        slopes: Floats = ROOT_TWO * ((by_benefit - mean) * known).reshape(-1, m)
        return slopes
