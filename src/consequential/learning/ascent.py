"""UpdatePolicy: minibatch ascent on the objective, from logged decisions."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from consequential.learning.steps import PreconditionedStep, StepRule, Surroundings
from consequential.log import DecisionLog
from consequential.objective import (
    Coefficients,
    Objective,
    decided,
    deviations,
    effective_sample_size,
)
from consequential.policies import LOGISTIC, Policy

Floats = NDArray[np.float64]

# lambda/2 sum r^2 with r = sqrt(2) deviation is the objective's penalty
_ROOT_TWO = 2.0**0.5


@dataclass(frozen=True, slots=True)
class Update:
    """A learned policy, the estimated objective before and after, and what went wrong."""

    policy: Policy
    objective_before: float
    objective_after: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdatePolicy:
    """Algorithm 1's UpdatePolicy [K20: UpdatePolicy].

    Each of M iterations takes the utility's gradient from a minibatch of B rows. The penalty
    is a product, residual times residual's slope; taking both from the same rows would bias it,
    so they come from two further windows of `n_reference` rows, which precede the minibatch in
    one random order of the log and are refreshed as it passes a quarter of their length. Between
    refreshes the residuals follow theta to first order.

    Parameters
    ----------
    objective
        What to ascend.
    n_iterations, batch_size
        The paper's M and B.
    step
        `PreconditionedStep()` or the paper's `GradientStep(alpha)`.
    n_reference
        Rows in each reference window, as far as the log has so many beside a minibatch.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> world = cq.worlds.first_setting()
    >>> policy = world.initial_policy("logistic")
    >>> log = world.collect(policy, 32_768, np.random.default_rng(0))
    >>> learn = cq.UpdatePolicy(cq.Objective(world.cost), n_iterations=128, batch_size=256)
    >>> learned = learn(policy, log, rng=np.random.default_rng(1)).policy
    >>> world.exact(learned).utility > world.exact(policy).utility + 0.005
    True
    """

    objective: Objective
    n_iterations: int
    batch_size: int
    step: StepRule = field(default_factory=PreconditionedStep)
    n_reference: int = 2048

    def __post_init__(self) -> None:
        for name in ("n_iterations", "batch_size", "n_reference"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)!r}")

    def __call__(
        self, policy: Policy, log: DecisionLog, *, rng: np.random.Generator, time_step: int = 0
    ) -> Update:
        """Return the updated policy."""
        rows = self.objective.rows(log)
        if rows.n_accepted == 0:
            note = "nobody was accepted, so there is no label to learn from; the policy stays"
            return Update(policy, 0.0, 0.0, (note,))
        stream = _Stream.shuffled(self, policy, log, rng)
        rate = self.step.rate(time_step, stream.effective_rows)
        with np.errstate(over="ignore", invalid="ignore"):  # such steps are not taken
            theta, rejected = self._ascend(stream, policy, rate)
        learned = policy.at(theta)
        before, after = stream.value(policy), stream.value(learned)
        notes = list(stream.notes)
        if rejected:
            notes.append(f"{rejected} of {self.n_iterations} steps were not finite and not taken")
        if after < before - 0.01 * max(1.0, abs(before)):
            notes.append(
                f"the update lowered the estimated objective from {before:.4g} to {after:.4g}: "
                "the step is too long for this penalty"
            )
        return Update(learned, before, after, tuple(notes))

    def _ascend(self, stream: _Stream, policy: Policy, rate: float) -> tuple[Floats, int]:
        theta = policy.theta.copy()
        penalty = self.objective.penalty
        # a quarter of a window passed: what it says about theta's surroundings is still fresh
        refresh_every = max(1, stream.n_reference // (4 * stream.batch_size))
        needs_reference = penalty > 0 or self.step.looks_around
        rejected = 0
        residuals, around = np.zeros(0), stream.nowhere(theta)
        step = self.step.prepare(around, penalty, rate)
        for j in range(self.n_iterations):
            position = j * stream.batch_size
            if needs_reference and j % refresh_every == 0:
                residuals = stream.residuals(policy, theta, position)
                around = stream.around(policy, theta, position)
                step = self.step.prepare(around, penalty, rate)
            gradient = stream.utility_gradient(policy, theta, position)
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
class _Stream:
    """The log's rows in one random order, read in a circle."""

    objective: Objective
    coefficients: Coefficients
    phi: Floats
    scale: Floats
    batch_size: int
    n_reference: int
    rng: np.random.Generator
    effective_rows: float
    notes: tuple[str, ...]

    @classmethod
    def shuffled(
        cls, update: UpdatePolicy, policy: Policy, log: DecisionLog, rng: np.random.Generator
    ) -> _Stream:
        rows = update.objective.rows(log)
        # normalisers come from the whole log, even where fewer rows are passed over
        whole = update.objective.coefficients(log)
        wanted = update.n_iterations * update.batch_size + 2 * update.n_reference
        n_passed = min(len(rows), wanted)
        batch_size = min(update.batch_size, n_passed)
        beside_a_batch = min(n_passed // 3, (n_passed - batch_size) // 2)
        order = rng.choice(len(rows), n_passed, replace=False)
        passed = rows.take(order)
        sensitive = passed.sensitive if policy.uses_sensitive else None
        phi = policy.inputs(passed.features, sensitive)
        return cls(
            update.objective,
            whole.take(order),
            phi,
            phi.T @ phi / len(phi),
            batch_size,
            min(update.n_reference, max(1, beside_a_batch)),
            rng,
            effective_sample_size(update.objective.weighting.weights(log.settled())),
            _absent_groups(whole, rows),
        )

    def _rows(self, start: int, length: int) -> slice | NDArray[np.intp]:
        start %= len(self.phi)
        if start + length <= len(self.phi):
            return slice(start, start + length)
        return np.arange(start, start + length) % len(self.phi)

    def _taken(self, policy: Policy, eta: Floats) -> Floats:
        if self.objective.decisions == "expected":
            return policy.probability(eta)
        return decided("sampled", policy, eta, self.rng)[0]

    def _slope(self, policy: Policy, eta: Floats) -> Floats:
        if self.objective.decisions == "expected":
            return policy.derivative(eta)
        return decided("sampled", policy, eta, self.rng)[1]

    def utility_gradient(self, policy: Policy, theta: Floats, position: int) -> Floats:
        rows = self._rows(position, self.batch_size)
        phi = self.phi[rows]
        slope = self._slope(policy, phi @ theta)
        scale = len(self.phi) / len(phi)
        gradient: Floats = (self.coefficients.utility[rows] * slope) @ phi * scale
        return gradient

    def residuals(self, policy: Policy, theta: Floats, position: int) -> Floats:
        """Return the residuals r of the penalty, `lambda/2 sum r^2`, from the far window."""
        if not self.objective.penalty:
            return np.zeros(0)
        window = self._rows(position - 2 * self.n_reference, self.n_reference)
        taken = self._taken(policy, self.phi[window] @ theta)
        return _ROOT_TWO * deviations(self.coefficients.take(window).sums(taken).benefits).ravel()

    def around(self, policy: Policy, theta: Floats, position: int) -> Surroundings:
        """Return what the near window says about the neighbourhood of theta."""
        window = self._rows(position - self.n_reference, self.n_reference)
        phi = self.phi[window]
        eta = phi @ theta
        propensity, derivative = policy.probability(eta), policy.derivative(eta)
        steepness = LOGISTIC.derivative(eta)
        slopes = np.zeros((0, len(theta)))
        if self.objective.penalty:
            here = self.coefficients.take(window)
            sums = here.sums(propensity)
            sampled = self.objective.decisions == "sampled"
            slope = self._slope(policy, eta) if sampled else derivative
            by_benefit = here.benefit_slopes(sums, slope, phi)
            known = np.isfinite(sums.benefits)[:, :, None]
            mean = (by_benefit * known).sum(axis=1, keepdims=True)
            mean /= np.maximum(known.sum(axis=1, keepdims=True), 1)
            slopes = _ROOT_TWO * ((by_benefit - mean) * known).reshape(-1, len(theta))
        return Surroundings(
            theta.copy(),
            (phi * steepness[:, None]).T @ phi / len(phi),
            float(steepness.mean()),
            self.scale,
            slopes,
            float(propensity.mean()),
            derivative @ phi / len(phi),
        )

    def nowhere(self, theta: Floats) -> Surroundings:
        """Return surroundings for a step rule that does not look at them."""
        none = np.zeros((0, len(theta)))
        return Surroundings(theta, self.scale, 1.0, self.scale, none, 0.5, np.zeros(len(theta)))

    def value(self, policy: Policy) -> float:
        propensity = policy.probability(self.phi @ policy.theta)
        return self.objective.value_at(self.coefficients.sums(propensity))


def _absent_groups(coefficients: Coefficients, rows: DecisionLog) -> tuple[str, ...]:
    missing = sorted(
        {
            str(rows.groups[code])
            for benefit in coefficients.benefits
            for code in np.flatnonzero(~benefit.defined)
        }
    )
    if not missing:
        return ()
    return (f"no row to measure the benefit of {', '.join(missing)} on; the penalty left it out",)
