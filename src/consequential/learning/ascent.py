"""UpdatePolicy: minibatch ascent on the objective, from logged decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.learning import compiled, reference
from consequential.learning.reference import Circle
from consequential.learning.steps import PreconditionedStep, StepRule
from consequential.log import DecisionLog
from consequential.objective import Coefficients, Objective, effective_sample_size
from consequential.policies import DecisionRule, Policy

Floats = NDArray[np.float64]

# on so many rows at most the objective before and after an update is compared
CHECKED = 1024
NOBODY_ACCEPTED = "nobody was accepted, so there is no label to learn from; the policy stays"


_Learned = TypeVar("_Learned", bound=DecisionRule)


@dataclass(frozen=True)
class Update(Generic[_Learned]):
    """A learned policy, the estimated objective before and after, and what went wrong."""

    policy: _Learned
    objective_before: float
    objective_after: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdatePolicy:
    """Algorithm 1's UpdatePolicy [K20: UpdatePolicy].

    Each of M iterations takes the utility's gradient from a minibatch of B rows, of one random
    order of the log that is read in a circle. The penalty is a product, residual times residual's
    slope; taking both from the same rows would bias it. So minibatches of even number say how large
    residuals are and those of odd number which slopes they have: running means over the minibatches
    before, worth `n_reference` rows each, which follow theta to first order as it moves. Means of a
    group are taken to its share of the whole log, whatever its share of the minibatches.

    Parameters
    ----------
    objective
        What to ascend.
    n_iterations, batch_size
        The paper's M and B.
    step
        `PreconditionedStep()` or the paper's `GradientStep(alpha)`.
    n_reference
        Rows that each running mean is worth; fewer follow theta faster, more are less noisy. With 0
        residuals and slopes both come from the minibatch itself, as the paper prints it.
    shuffle
        Whether to bring the rows into random order first; not needed where people came in
        random order anyway.
    engine
        `"compiled"`, or `"numpy"` for the same in plain NumPy, which is what defines it. A link
        or a step rule of your own always runs in NumPy.

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
    n_reference: int = 1024
    shuffle: bool = True
    engine: Literal["compiled", "numpy"] = "compiled"

    def __post_init__(self) -> None:
        for name, least in (("n_iterations", 1), ("batch_size", 1), ("n_reference", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is at least {least}, not {getattr(self, name)!r}")
        if self.engine not in ("compiled", "numpy"):
            raise ValueError(f"engine is 'compiled' or 'numpy', not {self.engine!r}")

    def __call__(
        self, policy: Policy, log: DecisionLog, *, rng: np.random.Generator, time_step: int = 0
    ) -> Update[Policy]:
        """Return the updated policy."""
        rows = self.objective.rows(log)
        if rows.n_accepted == 0:
            return Update(policy, 0.0, 0.0, (NOBODY_ACCEPTED,))
        effective = effective_sample_size(self.objective.weighting.weights(log.settled()))
        rate = self.step.rate(time_step, effective)
        coefficients = self.objective.coefficients(log)
        circle = self._circle(policy, rows, coefficients, rng)
        with np.errstate(over="ignore", invalid="ignore"):  # such steps are not taken
            theta, rejected = self._ascend(circle, policy, rate, int(rng.integers(2**63)))
        learned = policy.at(theta)
        n_checked = min(len(circle.phi), CHECKED)
        before, after = (
            circle.value(self.objective, each, n_checked) for each in (policy, learned)
        )
        notes = (
            *absent_groups(coefficients, rows),
            *update_notes(rejected, self.n_iterations, before, after),
        )
        return Update(learned, before, after, notes)

    def _ascend(self, circle: Circle, policy: Policy, rate: float, key: int) -> tuple[Floats, int]:
        in_kernel = self.engine == "compiled" and compiled.knows(policy, self.step)
        ascend = compiled.ascend if in_kernel else reference.ascend
        return ascend(circle, self.objective, policy, self.step, rate, self.n_iterations, key)

    def _circle(
        self,
        policy: Policy,
        rows: DecisionLog,
        coefficients: Coefficients,
        rng: np.random.Generator,
    ) -> Circle:
        # normalisers come from the whole log, even where fewer rows are passed over
        n_passed, batch_size = self.sizes(len(rows))
        order = self.order(len(rows), n_passed, rng)
        passed = rows.take(order)
        phi = policy.inputs(
            passed.named_features, passed.sensitive if policy.uses_sensitive else None
        )
        return Circle(
            phi,
            phi.T @ phi / len(phi),
            coefficients.take(order),
            coefficients.shares(),
            batch_size,
            self.n_reference,
        )

    def order(self, n_rows: int, n_passed: int, rng: np.random.Generator) -> NDArray[np.intp]:
        """Return which rows are passed over, in their order."""
        if self.shuffle:
            return rng.choice(n_rows, n_passed, replace=False)
        start = int(rng.random() * n_rows)
        return np.arange(start, start + n_passed) % n_rows

    def sizes(self, n_rows: int) -> tuple[int, int]:
        """Return how many of the rows are passed over, and how many of them are a minibatch.

        Minibatches are of equal size and even in number, so that a row stays on its side.
        """
        batch_size = min(self.batch_size, max(1, n_rows // 2))
        wanted = self.n_iterations + self.n_reference // batch_size
        n_batches = min(n_rows // batch_size, wanted + wanted % 2)
        return (n_batches - n_batches % 2 or n_batches) * batch_size, batch_size


def update_notes(rejected: int, n_iterations: int, before: float, after: float) -> tuple[str, ...]:
    """Say what went wrong in an update."""
    notes = []
    if rejected:
        notes.append(f"{rejected} of {n_iterations} steps were not finite and not taken")
    if lowered(before, after):
        notes.append(
            f"the update lowered the estimated objective from {_shown(before)} to {_shown(after)}: "
            "the step is too long for this penalty"
        )
    return tuple(notes)


def _shown(value: float) -> str:
    """Print four digits, of which none comes from rounding errors: 1e-17 is 0."""
    return f"{round(value, 9) + 0.0:.4g}"  # -0.0 + 0.0 is 0.0


def lowered(before: ArrayLike, after: ArrayLike) -> NDArray[np.bool_]:
    """Whether an update made the estimated objective worse, by more than a hundredth."""
    return np.less(after, np.subtract(before, 0.01 * np.maximum(1.0, np.abs(before))))


def absent_groups(coefficients: Coefficients, rows: DecisionLog) -> tuple[str, ...]:
    """Say which groups have no row to measure their benefit on."""
    missing = sorted(
        {
            str(rows.groups[code])
            for benefit in coefficients.benefits
            for code in np.flatnonzero(~benefit.defined)
        }
    )
    return (absent_note(missing),) if missing else ()


def absent_note(groups: list[str]) -> str:
    """Say which groups' benefits could not be measured."""
    return f"no row to measure the benefit of {', '.join(groups)} on; the penalty left it out"
