"""UpdateDifferentiable: the ascent on the objective for any differentiable policy."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any

import numpy as np

from consequential.accelerated.backend import compiled, needed
from consequential.accelerated.loop import ascend, circle_of
from consequential.accelerated.policy import DifferentiablePolicy
from consequential.learning.ascent import Schedule
from consequential.learning.update import (
    CHECKED,
    NOBODY_ACCEPTED,
    Update,
    UpdatePolicy,
    absent_groups,
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
        An optax optimiser, `optax.adam(1e-2)` without one; make it once, since each is compiled
        anew. Its state starts afresh at each update, which has data of its own.
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
        n_passed, batch_size = counterpart.sizes(len(rows))
        order = counterpart.order(len(rows), n_passed, rng)
        passed = rows.take(order)
        people = policy.inputs(passed.features, passed.sensitive if policy.groups else None)
        of_all = self.objective.coefficients(log)
        coefficients, n_batches = of_all.take(order), n_passed // batch_size
        n_before = Schedule(n_batches, batch_size, self.n_reference).n_before
        first = slice(0, min(n_passed, CHECKED))

        def value(policy: DifferentiablePolicy) -> float:
            propensity = policy.propensity_at(tuple(part[first] for part in people))
            return self.objective.value_at(coefficients.take(first).sums(propensity))

        before = value(policy)  # also checks what the function returns
        jax = needed("jax")
        with jax.enable_x64(True):
            theta, rejected = compiled(ascend, "function", "optimiser", "sizes", "on_the_spot")(
                policy.theta,
                circle_of(
                    people,
                    coefficients,
                    of_all.shares(),
                    n_batches=n_batches,
                    n_before=n_before,
                    penalised=self.objective.penalty > 0,
                ),
                floor=policy.floor,
                penalty=self.objective.penalty,
                n_iterations=self.n_iterations,
                function=policy.function,
                optimiser=self.optimiser or _default_optimiser(),
                sizes=(batch_size, self.n_reference),
                on_the_spot=n_before == 0,
            )
        learned = policy.at(theta)
        after = value(learned)
        notes = (
            *absent_groups(coefficients, rows),
            *update_notes(int(rejected), self.n_iterations, before, after),
        )
        return Update(learned, before, after, notes)
