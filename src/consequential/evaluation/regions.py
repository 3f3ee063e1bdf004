"""Regions: the leaves of a shallow tree over features and groups, in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consequential.log import DecisionLog

Floats = NDArray[np.float64]

_DEPTH = 3
_LEAF_SHARE = 0.03


@dataclass(frozen=True, slots=True)
class Regions:
    """People told apart by a tree of at most eight leaves."""

    tree: Any
    names: tuple[str, ...]
    indicators: NDArray[np.bool_]

    @classmethod
    def grown(
        cls,
        log: DecisionLog,
        target: Floats,
        weights: Floats | None = None,
        least_weight: float = 0.0,
        least_gain: float = 0.0,
    ) -> Regions:
        """Tell the people of a log apart by a target.

        A leaf has 3% of the people or more and a share `least_weight` of the weight; a split
        lowers the weighted variance of the target within leaves by `least_gain` or more.
        """
        from sklearn.tree import DecisionTreeRegressor

        inputs = _inputs(log)
        model = DecisionTreeRegressor(
            max_depth=_DEPTH,
            min_samples_leaf=max(1, round(_LEAF_SHARE * len(log))),
            min_weight_fraction_leaf=least_weight,
            min_impurity_decrease=least_gain,
            random_state=0,
        )
        return cls(
            model.fit(inputs, target, sample_weight=weights),
            (*log.feature_names, *(f"group {name!r}" for name in _named(log))),
            np.asarray(np.isin(inputs, (0.0, 1.0)).all(axis=0)),
        )

    def of(self, log: DecisionLog) -> NDArray[np.intp]:
        """Return the leaf that each person falls into."""
        return np.asarray(self.tree.apply(_inputs(log)), dtype=np.intp)

    def in_words(self, leaf: int) -> str:
        """Return the conditions on the way to a leaf, one for each input that is asked about."""
        tree = self.tree.tree_
        bounds: dict[int, tuple[float, float]] = {}
        node = leaf
        while node != 0:
            parent = int(
                np.flatnonzero((tree.children_left == node) | (tree.children_right == node))[0]
            )
            column, cut = int(tree.feature[parent]), float(tree.threshold[parent])
            low, high = bounds.get(column, (-np.inf, np.inf))
            if tree.children_left[parent] == node:
                bounds[column] = (low, min(high, cut))
            else:
                bounds[column] = (max(low, cut), high)
            node = parent
        parts = [self._condition(column, *bounds[column]) for column in sorted(bounds)]
        return " and ".join(parts) or "anywhere"

    def _condition(self, column: int, low: float, high: float) -> str:
        name = self.names[column]
        if self.indicators[column]:
            return name if np.isfinite(low) else f"not {name}"
        if np.isfinite(low) and np.isfinite(high):
            return f"{low:.4g} < {name} <= {high:.4g}"
        return f"{name} > {low:.4g}" if np.isfinite(low) else f"{name} <= {high:.4g}"


def _inputs(log: DecisionLog) -> Floats:
    return np.column_stack([log.features, *(log.group == code for code in range(len(_named(log))))])


def _named(log: DecisionLog) -> tuple[Any, ...]:
    return log.groups if len(log.groups) > 1 else ()
