"""Links: how a linear score becomes a probability of acceptance, `pi = g(eta)`.

Each link is three pure functions of `eta`, written against the array API so that NumPy and
JAX arrays both work: `probability` is g, `derivative` is g', and `log_derivative` is g'/g, the
derivative of `log g` that the log-derivative trick needs. All are exact where a naive formula
would overflow (`|eta|` of a thousand and more).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Link", "link_named"]

Array = Any  # a NumPy or a JAX array


@dataclass(frozen=True, slots=True)
class Link:
    """A named map from a linear score to a propensity.

    Examples
    --------
    >>> import numpy as np
    >>> import consequential as cq
    >>> link = cq.links.link_named("smooth_semi_logistic")
    >>> link.probability(np.array([-1000.0, -1.0, 0.0, 3.0])).round(4)
    array([0.    , 0.5379, 1.    , 1.    ])
    """

    name: str
    probability: Callable[[Array], Array]
    derivative: Callable[[Array], Array]
    log_derivative: Callable[[Array], Array]

    def __reduce__(self) -> tuple[Any, ...]:
        # a known link stays the same object in a copy or another process
        if LINKS.get(self.name) is self:
            return link_named, (self.name,)
        return Link, (self.name, self.probability, self.derivative, self.log_derivative)


def _sigmoid(eta: Array) -> Array:
    xp = eta.__array_namespace__()
    decayed = xp.exp(-xp.abs(eta))
    return xp.where(eta >= 0, 1.0, decayed) / (1.0 + decayed)


def _sigmoid_derivative(eta: Array) -> Array:
    xp = eta.__array_namespace__()
    decayed = xp.exp(-xp.abs(eta))
    return decayed / (1.0 + decayed) ** 2


def _sigmoid_log_derivative(eta: Array) -> Array:
    return _sigmoid(-eta)


def _below_zero(function: Callable[[Array], Array], above: float) -> Callable[[Array], Array]:
    """Apply `function` where eta < 0 and the constant `above` where eta >= 0."""

    def piecewise(eta: Array) -> Array:
        xp = eta.__array_namespace__()
        return xp.where(eta >= 0, above, function(eta))

    return piecewise


def _doubled(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda eta: 2.0 * function(eta)


LOGISTIC = Link("logistic", _sigmoid, _sigmoid_derivative, _sigmoid_log_derivative)

# The paper's [K20: semi-logistic] jumps from 1/2 to 1 at eta = 0. Its derivative, like the
# paper's, is that of the smooth parts only: see docs/deviations.md for the boundary term.
SEMI_LOGISTIC = Link(
    "semi_logistic",
    _below_zero(_sigmoid, 1.0),
    _below_zero(_sigmoid_derivative, 0.0),
    _below_zero(_sigmoid_log_derivative, 0.0),
)

# min(1, 2 sigma(eta)): the same idea without the jump, so its gradient has no boundary term.
SMOOTH_SEMI_LOGISTIC = Link(
    "smooth_semi_logistic",
    _below_zero(_doubled(_sigmoid), 1.0),
    _below_zero(_doubled(_sigmoid_derivative), 0.0),
    _below_zero(_sigmoid_log_derivative, 0.0),
)

LINKS = {link.name: link for link in (LOGISTIC, SEMI_LOGISTIC, SMOOTH_SEMI_LOGISTIC)}


def link_named(name: str | Link) -> Link:
    """Look a link up by name; a `Link` passes through.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.links.link_named("logistic").name
    'logistic'
    """
    if isinstance(name, Link):
        return name
    if name not in LINKS:
        raise ValueError(f"unknown link {name!r}; choose one of {', '.join(LINKS)}")
    return LINKS[name]
