"""Contrasts of several estimates, from the interval of each.

References
----------
Newcombe (1998), Interval estimation for the difference between independent proportions, Statistics
in Medicine 17. Zou and Donner (2008), Construction of confidence limits about effect measures: a
general approach, Statistics in Medicine 27.
"""

from __future__ import annotations

from itertools import combinations
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def contrast(
    values: Floats,
    bounds: tuple[Floats, Floats],
    signs: Floats,
    correlation: Floats | None = None,
) -> tuple[float, float]:
    """Return an interval for `sum signs values`, from the intervals of the values.

    The square-and-add method (Newcombe; MOVER): the distance from the sum to its lower end is
    made of the distances from the values to those of their ends that make the sum smaller, as
    a standard error is made of standard errors. A value outside of its bounds is moved to them,
    one that is missing to their middle.

    Parameters
    ----------
    values, bounds
        Estimates, with lower and upper ends of their intervals.
    signs
        What each is multiplied with: 1 and -1 for a difference.
    correlation
        Of the estimates; without it they are independent, as those of different groups are.

    Examples
    --------
    >>> import numpy as np
    >>> from consequential.evaluation.contrasts import contrast
    >>> ends = np.array([0.5, 0.4]), np.array([0.8, 0.6])
    >>> low, high = contrast(np.array([0.7, 0.5]), ends, np.array([1.0, -1.0]))
    >>> round(low, 3), round(high, 3)  # 0.2 - sqrt(0.2^2 + 0.1^2), 0.2 + sqrt(0.1^2 + 0.1^2)
    (-0.024, 0.341)
    """
    low, high = bounds
    inside = np.where(np.isfinite(values), np.clip(values, low, high), (low + high) / 2.0)
    down, up = inside - low, high - inside
    to_low = signs * np.where(signs > 0.0, down, up)
    to_high = signs * np.where(signs > 0.0, up, down)
    matrix = np.eye(len(values)) if correlation is None else correlation
    below, above = (sqrt(max(float(each @ matrix @ each), 0.0)) for each in (to_low, to_high))
    middle = float(signs @ inside)
    return middle - below, middle + above


def largest(
    values: Floats, bounds: tuple[Floats, Floats], together: tuple[Floats, Floats]
) -> tuple[float, float]:
    """Return an interval for the largest absolute difference between two of several rates.

    It is at least as large as any difference certainly is, where `together` are bounds that hold
    for all pairs at once (at the confidence of `sup_t_quantile`). It is at most as large as any
    difference may be: only the bounds of the truly largest one need to hold, so `bounds` of each
    rate alone will do.

    Examples
    --------
    >>> import numpy as np
    >>> from consequential.evaluation.contrasts import largest
    >>> values = np.array([0.9, 0.5, 0.6])
    >>> low, high = largest(values, (values - 0.1, values + 0.1), (values - 0.12, values + 0.12))
    >>> round(low, 3), round(high, 3)
    (0.23, 0.541)
    """
    low = high = 0.0
    for pair in map(list, combinations(range(len(values)), 2)):
        signs = np.array([1.0, -1.0])
        sure = contrast(values[pair], (together[0][pair], together[1][pair]), signs)
        wide = contrast(values[pair], (bounds[0][pair], bounds[1][pair]), signs)
        low = max(low, sure[0], -sure[1])
        high = max(high, -wide[0], wide[1])
    return low, high
