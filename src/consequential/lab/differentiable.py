"""Policies without a formula: any that JAX can differentiate, and their part of Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import ArrayLike, NDArray

from consequential.lab.algorithm import update
from consequential.lab.algorithm.ascent import residuals
from consequential.lab.kernels.batch_sums import BatchRows
from consequential.log import DecisionLog
from consequential.objective.functionals import Coefficients
from consequential.objective.objective import Objective
from consequential.policy.features import PolicyError, as_features
from consequential.policy.group_codes import plain_groups, sensitive_codes
from consequential.policy.rules import DecisionRule, checked_floor

try:
    import jax
    import optax  # type: ignore[import-untyped]
    from jax import numpy as jnp
except ImportError as missing:
    raise ImportError(
        "policies without a formula need JAX and optax: pip install 'consequential[jax]'"
    ) from missing

__all__ = ["DifferentiablePolicy", "UpdateDifferentiable"]

Array = Any  # of JAX
Function = Callable[..., Any]
Floats = NDArray[np.float64]
People = tuple[NDArray[Any], ...]  # features, and group codes where the policy uses them

ADAM = optax.adam(1e-2)  # one object: the ascent is compiled for each optimiser


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DifferentiablePolicy(DecisionRule):
    """Accept with probability `floor + (1 - floor) function(theta, x)`, a function of your own.

    Parameters
    ----------
    theta
        The parameters: any JAX pytree of arrays, of which a list is one. Kept in float64.
    function
        A function written in `jax.numpy` from theta and a matrix of features to one probability
        per row, which may depend on that row only. Define it once: each function is compiled.
    floor
        The exploration floor: nobody is accepted with a smaller probability.
    groups
        The sensitive groups, for a policy that uses the sensitive attribute; the function is then
        called as `function(theta, x, z)`, z being each row's position among them.

    Examples
    --------
    >>> import jax.numpy as jnp
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
    function: Function
    _: KW_ONLY
    floor: float = 0.0
    groups: Sequence[Hashable] = ()

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise PolicyError(f"a function of theta and features is needed, not {self.function!r}")
        theta = jax.tree.map(partial(np.array, dtype=np.float64), self.theta)
        if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(theta)):
            raise PolicyError(f"theta must be finite, not {theta}")
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "floor", checked_floor(self.floor))
        object.__setattr__(self, "groups", plain_groups(self.groups))

    @property
    def uses_sensitive(self) -> bool:
        """Whether the sensitive attribute is an input of the decision."""
        return bool(self.groups)

    def inputs(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> People:
        """Return what the function is called with after theta."""
        matrix = as_features(features)
        if not np.isfinite(matrix).all():
            raise PolicyError("features must be finite: impute missing values before deciding")
        if not self.groups:
            return (matrix,)
        return matrix, sensitive_codes(sensitive, tuple(self.groups), len(matrix))

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Probability of a positive decision, a number for each row."""
        people = self.inputs(features, sensitive)
        n, padded = len(people[0]), tuple(map(_pad, people))
        with jax.enable_x64(True):
            base = np.asarray(jax.jit(self.function)(self.theta, *padded), np.float64)
        if base.shape != padded[0].shape[:1] or not ((base >= 0) & (base <= 1))[:n].all():
            raise PolicyError(
                "the function must return one probability per row: for features of shape "
                f"{padded[0].shape} it returned {base.min():.6g} to {base.max():.6g}, "
                f"of shape {base.shape}"
            )
        return self.floor + (1.0 - self.floor) * base[:n]

    def with_floor(self, floor: float) -> DifferentiablePolicy:
        """Return the same policy with an exploration floor; a policy that learns keeps it."""
        return replace(self, floor=floor)

    def at(self, theta: Any) -> DifferentiablePolicy:
        """Return the same policy with other parameters."""
        return replace(self, theta=theta)

    def __repr__(self) -> str:
        size = sum(leaf.size for leaf in jax.tree.leaves(self.theta))
        name = getattr(self.function, "__name__", "function")
        floor = f", floor={self.floor:g}" if self.floor else ""
        groups = f", groups={list(self.groups)}" if self.groups else ""
        return f"DifferentiablePolicy({name}, {size} parameters{floor}{groups})"


@dataclass(frozen=True, slots=True)
class UpdateDifferentiable:
    """`UpdatePolicy` for a `DifferentiablePolicy`: minibatch ascent on the objective by autodiff.

    Each of M iterations draws B rows from the log, and with a penalty another B, see `estimate`.
    Computes in float64, on a GPU where JAX finds one.

    Parameters
    ----------
    objective
        What to ascend, with decisions in expectation.
    n_iterations, batch_size
        The paper's M and B.
    optimiser
        An optax optimiser whose update needs the gradient alone, `optax.adam(1e-2)` without one.
        Define it once: the loop is compiled for each. Its state is initialised at each update.

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
    optimiser: Any = None

    def __post_init__(self) -> None:
        if self.objective.decisions == "sampled":
            raise ValueError(
                "sampled decisions stand in for a gradient that cannot be computed; autodiff of "
                'the expectation is exact, so use an objective with decisions="expected"'
            )
        update.UpdatePolicy(self.objective, self.n_iterations, self.batch_size)  # checks sizes

    def __call__(
        self, policy: DifferentiablePolicy, log: DecisionLog, *, rng: Generator, time_step: int = 0
    ) -> update.Update[DifferentiablePolicy]:
        """Return the updated policy."""
        rows = self.objective.rows(log)
        if rows.n_accepted == 0:
            return update.Update(policy, 0.0, 0.0, (update.NOBODY_ACCEPTED,))
        people = rows.features, rows.sensitive if policy.groups else None
        coefficients, penalty = self.objective.coefficients(log), self.objective.penalty

        def value(policy: DifferentiablePolicy) -> float:
            return self.objective.value_at(coefficients.sums(policy.propensity(*people)))

        before = value(policy)  # also checks what the function returns
        read = columns_of(policy.inputs(*people), coefficients, penalised=penalty > 0)
        with jax.enable_x64(True):
            theta, rejected = ascend(
                policy.theta, read, jax.random.key(int(rng.integers(2**63))), policy.floor, penalty,
                self.n_iterations, batch_size=self.batch_size, function=policy.function,
                optimiser=self.optimiser or ADAM,
            )  # fmt: skip
        learned = policy.at(theta)
        after = value(learned)
        notes = update.update_notes(int(rejected), self.n_iterations, before, after)
        absent = update.absent_groups(coefficients, rows)
        return update.Update(learned, before, after, (*absent, *notes))


def columns_of(people: People, coefficients: Coefficients, *, penalised: bool) -> BatchRows:
    """Return the rows of a log as arrays that JAX draws from; without a penalty no benefits."""
    # minibatches of one row each: their shares of the groups say which group the row is in
    rows = update.compiled_rows(people[0], coefficients, coefficients.shares(), 1)
    return rows._replace(
        inputs=tuple(map(_pad, people)),  # type: ignore[arg-type]
        utility=_pad(rows.utility),
        columns=_pad(rows.columns[: None if penalised else 0].T).T,
        batch_shares=_pad(rows.batch_shares),
    )


def _pad(column: NDArray[Any]) -> NDArray[Any]:
    """Add zeros up to a power of two: logs of about the same size share a compiled loop."""
    missing = (1 << max(len(column) - 1, 0).bit_length()) - len(column)
    return np.concatenate([column, np.zeros((missing, *column.shape[1:]), column.dtype)])


def estimate(
    theta: Any, rows: BatchRows, drawn: Array, floor: Array, penalty: Array, function: Function
) -> Array:
    """Return the objective, estimated from the rows `drawn`, (minibatches, B).

    The penalty is a square, and the square of an estimate is too large by its variance. So it is
    the product of residuals from two independent minibatches, whose expectation, and with it that
    of the gradient, is right where benefits are linear.
    """
    picked = drawn.ravel()
    propensity = floor + (1.0 - floor) * function(theta, *(part[picked] for part in rows.inputs))
    value = rows.total * (rows.utility[picked] * propensity).mean()
    if len(rows.columns):
        columns = (rows.columns[:, picked] * propensity).reshape(-1, *drawn.shape)
        sums, shares = rows.total * columns.mean(axis=2), rows.batch_shares[drawn].mean(axis=1)
        one, other = (residuals(rows.benefits, sums[:, k], shares[k]) for k in (0, 1))
        value = value - penalty / 2.0 * (one @ other)
    return value


@partial(jax.jit, static_argnames=("batch_size", "function", "optimiser"))
def ascend(
    theta: Any, rows: BatchRows, key: Array, floor: Array, penalty: Array, n_iterations: Array,
    *, batch_size: int, function: Function, optimiser: Any,
) -> tuple[Any, Array]:  # fmt: skip
    """Return theta after the ascent, and how many steps were not finite and not taken."""
    careful = optax.apply_if_finite(optimiser, max_consecutive_errors=2**31 - 1)
    shape = (2 if len(rows.columns) else 1, batch_size)
    n_rows = jnp.asarray(rows.total, int)

    def iterate(j: Array, state: Any) -> Any:
        theta, optimising = state
        drawn = jax.random.randint(jax.random.fold_in(key, j), shape, 0, n_rows)
        slopes = jax.grad(estimate)(theta, rows, drawn, floor, penalty, function)
        # optax descends
        change, optimising = careful.update(jax.tree.map(jnp.negative, slopes), optimising, theta)
        return optax.apply_updates(theta, change), optimising

    state = jax.lax.fori_loop(0, n_iterations, iterate, (theta, careful.init(theta)))
    return state[0], state[1].total_notfinite
