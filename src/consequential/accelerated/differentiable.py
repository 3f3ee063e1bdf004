"""Any policy that JAX can differentiate, and the ascent on the objective for it.

JAX is imported where it is first used, so that the package can be imported without it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.learning.ascent import CHECKED, UpdatePolicy, absent_note, update_notes
from consequential.log import DecisionLog
from consequential.objective import Benefit, Coefficients, Objective
from consequential.policies import (
    DecisionRule,
    PolicyError,
    as_features,
    group_codes,
    plain_groups,
)
from consequential.policies.rules import checked_floor

Floats = NDArray[np.float64]
People = tuple[Any, ...]  # features, and group codes where the policy uses them

# lambda/2 sum r^2 with r = sqrt(2) deviation is the objective's penalty
_ROOT_TWO = 2.0**0.5
# a denominator below this is nobody accepted
_NOBODY = 1e-300


def _needed(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as missing:
        raise ImportError(
            f"differentiable policies need {library}: pip install consequential[jax]"
        ) from missing


@cache
def _compiled(function: Callable[..., Any], *static: str) -> Any:
    return _needed("jax").jit(function, static_argnames=static)


@cache
def _default_optimiser() -> Any:
    # one object for all learners: another would be compiled again
    return _needed("optax").adam(1e-2)


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
        a row. A row's probability may depend on that row only. Functions are compiled once each:
        define it once, not anew for every policy.
    floor
        The exploration floor: nobody is accepted with a smaller probability.
    groups
        Give the sensitive groups here for a policy that uses the sensitive attribute; the
        function is then called as `propensity(theta, x, z)`, z being each row's position among
        them. Without them (the default) the sensitive attribute is not an input.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> from consequential.accelerated import DifferentiablePolicy
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
            ("theta", _needed("jax").tree.map(_parameter, theta)),
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
        if sensitive is None:
            raise PolicyError(
                "this policy uses the sensitive attribute: pass `sensitive`, one value a row"
            )
        codes = group_codes(sensitive, self.groups)
        if codes.shape != (len(matrix),):
            raise PolicyError(
                f"sensitive has shape {codes.shape} but features has {len(matrix)} rows: "
                "one value a row is needed"
            )
        return matrix, codes

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Probability of a positive decision, a number for each row."""
        return self.propensity_at(self.inputs(features, sensitive))

    def propensity_at(self, people: People) -> Floats:
        """Propensity as a function of `inputs`, checked."""
        n = len(people[0])
        length = _round_length(n)
        with _needed("jax").enable_x64(True):
            found = _compiled(_call, "function")(
                self.theta, tuple(_padded(part, length) for part in people), function=self.function
            )
        base = np.asarray(found, dtype=np.float64)
        if base.shape != (length,):
            raise PolicyError(
                f"propensity must return one number a row: for {length} rows it returned "
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
        size = sum(leaf.size for leaf in _needed("jax").tree.leaves(self.theta))
        parts = [getattr(self.function, "__name__", "propensity"), f"{size} parameters"]
        if self.floor:
            parts.append(f"floor={self.floor:g}")
        if self.groups:
            parts.append(f"uses the sensitive attribute, groups={list(self.groups)}")
        return f"DifferentiablePolicy({', '.join(parts)})"


@dataclass(frozen=True, slots=True)
class DifferentiableUpdate:
    """A learned policy, the estimated objective before and after, and what went wrong.

    Examples
    --------
    >>> from consequential.accelerated import DifferentiablePolicy, DifferentiableUpdate
    >>> policy = DifferentiablePolicy(0.5, lambda theta, x: theta + 0.0 * x[:, 0])
    >>> DifferentiableUpdate(policy, objective_before=0.1, objective_after=0.2).notes
    ()
    """

    policy: DifferentiablePolicy
    objective_before: float
    objective_after: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateDifferentiable:
    """`UpdatePolicy` for a `DifferentiablePolicy`: the same rows and sums, gradients by autodiff.

    The utility's gradient comes from a minibatch; the penalty's residuals and their slopes from
    the two windows before it, refreshed as `UpdatePolicy` does. The loop is compiled once for
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
        Rows in each reference window, as far as the log has so many beside a minibatch.
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
    n_reference: int = 512
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
            self.objective, self.n_iterations, self.batch_size, n_reference=self.n_reference
        )

    def __call__(
        self,
        policy: DifferentiablePolicy,
        log: DecisionLog,
        *,
        rng: np.random.Generator,
        time_step: int = 0,
    ) -> DifferentiableUpdate:
        """Return the updated policy."""
        rows = self.objective.rows(log)
        if rows.n_accepted == 0:
            note = "nobody was accepted, so there is no label to learn from; the policy stays"
            return DifferentiableUpdate(policy, 0.0, 0.0, (note,))
        n_passed, batch_size, n_reference = self._counterpart().sizes(len(rows))
        order = self._order(len(rows), n_passed, rng)
        passed = rows.take(order)
        people = policy.inputs(passed.features, passed.sensitive if policy.groups else None)
        coefficients = self.objective.coefficients(log).take(order)
        first = slice(0, min(n_passed, CHECKED))

        def value(policy: DifferentiablePolicy) -> float:
            propensity = policy.propensity_at(tuple(part[first] for part in people))
            return self.objective.value_at(coefficients.take(first).sums(propensity))

        before = value(policy)  # also checks what the function returns
        jax = _needed("jax")
        with jax.enable_x64(True):
            theta, rejected = _compiled(_ascend, "function", "optimiser", "sizes")(
                policy.theta,
                _circle(people, coefficients, penalised=self.objective.penalty > 0),
                floor=policy.floor,
                penalty=self.objective.penalty,
                n_iterations=self.n_iterations,
                function=policy.function,
                optimiser=self.optimiser or _default_optimiser(),
                sizes=(batch_size, n_reference),
            )
        learned = policy.at(theta)
        after = value(learned)
        notes = (
            *_absent_groups(coefficients.benefits, rows),
            *update_notes(int(rejected), self.n_iterations, before, after),
        )
        return DifferentiableUpdate(learned, before, after, notes)

    def _order(self, n_rows: int, n_passed: int, rng: np.random.Generator) -> NDArray[np.intp]:
        # the draws of UpdatePolicy, so that equal generators read equal rows
        if self.shuffle:
            return rng.choice(n_rows, n_passed, replace=False)
        start = int(rng.random() * n_rows)
        return np.arange(start, start + n_passed) % n_rows


def _absent_groups(benefits: tuple[Benefit, ...], rows: DecisionLog) -> tuple[str, ...]:
    codes = {int(code) for each in benefits for code in np.flatnonzero(~each.defined)}
    missing = sorted(str(rows.groups[code]) for code in codes)
    return (absent_note(missing),) if missing else ()


class _Rows(NamedTuple):
    """One entry a row in every array; a benefit is a column of `values` and `divisors`."""

    people: People
    utility: Any
    values: Any
    divisors: Any
    group: Any


class _Circle(NamedTuple):
    """Rows in random order, padded, and what each benefit of each group adds to its sums."""

    rows: _Rows
    n_rows: Any  # the rest is padding and never read
    constants: Any
    ones: Any  # one where a benefit has no denominator
    defined: Any

    def stretch(self, start: Any, length: int) -> tuple[_Rows, Any]:
        """Return some consecutive rows, and how much they stand for each."""
        jax = _needed("jax")
        at = (start + jax.numpy.arange(length)) % self.n_rows
        return jax.tree.map(lambda column: column[at], self.rows), self.n_rows / length


def _circle(people: People, coefficients: Coefficients, *, penalised: bool) -> _Circle:
    """Return the rows for the loop; without a penalty there are no benefits to look at."""
    benefits = coefficients.benefits if penalised else ()
    n, n_groups = len(coefficients.utility), coefficients.n_groups
    values, divisors = np.zeros((n, len(benefits))), np.zeros((n, len(benefits)))
    constants, defined = np.zeros((len(benefits), n_groups)), np.zeros((len(benefits), n_groups))
    ones = np.ones_like(constants)
    for k, benefit in enumerate(benefits):
        values[:, k], constants[k], defined[k] = benefit.values, benefit.constant, benefit.defined
        if benefit.denominator is not None:
            divisors[:, k], ones[k] = benefit.denominator, 0.0
    rows = _Rows(people, coefficients.utility, values, divisors, coefficients.group)
    length = _round_length(n)
    padded = _needed("jax").tree.map(lambda column: _padded(column, length), rows)
    return _Circle(padded, n, constants, ones, defined > 0)


def _ascend(
    theta: Any,
    circle: _Circle,
    *,
    floor: Any,
    penalty: Any,
    n_iterations: Any,
    function: Callable[..., Any],
    optimiser: Any,
    sizes: tuple[int, int],
) -> tuple[Any, Any]:
    """Return theta after the ascent, and how many steps were not finite and not taken."""
    jax = _needed("jax")
    jnp, (batch_size, n_reference) = jax.numpy, sizes
    flat, pytree = _needed("jax.flatten_util").ravel_pytree(theta)
    refresh_every = max(1, n_reference // batch_size)
    n_residuals = circle.constants.size

    def propensity(flat: Any, rows: _Rows) -> Any:
        return floor + (1.0 - floor) * function(pytree(flat), *rows.people)

    def utility(flat: Any, start: Any) -> Any:
        rows, scale = circle.stretch(start, batch_size)
        return scale * (rows.utility @ propensity(flat, rows))

    def residuals(flat: Any, start: Any) -> Any:
        rows, scale = circle.stretch(start, n_reference)
        weights = scale * propensity(flat, rows)[:, None]
        member = rows.group[:, None] == jnp.arange(circle.constants.shape[1])
        numerators = (rows.values * weights).T @ member + circle.constants
        denominators = (rows.divisors * weights).T @ member + circle.ones
        known = circle.defined & (denominators > _NOBODY)
        # the inner choice keeps a division by nobody out of the derivative too
        benefits = jnp.where(known, numerators / jnp.where(known, denominators, 1.0), 0.0)
        mean = benefits.sum(1, keepdims=True) / jnp.maximum(known.sum(1, keepdims=True), 1)
        return _ROOT_TWO * jnp.where(known, benefits - mean, 0.0).ravel()

    def look(flat: Any, position: Any) -> tuple[Any, Any, Any]:
        far, near = position - 2 * n_reference, position - n_reference
        return residuals(flat, far), jax.jacrev(residuals)(flat, near), flat

    def iterate(j: Any, carried: Any) -> Any:
        flat, state, around, rejected = carried
        position = j * batch_size
        gradient = jax.grad(utility)(flat, position)
        if n_residuals:
            around = jax.lax.cond(
                j % refresh_every == 0, lambda: look(flat, position), lambda: around
            )
            found, slopes, at = around
            gradient = gradient - penalty * ((found + slopes @ (flat - at)) @ slopes)
        # optax descends
        change, moved = optimiser.update(pytree(-gradient), state, pytree(flat))
        step = _needed("jax.flatten_util").ravel_pytree(change)[0]
        finite = jnp.isfinite(step).all()
        flat = jnp.where(finite, flat + step, flat)
        state = jax.tree.map(lambda new, old: jnp.where(finite, new, old), moved, state)
        return flat, state, around, rejected + ~finite

    nowhere = jnp.zeros(n_residuals), jnp.zeros((n_residuals, flat.size)), flat
    start = flat, optimiser.init(theta), nowhere, jnp.zeros((), int)
    flat, _, _, rejected = jax.lax.fori_loop(0, n_iterations, iterate, start)
    return pytree(flat), rejected


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


def _round_length(n: int) -> int:
    """Return the next power of two: logs of about the same size share a compiled loop."""
    return 1 << max(n - 1, 0).bit_length()


def _padded(column: NDArray[Any], length: int) -> NDArray[Any]:
    padded = np.zeros((length, *column.shape[1:]), column.dtype)
    padded[: len(column)] = column
    return padded
