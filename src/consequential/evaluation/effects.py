"""Effects: how much each feature by itself moves a rule's propensities."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from consequential.evaluation.estimate import Result
from consequential.log import DecisionLog
from consequential.policies import DecisionRule

_ROWS = 2000  # people that suffice for a mean
_ENDS = (0.1, 0.9)  # quantiles of a feature between which it is moved


@dataclass(frozen=True, slots=True)
class Effect(Result):
    """Whom a rule would accept if everybody had a small or a large value of one feature.

    Attributes
    ----------
    feature, low, high
        The feature, and its 10 % and 90 % quantiles; of a binary one both values.
    at_low, at_high
        The mean propensity if everybody had that value and were otherwise as they are.
    """

    feature: str
    low: float
    high: float
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
    >>> from consequential.evaluation import feature_effects
    >>> log = cq.DecisionLog.from_arrays(
    ...     [[0, 3.0], [1, 5.0], [0, 4.0]], [1] * 3, [1.0] * 3, [1] * 3,
    ...     feature_names=["student", "income"])
    >>> (effect,) = feature_effects(cq.Policy([0.0, 2.0, 0.0]), log)
    >>> effect.feature, effect.low, effect.high, round(effect.difference, 3)
    ('student', 0.0, 1.0, 0.381)
    """
    rows = log.take(np.unique(np.linspace(0, len(log) - 1, _ROWS).astype(np.intp)))
    found = []
    for k, name in enumerate(rows.feature_names):
        values = np.unique(rows.features[:, k])
        ends = values if len(values) == 2 else np.quantile(rows.features[:, k], _ENDS)
        low, high = map(float, ends)
        if low < high:
            found.append(Effect(name, low, high, *(_mean(rule, rows, k, x) for x in (low, high))))
    moved = [each for each in found if each.difference != 0.0]
    return sorted(moved, key=lambda each: -abs(each.difference))[:most]


def _mean(rule: DecisionRule, rows: DecisionLog, column: int, value: float) -> float:
    """Return the mean propensity if everybody had one value of a feature."""
    features = rows.features.copy()
    features[:, column] = value
    return float(replace(rows, features=features).propensity_of(rule).mean())
