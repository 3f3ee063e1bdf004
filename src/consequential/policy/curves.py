"""Curves: a feature map whose coefficients shrink to a straight line, then to a constant."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from consequential.policy.features import Floats, as_features

__all__ = ["Curves"]

_KNOTS = 20  # of the only feature; several features share more of them
_FEWEST_KNOTS = 5
_FEW_VALUES = 8  # a feature with fewer gets no curve
_FARTHEST = 5.0  # deviations from the median: farther values are taken as if they were there
_MOST_PAIRED = 24  # features: of more there are no products


class Curves(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """Piecewise linear curves of the features, and products of pairs of them.

    A curve is a straight line whose slope changes at knots. With independent normal changes it is
    a random walk of the slope: where there are data it can follow them, and away from them it goes
    on straight and less and less certain. That is what a model of the label must say of people of
    whom no labels are known, so it is the default of `ExploreByPosterior`.

    Parameters
    ----------
    n_knots
        Knots per feature; by default 20 for one feature and fewer for each of several. Half of them
        are evenly spaced, half are quantiles.

    Attributes
    ----------
    blocks_
        For each column whether it is a feature (0), part of a curve (1) or a product (2).

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> curves = cq.Curves(n_knots=4).fit(np.linspace(-1.0, 0.5, 301))
    >>> curves.blocks_
    array([0, 1, 1, 1, 1])
    """

    def __init__(self, n_knots: int | None = None) -> None:
        self.n_knots = n_knots

    def fit(self, features: ArrayLike, labels: Any = None) -> Curves:
        """Find the features' medians, deviations and knots."""
        matrix = as_features(features)
        n_features = self.n_features_in_ = matrix.shape[1]
        low, self.centre_, high = np.quantile(matrix, [0.05, 0.5, 0.95], axis=0)
        narrow = (high - low) / 3.29  # of a normal feature, its standard deviation
        spread = np.where(narrow > 0.0, narrow, matrix.std(axis=0))
        self.spread_ = np.where(spread > 0.0, spread, 1.0)
        n_knots = self.n_knots or max(_FEWEST_KNOTS, round(_KNOTS / n_features**0.5))
        scaled, curved, knots = self._scaled(matrix), [], []
        for k, column in enumerate(scaled.T):
            if len(np.unique(column)) >= _FEW_VALUES:
                found = _knots(column, n_knots)
                curved += [k] * len(found)
                knots += found.tolist()
        self.curved_, self.knots_ = np.array(curved, dtype=np.intp), np.array(knots)
        self.slopes_ = _slopes(self.curved_, self.knots_)
        first, second = np.triu_indices(n_features, 1)
        paired = n_features <= _MOST_PAIRED
        self.pairs_ = np.stack([first, second]) if paired else np.zeros((2, 0), dtype=np.intp)
        counts = n_features, len(knots), self.pairs_.shape[1]
        self.blocks_: NDArray[np.intp] = np.repeat(np.arange(3), counts)
        return self

    def transform(self, features: ArrayLike) -> Floats:
        """Return features, parts of their curves and products, one row per person."""
        check_is_fitted(self)
        scaled = np.ascontiguousarray(self._scaled(as_features(features)).T)  # columns in one piece
        n_features, n_knots = len(scaled), len(self.knots_)
        found = np.empty((len(self.blocks_), scaled.shape[1]))
        found[:n_features] = scaled
        beyond = found[n_features : n_features + n_knots]
        np.subtract(scaled[self.curved_], self.knots_[:, None], out=beyond)
        beyond *= self.slopes_[:, None]
        np.maximum(beyond, 0.0, out=beyond)
        first, second = self.pairs_
        np.multiply(scaled[first], scaled[second], out=found[n_features + n_knots :])
        return found.T

    def _scaled(self, matrix: Floats) -> Floats:
        scaled: Floats = np.clip((matrix - self.centre_) / self.spread_, -_FARTHEST, _FARTHEST)
        return scaled


def _knots(column: Floats, n_knots: int) -> Floats:
    """Return knots inside the range of a column, evenly spaced ones and quantiles."""
    n_even = n_knots // 2
    even = np.linspace(column.min(), column.max(), n_even + 2)[1:-1]
    shares = (np.arange(n_knots - n_even) + 0.5) / (n_knots - n_even)
    found = np.unique(np.concatenate([even, np.quantile(column, shares)]))
    bent: Floats = found[np.abs(found) > 1e-9]  # at the median itself nothing bends
    return bent


def _slopes(curved: NDArray[np.intp], knots: Floats) -> Floats:
    """Return the root of each knot's distance to the next one inwards: a random walk's deviation.

    Its sign is that of the knot: curves bend from the median outwards, on both sides.
    """
    slopes = np.empty(len(knots))
    for k in np.unique(curved):
        own = knots[curved == k]
        left, right = own[own < 0.0], own[own >= 0.0]
        left_steps, right_steps = np.diff(np.append(left, 0.0)), np.diff(np.append(0.0, right))
        slopes[curved == k] = np.concatenate([-np.sqrt(left_steps), np.sqrt(right_steps)])
    return slopes
