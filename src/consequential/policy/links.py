"""Links: how a linear score becomes a probability of acceptance, `pi = g(eta)`.

Each link is three pure functions of `eta`, written against the array API so that NumPy and
JAX arrays both work: `probability` is g, `derivative` is g', and `log_derivative` is g'/g, the
derivative of `log g` that the log-derivative trick needs. All are exact where a naive formula
would overflow (`|eta|` of a thousand and more).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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


def _flat_from_zero(name: str, factor: float) -> Link:
    """Return the link that is `factor sigma(eta)` where eta < 0, and 1 where eta >= 0."""

    def piecewise(function: Callable[[Array], Array], above: float) -> Callable[[Array], Array]:
        return lambda eta: eta.__array_namespace__().where(eta >= 0, above, function(eta))

    return Link(
        name,
        piecewise(lambda eta: factor * _sigmoid(eta), 1.0),
        piecewise(lambda eta: factor * _sigmoid_derivative(eta), 0.0),
        piecewise(_sigmoid_log_derivative, 0.0),
    )


LOGISTIC = Link("logistic", _sigmoid, _sigmoid_derivative, _sigmoid_log_derivative)

# The paper's [K20: semi-logistic] jumps from 1/2 to 1 at eta = 0. Its derivative, like the
# paper's, is that of the smooth parts only: see docs/deviations.md for the boundary term.
SEMI_LOGISTIC = _flat_from_zero("semi_logistic", 1.0)

# min(1, 2 sigma(eta)): the same idea without the jump, so its gradient has no boundary term.
SMOOTH_SEMI_LOGISTIC = _flat_from_zero("smooth_semi_logistic", 2.0)

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


class LinkNumbers(NamedTuple):
    """A link and its exploration floor as numbers, for any of the links above.

    `pi = floor + (1 - floor) g`, where g is `below sigma(eta)` for eta < 0, and for eta >= 0
    it is 1 if the link is flat there, else `sigma(eta)`.
    """

    below: float
    flat: float  # 1 or 0
    floor: float


LINK_NUMBERS = {
    "logistic": (1.0, 0.0),
    "semi_logistic": (1.0, 1.0),
    "smooth_semi_logistic": (2.0, 1.0),
}


def responses(
    link: LinkNumbers, eta: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the propensities of linear scores and their derivatives, with one exponential each."""
    decayed = np.exp(-np.abs(eta))
    negative, smaller = eta < 0.0, decayed / (1.0 + decayed)  # of sigma(eta) and sigma(-eta)
    scaled = smaller * np.where(
        negative, (1.0 - link.floor) * link.below, (1.0 - link.floor) * (1.0 - link.flat)
    )
    return np.where(negative, link.floor + scaled, 1.0 - scaled), scaled - scaled * smaller
