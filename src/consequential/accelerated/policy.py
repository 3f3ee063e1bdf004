"""DifferentiablePolicy: any policy that JAX can differentiate."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.accelerated.backend import compiled, needed, pad, round_length
from consequential.policies import (
    DecisionRule,
    PolicyError,
    as_features,
    checked_floor,
    plain_groups,
    sensitive_codes,
)

Floats = NDArray[np.float64]
People = tuple[Any, ...]  # features, and group codes where the policy uses them


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
        length = round_length(n)
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
