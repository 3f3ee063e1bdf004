"""Path sums: the functionals of many policies on one population."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.lab.kernels.batch_sums import update_sums
from consequential.lab.kernels.jit import compiled
from consequential.lab.kernels.links import linear_scores, propensities
from consequential.policy.links import LinkNumbers

Floats = NDArray[np.float64]

_CHUNK = 1024


@compiled
def path_sums(inputs: Floats, columns: Floats, link: LinkNumbers, thetas: Floats) -> Floats:
    """Return `sum_i columns[c, i] pi_i` for each theta, one row per theta.

    `inputs` has one column per point of the population.
    """
    n, sums = inputs.shape[1], np.zeros((thetas.shape[0], columns.shape[0]))
    scores, chances = np.empty(_CHUNK), np.empty(_CHUNK)
    for k in range(thetas.shape[0]):
        for start in range(0, n, _CHUNK):
            eta = scores[: min(_CHUNK, n - start)]
            propensity = chances[: eta.size]
            linear_scores(thetas[k], inputs, start, eta)
            propensities(link, eta, propensity)
            update_sums(columns, start, propensity, 1.0, 1.0, sums[k])
    return sums
