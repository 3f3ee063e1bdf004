"""Differentiable policies: any policy that JAX can differentiate, and its ascent."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.lab.algorithm.ascent import Schedule
from consequential.lab.algorithm.update import (
    CHECKED,
    NOBODY_ACCEPTED,
    Update,
    UpdatePolicy,
    absent_groups,
    compiled_rows,
    update_notes,
)
from consequential.lab.kernels.batch_sums import BatchRows
from consequential.log import DecisionLog
from consequential.objective.objective import Objective
from consequential.policy import (
    DecisionRule,
    PolicyError,
    as_features,
    checked_floor,
    plain_groups,
    sensitive_codes,
)

Floats = NDArray[np.float64]
People = tuple[Any, ...]  # features, and group codes where the policy uses them


def needed(library: str) -> Any:
    """Return an optional library, or say how to get it."""
    try:
        return importlib.import_module(library)
    except ImportError as missing:
        raise ImportError(f"this needs {library}: pip install consequential[jax]") from missing


@cache
def compiled(function: Callable[..., Any], *static: str) -> Any:
    """Return a compiled function, one for each function and its static arguments."""
    return needed("jax").jit(function, static_argnames=static)


def padded_length(n: int) -> int:
    """Return the next power of two: logs of about the same size share a compiled loop."""
    return 1 << max(n - 1, 0).bit_length()


def pad(column: NDArray[Any], length: int) -> NDArray[Any]:
    """Return the column with zeros below it."""
    padded = np.zeros((length, *column.shape[1:]), column.dtype)
    padded[: len(column)] = column
    return padded


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DifferentiablePolicy(DecisionRule):
    """Accept with probability `floor + (1 - floor) propensity(theta, x)`, a function of your own.

    Parameters
    ----------
    theta
        The parameters: any JAX pytree of arrays (a list is a pytree of its items, so give a
        vector as an array). Kept in float64.
    propensity
        A function written in `jax.numpy` from theta and a matrix of features to one probability
        per row. A row's probability may depend on that row only. Functions are compiled once each:
        define it once, not again for every policy.
    floor
        The exploration floor: nobody is accepted with a smaller probability.
    groups
        Give the sensitive groups here for a policy that uses the sensitive attribute; the
        function is then called as `propensity(theta, x, z)`, z being each row's position among
        them. Without them (the default) the sensitive attribute is not an input.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from consequential.lab.differentiable import DifferentiablePolicy
    >>> def near(theta, x):
    ...     return jnp.exp(-((x[:, 0] - theta["centre"]) / theta["width"]) ** 2)
    >>> policy = DifferentiablePolicy({"centre": 1.0, "width": 2.0}, near)
    >>> policy.propensity([[1.0], [3.0]]).round(4)
    array([1.    , 0.3679])
    >>> policy.with_floor(0.5)
    DifferentiablePolicy(near, 2 parameters, floor=0.5)
    """

    theta: Any
    function: Callable[..., Any]
    floor: float
    groups: tuple[Hashable, ...]

    def __init__(
        self,
        theta: Any,
        propensity: Callable[..., Any],
        *,
        floor: float = 0.0,
        groups: Sequence[Hashable] = (),
    ) -> None:
        if not callable(propensity):
            raise PolicyError(f"propensity is a function of theta and features, not {propensity!r}")
        for name, value in (
            ("theta", needed("jax").tree.map(_parameter, theta)),
            ("function", propensity),
            ("floor", checked_floor(floor)),
            ("groups", plain_groups(groups)),
        ):
            object.__setattr__(self, name, value)

    @property
    def uses_sensitive(self) -> bool:
        """Whether the sensitive attribute is an input of the decision."""
        return bool(self.groups)

    def inputs(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> People:
        """What `propensity` is called with after theta: features, and group codes if used."""
        matrix = as_features(features)
        if not np.isfinite(matrix).all():
            raise PolicyError("features must be finite: impute missing values before deciding")
        if not self.groups:
            return (matrix,)
        return matrix, sensitive_codes(sensitive, self.groups, len(matrix))

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Probability of a positive decision, a number for each row."""
        return self.propensity_at(self.inputs(features, sensitive))

    def propensity_at(self, people: People) -> Floats:
        """Propensity as a function of `inputs`, checked."""
        n = len(people[0])
        length = padded_length(n)
        with needed("jax").enable_x64(True):
            found = compiled(_call, "function")(
                self.theta, tuple(pad(part, length) for part in people), function=self.function
            )
        base = np.asarray(found, dtype=np.float64)
        if base.shape != (length,):
            raise PolicyError(
                f"propensity must return one number per row: for {length} rows it returned "
                f"shape {base.shape}"
            )
        base = base[:n]
        wrong = np.flatnonzero(~((base >= 0.0) & (base <= 1.0)))
        if wrong.size:
            raise PolicyError(
                f"propensity must return probabilities between 0 and 1; {wrong.size} of {n} are "
                f"not (first: {base[wrong[0]]:.6g} in row {wrong[0]})"
            )
        return self.floor + (1.0 - self.floor) * base

    def at(self, theta: Any) -> DifferentiablePolicy:
        """Return the same policy with other parameters."""
        return DifferentiablePolicy(theta, self.function, floor=self.floor, groups=self.groups)

    def with_floor(self, floor: float) -> DifferentiablePolicy:
        """Return the same policy with an exploration floor; a policy that learns keeps it."""
        return DifferentiablePolicy(self.theta, self.function, floor=floor, groups=self.groups)

    def __repr__(self) -> str:
        size = sum(leaf.size for leaf in needed("jax").tree.leaves(self.theta))
        parts = [getattr(self.function, "__name__", "propensity"), f"{size} parameters"]
        if self.floor:
            parts.append(f"floor={self.floor:g}")
        if self.groups:
            parts.append(f"uses the sensitive attribute, groups={list(self.groups)}")
        return f"DifferentiablePolicy({', '.join(parts)})"


