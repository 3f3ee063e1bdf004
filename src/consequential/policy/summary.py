"""Summary: medians, quantiles and means of the training features, and nobody's own data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from consequential.policy.features import Floats, PolicyError

SHARES = (0.05, 0.25, 0.5, 0.75, 0.95)
_ORDINARY = (-1.63, -0.71, 0.12, 0.83, 1.57)  # values of features of which nothing is known
_LOOKED_AT = 100_000  # people at most


@dataclass(frozen=True, slots=True, eq=False)
class FeatureSummary:
    """Reference values and quantiles of the features of people.

    Attributes
    ----------
    names
        The features, in order. `purpose=car` is an indicator of a word in the column `purpose`.
    reference
        The median of each feature; for the indicators of a column of words, those of its
        commonest word.
    quantiles
        One row per share of people (5, 25, 50, 75 and 95 percent), one column per feature.
    means
        The mean of each feature; for an indicator, the share of people with that word.

    Examples
    --------
    >>> import consequential as cq
    >>> people = [[1.0, 1, 0], [2.0, 0, 1], [9.0, 0, 1]]
    >>> cq.FeatureSummary.of(people, ["income", "by=car", "by=foot"]).reference
    array([2., 0., 1.])
    """

    names: tuple[str, ...]
    reference: Floats
    quantiles: Floats
    means: Floats

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(str(name) for name in self.names))
        for name in ("reference", "quantiles", "means"):
            values = np.array(getattr(self, name), dtype=np.float64)
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        n = len(self.names)
        fits = self.reference.shape == self.means.shape == self.quantiles.shape[1:] == (n,)
        if not fits or len(self.quantiles) == 0:
            raise PolicyError("a summary needs a reference, quantiles and a mean for each feature")
        known = (self.reference, self.quantiles, self.means)
        if not all(np.isfinite(each).all() for each in known):
            raise PolicyError("the values in a summary of features must be finite")

    @classmethod
    def of(cls, features: ArrayLike, names: Sequence[str]) -> FeatureSummary:
        """Return the summary of people's features; of many people, of a part of them."""
        matrix = np.asarray(features, dtype=np.float64)
        evenly = np.linspace(0, len(matrix) - 1, min(len(matrix), _LOOKED_AT)).astype(np.intp)
        people = matrix[evenly]
        quantiles = np.quantile(people, SHARES, axis=0, method="nearest")
        reference = quantiles[SHARES.index(0.5)].copy()
        for places in word_columns(names).values():
            reference[places] = 0.0
            reference[places[people[:, places].sum(axis=0).argmax()]] = 1.0
        return cls(tuple(names), reference, quantiles, people.mean(axis=0))

    @classmethod
    def ordinary(cls, names: Sequence[str]) -> FeatureSummary:
        """Return a summary for features of which nothing is known but their names."""
        quantiles = np.repeat(np.array(_ORDINARY)[:, None], len(names), axis=1)
        return cls(tuple(names), np.zeros(len(names)), quantiles, np.zeros(len(names)))

    def made_up_people(self, n: int) -> Floats:
        """Return people whose features are quantiles put together at random, the same each time."""
        rng = np.random.default_rng(0)
        people = np.empty((n, len(self.names)))
        for k in range(len(self.names)):
            people[:, k] = self.quantiles[rng.permutation(n) % len(self.quantiles), k]
        for places in word_columns(self.names).values():
            people[:, places] = np.eye(len(places))[rng.permutation(n) % len(places)]
        return people

    @property
    def columns(self) -> dict[str, list[int]]:
        """The columns that features are made of, each with the places of its features."""
        words = word_columns(self.names)
        return {name: [k] for k, name in enumerate(self.names) if "=" not in name} | words

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        return {
            "names": list(self.names),
            "reference": self.reference.tolist(),
            "quantiles": self.quantiles.tolist(),
            "means": self.means.tolist(),
        }

    def __repr__(self) -> str:
        return f"FeatureSummary(of {', '.join(self.names)})"


def word_columns(names: Sequence[str]) -> dict[str, list[int]]:
    """Return the columns of words among features, each with the places of its indicators."""
    found: dict[str, list[int]] = {}
    for k, name in enumerate(names):
        column, equals, _ = name.partition("=")
        if equals:
            found.setdefault(column, []).append(k)
    return found
