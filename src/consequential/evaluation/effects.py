"""Effects: how much each feature by itself moves a rule's propensities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from consequential.evaluation.estimate import Result
from consequential.evaluation.rates import Floats
from consequential.log import DecisionLog
from consequential.policy import DecisionRule
from consequential.policy.raw_column import RawColumn

_ROWS = 2000  # people that suffice for a mean
_ENDS = (0.1, 0.9)  # quantiles of a feature between which it is moved


@dataclass(frozen=True, slots=True)
class Effect(Result):
    """Whom a rule would accept if everybody had a small or a large value of one feature.

    A column that was prepared, with words or blanks say, is moved as a whole.

    Attributes
    ----------
    feature, low, high
        The feature, and its 10 % and 90 % quantiles; of a binary one both values; of words the one
        with which fewest are accepted, and most.
    at_low, at_high
        The mean propensity if everybody had that value and were otherwise as they are.
    """

    feature: str
    low: float | str
    high: float | str
    at_low: float
    at_high: float

    @property
    def difference(self) -> float:
        """By how much the large value raises the mean propensity above the small one."""
        return self.at_high - self.at_low


def feature_effects(rule: DecisionRule, log: DecisionLog, *, most: int = 10) -> list[Effect]:
    """Return the features that move a rule most by themselves, the largest effect first.

    Features that move nothing are left out: a rule that decides alike for all has no effects. Up
    to 2000 people of the log are asked about, evenly spread over it.

    Examples
    --------
    >>> import numpy as np, consequential as cq
    >>> from consequential.evaluation.effects import feature_effects
    >>> log = cq.DecisionLog.from_arrays(
    ...     [[0, 3.0], [1, 5.0], [0, 4.0]], [1] * 3, [1.0] * 3, [1] * 3,
    ...     feature_names=["student", "income"])
    >>> (effect,) = feature_effects(cq.Policy([0.0, 2.0, 0.0]), log)
    >>> effect.feature, effect.low, effect.high, round(effect.difference, 3)
    ('student', 0.0, 1.0, 0.381)
    """
    rows = log.take(np.unique(np.linspace(0, len(log) - 1, _ROWS).astype(np.intp)))
    found, start = [], 0
    for column in _columns(rows):
        places = slice(start, start + len(column.feature_names))
        start = places.stop
        ends = [
            (_mean(rule, rows, places, x), x) for x in _values(column, rows.features[:, places])
        ]
        if column.kind == "word":  # words have no order of their own
            ends = sorted(ends, key=lambda end: end[0])
        (at_low, low), (at_high, high) = ends[0], ends[-1]
        found.append(
            Effect(column.name, column.value_of(low), column.value_of(high), at_low, at_high)
        )
    moved = [each for each in found if each.difference != 0.0]
    return sorted(moved, key=lambda each: -abs(each.difference))[:most]


def _columns(log: DecisionLog) -> Iterable[RawColumn]:
    """Return the columns that features were prepared from, or else each feature as one."""
    if log.preparation is not None:
        return log.preparation.columns
    return (RawColumn(name, "number", 0.0) for name in log.feature_names)


def _values(column: RawColumn, features: Floats) -> Floats:
    """Return the values that everybody is given, as rows of the column's features."""
    if column.kind == "word":
        return np.eye(features.shape[1])
    known = features[features[:, -1] == 0.0, 0] if column.n_missing else features[:, 0]
    values = np.unique(known)
    ends = np.zeros((2, features.shape[1]))  # nobody's value is missing
    ends[:, 0] = values if len(values) == 2 else np.quantile(known, _ENDS) if len(known) else 0.0
    return ends


def _mean(rule: DecisionRule, rows: DecisionLog, places: slice, values: Floats) -> float:
    """Return the mean propensity if everybody had the same values of a column's features."""
    features = rows.features.copy()
    features[:, places] = values
    return float(replace(rows, features=features).propensity_of(rule).mean())
