"""UpdateDifferentiable: the ascent on the objective for any differentiable policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

import numpy as np

from consequential.accelerated.backend import compiled, needed, pad, round_length, shortened
from consequential.accelerated.policy import DifferentiablePolicy, People
from consequential.kernels.batch_sums import Rows
from consequential.learning.ascent import Schedule
from consequential.learning.update import (
    CHECKED,
    NOBODY_ACCEPTED,
    Update,
    UpdatePolicy,
    absent_groups,
    compiled_rows,
    update_notes,
)
from consequential.log import DecisionLog
from consequential.objective import Objective


@cache
def _default_optimiser() -> Any:
    # one object for all learners: another would be compiled again
    return needed("optax").adam(1e-2)


@dataclass(frozen=True, slots=True)
class UpdateDifferentiable:
    """`UpdatePolicy` for a `DifferentiablePolicy`: the same rows and sums, gradients by autodiff.

    The utility's gradient comes from a minibatch; the penalty's residuals and their slopes from
    running means over those before it, as in `UpdatePolicy`. The loop is compiled once for
    each function, optimiser and (roughly) size of log, and computes in float64.

    Parameters
    ----------
    objective
        What to ascend, with decisions in expectation.
    n_iterations, batch_size
        The paper's M and B.
    optimiser
        An optax optimiser, `optax.adam(1e-2)` without one; make it once, since the loop is
        compiled for each. Its state is initialised at each update, which has data of its own.
    n_reference
        Rows that each running mean is worth; 0 for the minibatch itself.
    shuffle
        Whether to bring the rows into random order first.

    Examples
    --------
    >>> import jax, numpy as np, consequential as cq
    >>> from consequential.accelerated import DifferentiablePolicy, UpdateDifferentiable
    >>> def bump(theta, x):
    ...     return jax.nn.sigmoid(theta[0] - theta[1] * (x[:, 0] - theta[2]) ** 2)
    >>> world = cq.worlds.second_setting()
    >>> policy = DifferentiablePolicy(np.array([0.0, 0.1, 0.0]), bump)
    >>> log = world.collect(policy, 20_000, np.random.default_rng(0))
    >>> learn = UpdateDifferentiable(cq.Objective(world.cost), n_iterations=300, batch_size=128)
    >>> learned = learn(policy, log, rng=np.random.default_rng(1)).policy
    >>> world.exact(learned).utility > world.exact(policy).utility + 0.02
    True
    """

    objective: Objective
    n_iterations: int
    batch_size: int
    _: KW_ONLY
    optimiser: Any = None
    n_reference: int = 1024
    shuffle: bool = True

    def __post_init__(self) -> None:
        if self.objective.decisions == "sampled":
            raise ValueError(
                "sampled decisions stand in for a gradient that cannot be computed; autodiff of "
                'the expectation is exact, so use an objective with decisions="expected"'
            )
        if self.optimiser is not None and not hasattr(self.optimiser, "update"):
            raise ValueError(
                f"optimiser is an optax optimiser such as optax.adam(1e-2), not {self.optimiser!r}"
            )
        self._counterpart()  # which checks the sizes

    def _counterpart(self) -> UpdatePolicy:
        return UpdatePolicy(
            self.objective,
            self.n_iterations,
            self.batch_size,
            n_reference=self.n_reference,
            shuffle=self.shuffle,
        )

    def __call__(
        self,
        policy: DifferentiablePolicy,
        log: DecisionLog,
        *,
        rng: np.random.Generator,
        time_step: int = 0,
    ) -> Update[DifferentiablePolicy]:
        """Return the updated policy."""
        rows = self.objective.rows(log)
        if rows.n_accepted == 0:
            return Update(policy, 0.0, 0.0, (NOBODY_ACCEPTED,))
        counterpart = self._counterpart()
        n_read, batch_size = counterpart.sizes(len(rows))
        order = counterpart.order(len(rows), n_read, rng)
        read, of_all = rows.take(order), self.objective.coefficients(log)
        people = policy.inputs(read.features, read.sensitive if policy.groups else None)
        coefficients = of_all.take(order)
        batches = compiled_rows(people[0], coefficients, of_all.shares(), batch_size)
        if self.objective.penalty == 0:
            batches = batches._replace(columns=batches.columns[:0])
        n_batches, first = n_read // batch_size, slice(0, min(n_read, CHECKED))

        def value(policy: DifferentiablePolicy) -> float:
            propensity = policy.propensity_at(tuple(part[first] for part in people))
            return self.objective.value_at(coefficients.take(first).sums(propensity))

        before = value(policy)  # also checks what the function returns
        with needed("jax").enable_x64(True):
            theta, rejected = compiled(_ascend, "function", "optimiser", "schedule")(
                policy.theta,
                _padded(batches, people, batch_size),
                floor=policy.floor,
                penalty=self.objective.penalty,
                n_iterations=self.n_iterations,
                n_batches=n_batches,
                function=policy.function,
                optimiser=self.optimiser or _default_optimiser(),
                schedule=shortened(Schedule(n_batches, batch_size, self.n_reference)),
            )
        learned = policy.at(theta)
        after = value(learned)
        notes = (
            *absent_groups(coefficients, rows),
            *update_notes(int(rejected), self.n_iterations, before, after),
        )
        return Update(learned, before, after, notes)


def _padded(rows: Rows, people: People, batch_size: int) -> Rows:
    """Return rows with the inputs of a policy, padded so that logs share a compiled loop."""
    length = round_length(rows.utility.size)
    return rows._replace(
        inputs=tuple(pad(part, length).T for part in people),  # type: ignore[arg-type]
        utility=pad(rows.utility, length),
        columns=pad(rows.columns.T, length).T,
        batch_shares=pad(rows.batch_shares, length // batch_size),
    )


def _ascend(
    theta: Any,
    rows: Rows,
    *,
    function: Callable[..., Any],
    floor: Any,
    optimiser: Any,
    schedule: Schedule,
    **numbers: Any,
) -> tuple[Any, Any]:
    from consequential.accelerated.ascent import ascend
    from consequential.accelerated.response import differentiable_response
    from consequential.accelerated.steps import optax_step

    flat, unravel = needed("jax.flatten_util").ravel_pytree(theta)
    respond = differentiable_response(function, unravel, floor)
    found, rejected = ascend(
        rows, respond, optax_step(optimiser, unravel), schedule, flat, **numbers
    )
    return unravel(found), rejected
