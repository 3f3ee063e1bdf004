"""Missing labels: accepted people whose outcome never became known."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.log.checks import Columns
from consequential.log.errors import DecisionLogError
from consequential.log.estimation import EstimatedPropensity

Floats = NDArray[np.float64]
Missing = Literal["refuse", "against", "at_random"]

_SMALLEST = 0.01  # of an estimated probability that a label is observed


def observed_probability(
    missing: Any, observed: ArrayLike | None, columns: Columns, horizon: int | None
) -> Floats | None:
    """Return the probability with which each accepted person's label becomes known.

    None where labels are not thinned: for `"refuse"` and `"against"`. For `"at_random"` it is the
    probability given, or an estimate by a classifier that did not see the person, among accepted
    people old enough to have a label. People who were rejected have no label to observe; theirs is
    not used.
    """
    if missing not in ("refuse", "against", "at_random"):
        raise DecisionLogError(
            f"missing is 'refuse', 'against' or 'at_random', not {missing!r}: what to make of "
            "accepted people without a label"
        )
    if missing != "at_random":
        if observed is not None:
            raise DecisionLogError('observed= is for missing="at_random" only')
        return None
    n = len(columns.decision)
    known = ~np.isnan(columns.label)
    if observed is not None:
        given = np.asarray(observed, dtype=np.float64)
        if given.shape != (n,):
            raise DecisionLogError(f"observed has shape {given.shape}: one probability per row")
        bad = columns.decision & ~((given > 0.0) & (given <= 1.0))
        if bad.any():
            raise DecisionLogError(
                f"{int(bad.sum())} accepted rows have an observed probability outside (0, 1] "
                f"(first: row {int(np.argmax(bad))})"
            )
        return np.where(columns.decision, given, 1.0)
    old = columns.time_step <= columns.time_step.max() - (horizon or 0)
    rows = np.flatnonzero(columns.decision & old)
    probability = np.ones(n)
    if known[rows].all():
        return probability
    try:
        estimates = EstimatedPropensity().cross_fitted(
            columns.features[rows], known[rows], columns.group[rows], len(columns.groups)
        )
    except ValueError as error:
        raise DecisionLogError(
            f"the probability that a label is observed cannot be estimated: {error}. Give "
            "observed=, the probability of each accepted person"
        ) from None
    probability[rows] = np.clip(estimates, _SMALLEST, 1.0)
    return probability
