"""UpdatePolicy: minibatch ascent on the objective, from logged decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.lab.algorithm import ascent
from consequential.lab.algorithm.steps import GradientStep, PreconditionedStep, StepRule
from consequential.lab.kernels import compiled_ascent
from consequential.lab.kernels.batch_sums import BatchRows, Benefits, batch_shares
from consequential.lab.kernels.compiled_ascent import Ascent
from consequential.lab.kernels.jit import compiling_reported
from consequential.log import DecisionLog
from consequential.objective.functionals import Coefficients
from consequential.objective.objective import Objective
from consequential.objective.weightings import effective_sample_size
from consequential.policy import DecisionRule, Policy, link_numbers

__all__ = ["Update", "UpdatePolicy"]

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
    max_passes
        An update passes over its rows at most so often, then M is smaller; the code of the paper's
        authors takes one pass over the accepted people, 40 on COMPAS.
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
    max_passes: int | None = None

    def __post_init__(self) -> None:
        minima = {"n_iterations": 1, "batch_size": 1, "n_reference": 0, "max_passes": 1}
        for name, least in minima.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is at least {least}, not {value!r}")
        if self.engine not in ("compiled", "numpy"):
            raise ValueError(f"engine is 'compiled' or 'numpy', not {self.engine!r}")

    def __call__(
        self, policy: Policy, log: DecisionLog, *, rng: np.random.Generator, time_step: int = 0
    ) -> Update[Policy]:
        """Return the updated policy."""
        if not isinstance(policy, Policy):
            raise TypeError(
                "UpdatePolicy moves the parameters of a Policy, such as "
                f"world.initial_policy('logistic'); {type(policy).__name__} has none"
            )
        if policy.overrules:
            raise ValueError(
                "minibatch ascent learns for everybody, but this policy decides only on people "
                "whom the log it was learned from supports: learn with FairPolicyLearner, or "
                "ascend from dataclasses.replace(policy, support=None)"
            )
        rows = self.objective.rows(log)
        if rows.n_accepted == 0:
            return Update(policy, 0.0, 0.0, (NOBODY_ACCEPTED,))
        effective = effective_sample_size(self.objective.weighting.weights(log.settled()))
        rate = self.step.rate(time_step, effective)
        # coefficients are normalised by the whole log, even if fewer rows are read
        coefficients = self.objective.coefficients(log)
        n_read, batch_size = self.sizes(len(rows))
        order = self.order(len(rows), n_read, rng)
        read, taken = rows.take(order), coefficients.take(order)
        inputs = policy.inputs(
            read.named_features, read.sensitive if policy.uses_sensitive else None
        )
        batches = compiled_rows(inputs, taken, coefficients.shares(), batch_size)
        settings = self.numbers(batch_size, rate)
        if self.max_passes is not None:
            enough = max(1, self.max_passes * len(rows) // batch_size)
            settings = settings._replace(n_iterations=min(self.n_iterations, enough))
        key = int(rng.integers(2**63))
        with np.errstate(over="ignore", invalid="ignore"):  # such steps are not taken
            theta, rejected = self._ascend(batches, policy, settings, key)
        learned = policy.at(theta)
        first = slice(0, CHECKED)
        checked = taken.take(first)
        before, after = (
            self.objective.value_at(checked.sums(each.probability(inputs[first] @ each.theta)))
            for each in (policy, learned)
        )
        notes = (
            *absent_groups(coefficients, rows),
            *update_notes(rejected, self.n_iterations, before, after),
        )
        return Update(learned, before, after, notes)

    def _ascend(
        self, rows: BatchRows, policy: Policy, settings: Ascent, key: int
    ) -> tuple[Floats, int]:
        scale = rows.inputs @ rows.inputs.T / rows.inputs.shape[1]
        link = link_numbers(policy)
        if self.engine == "numpy" or link is None or not is_compiled(self.step):
            return ascent.ascend(rows, policy, self.step, settings, scale, key)
        with compiling_reported():
            theta, rejected = compiled_ascent.ascend(
                rows, link, settings, np.array(policy.theta), scale, np.uint64(key)
            )
        return theta, int(rejected)

    def numbers(self, batch_size: int, rate: float) -> Ascent:
        """Return how to ascend as numbers; a step rule of the user's own needs no more of them."""
        step = self.step
        preconditioned = isinstance(step, PreconditionedStep)
        return Ascent(
            n_iterations=self.n_iterations,
            batch_size=batch_size,
            n_reference=self.n_reference,
            penalty=self.objective.penalty,
            sampled=self.objective.decisions == "sampled",
            preconditioned=preconditioned,
            rate=rate,
            ridge=step.ridge if isinstance(step, PreconditionedStep) else 0.0,
            max_step=float(getattr(step, "max_step", np.inf)),
            max_share=step.max_share if isinstance(step, PreconditionedStep) else 1.0,
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


def is_compiled(step: StepRule) -> bool:
    """Whether the compiled ascent knows a step rule."""
    return type(step) in (GradientStep, PreconditionedStep)


def compiled_rows(
    inputs: Floats, coefficients: Coefficients, shares: Floats, batch_size: int
) -> BatchRows:
    """Return rows in the order they are read, as kernels want them.

    `shares` are the groups' shares of all rows of the log, of which these may be a part.
    """
    n, n_groups, benefits = len(inputs), coefficients.n_groups, coefficients.benefits
    of_group = coefficients.group == np.arange(n_groups)[:, None]
    is_ratio = np.array([b.denominator is not None for b in benefits], dtype=np.bool_)
    columns = [of_group * b.values for b in benefits]
    if is_ratio.any():
        columns += [of_group * (0.0 if b.denominator is None else b.denominator) for b in benefits]
    shape = (len(benefits), n_groups)
    return BatchRows(
        inputs=np.ascontiguousarray(inputs.T),
        utility=coefficients.utility,
        columns=np.concatenate(columns) if columns else np.zeros((0, n)),
        batch_shares=batch_shares(coefficients.group.astype(np.int16), batch_size, n_groups),
        benefits=Benefits(
            np.array([b.constant for b in benefits]).reshape(shape),
            np.array([b.defined for b in benefits], dtype=np.bool_).reshape(shape),
            is_ratio,
            shares,
        ),
        total=float(n),
    )


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
