"""Mapped columns: a feature map as the first step of a model that may also see groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from consequential.policy.features import Floats, framed


class MappedColumns(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # untyped bases
    """Apply a feature map to the features, and leave the groups' indicators after them as they are.

    Parameters
    ----------
    feature_map
        A scikit-learn transformer.
    names
        The features, the first columns.
    by_name
        Whether the feature map is given a data frame.
    """

    def __init__(self, feature_map: Any, names: tuple[str, ...], *, by_name: bool) -> None:
        self.feature_map = feature_map
        self.names = names
        self.by_name = by_name

    def fit(self, inputs: Floats, labels: Any = None) -> MappedColumns:
        """Fit the feature map."""
        self.feature_map.fit(self._features(inputs))
        self.fitted_ = True
        return self

    def transform(self, inputs: Floats) -> Floats:
        """Return the mapped features, then the other columns."""
        found = self.feature_map.transform(self._features(inputs))
        found = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
        return np.column_stack([found, inputs[:, len(self.names) :]])

    def _features(self, inputs: Floats) -> Any:
        features = inputs[:, : len(self.names)]
        return framed(features, self.names) if self.by_name else features