def _call(theta: Any, people: People, *, function: Callable[..., Any]) -> Any:
    return function(theta, *people)


def _parameter(leaf: Any) -> Floats:
    try:
        values = np.array(leaf, dtype=np.float64)
    except (TypeError, ValueError):
        raise PolicyError(f"theta is a pytree of arrays of numbers; {leaf!r} is none") from None
    if not np.isfinite(values).all():
        raise PolicyError(f"theta must be finite, not {values}")
    values.setflags(write=False)
    return values


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
    >>> from consequential.lab.differentiable import DifferentiablePolicy, UpdateDifferentiable
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
        schedule = Schedule(n_batches, batch_size, self.n_reference)

        def value(policy: DifferentiablePolicy) -> float:
            propensity = policy.propensity_at(tuple(part[first] for part in people))
            return self.objective.value_at(coefficients.take(first).sums(propensity))

        before = value(policy)  # also checks what the function returns
        with needed("jax").enable_x64(True):
            from consequential.lab.differentiable.jax_ascent import ascend

            theta, rejected = compiled(ascend, "function", "optimiser", "schedule")(
                policy.theta,
                _padded(batches, people, batch_size),
                floor=policy.floor,
                penalty=self.objective.penalty,
                n_iterations=self.n_iterations,
                n_batches=n_batches,
                function=policy.function,
                optimiser=self.optimiser or _default_optimiser(),
                # that of the shortest log that has it, so that longer ones share the compiled loop
                schedule=replace(schedule, n_batches=max(1, schedule.n_before)),
            )
        learned = policy.at(theta)
        after = value(learned)
        notes = (
            *absent_groups(coefficients, rows),
            *update_notes(int(rejected), self.n_iterations, before, after),
        )
        return Update(learned, before, after, notes)


def _padded(rows: BatchRows, people: People, batch_size: int) -> BatchRows:
    """Return rows with the inputs of a policy, padded so that logs share a compiled loop."""
    length = padded_length(rows.utility.size)
    return rows._replace(
        inputs=tuple(pad(part, length) for part in people),  # type: ignore[arg-type]
        utility=pad(rows.utility, length),
        columns=pad(rows.columns.T, length).T,
        batch_shares=pad(rows.batch_shares, length // batch_size),
    )
