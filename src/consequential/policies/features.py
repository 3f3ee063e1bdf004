"""Features as matrices, and how a rule finds its own columns among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_MADE_UP = ("x", "Column_")  # what we and LightGBM call the columns of an array


class PolicyError(ValueError):
    """A policy was built, used or stored in a way that cannot work."""


class FeaturesError(PolicyError):
    """A rule was asked about people without the features it looks at."""


class NamedFeatures(np.ndarray[Any, np.dtype[np.float64]]):
    """A matrix of features that knows the names of its columns.

    A log asks rules with it, so that each rule finds its own columns, also a rule inside another
    rule. It is an array like any other; whatever is cut out of it or computed from it has no names.

    Examples
    --------
    >>> import consequential as cq
    >>> from consequential.policies import NamedFeatures
    >>> people = NamedFeatures([[10.0, 0.0]], ["debt", "income"])
    >>> cq.Policy([0.0, 1.0, 0.0], feature_names=["income", "debt"]).propensity(people)
    array([0.5])
    """

    names: tuple[str, ...]

    def __new__(cls, matrix: ArrayLike, names: Sequence[str]) -> NamedFeatures:
        """Return a view of the matrix with names."""
        named = as_features(matrix).view(cls)
        named.names = tuple(names)
        return named

    def __array_finalize__(self, parent: Any) -> None:
        self.names = ()

    def __reduce__(self) -> Any:
        return NamedFeatures, (np.asarray(self), self.names)


def as_features(features: ArrayLike) -> Floats:
    """Features as a float matrix, one row per person; a vector is one feature."""
    matrix = np.asarray(features, dtype=np.float64)
    if matrix.ndim not in (1, 2):
        raise PolicyError(f"features is one row a person, not of shape {matrix.shape}")
    return matrix[:, None] if matrix.ndim == 1 else matrix


def numbered_names(n: int) -> tuple[str, ...]:
    """Names for the columns of an array without names: x0, x1, ..."""
    return tuple(f"x{k}" for k in range(n))


def made_up(names: Sequence[str]) -> bool:
    """Whether names say nothing: there are none, or they number the columns."""
    return any(all(name == f"{word}{k}" for k, name in enumerate(names)) for word in _MADE_UP)


def own_columns(features: ArrayLike, wanted: Sequence[str]) -> Floats:
    """Return the columns that a rule looks at, in its order.

    Columns are matched by name. By position, which needs as many columns as the rule looks at,
    only where one side has no names: a plain array, or names that were made up for one (x0, x1,
    ...). An indicator `column=word` of a word that nobody here has is 0.
    """
    matrix, wanted = as_features(features), tuple(wanted)
    names: tuple[str, ...] = getattr(features, "names", ())
    if not wanted or wanted == names:
        return matrix
    nameless = made_up(wanted), made_up(names)
    if set(wanted) <= set(names) and not all(nameless):
        return matrix[:, [names.index(name) for name in wanted]]
    if any(nameless):
        if matrix.shape[1] != len(wanted):
            raise FeaturesError(f"the rule looks at {_counted(wanted)}, but {columns_said(matrix)}")
        return matrix
    columns = [_column(matrix, names, name) for name in wanted]
    return np.column_stack(columns)


def _column(matrix: Floats, names: tuple[str, ...], name: str) -> Floats:
    if name in names:
        return matrix[:, names.index(name)]
    variable, equals, _ = name.partition("=")
    words = [k for k, other in enumerate(names) if equals and other.startswith(f"{variable}=")]
    # nobody has the word if everybody has one of the others
    if words and (matrix[:, words].sum(axis=1) == 1.0).all():
        return np.zeros(len(matrix))
    raise FeaturesError(
        f"no feature {name!r}, which the rule looks at; there are {', '.join(names)}"
    )


def columns_said(matrix: Floats) -> str:
    """Say how many columns a matrix has."""
    n = matrix.shape[1]
    return "there is 1 column" if n == 1 else f"there are {n} columns"


def _counted(names: tuple[str, ...]) -> str:
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return f"{len(names)} feature{'s' if len(names) != 1 else ''} ({shown})"
