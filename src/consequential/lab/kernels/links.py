"""Links as compiled loops.

Numba vectorises a loop only while it is simple arithmetic over few arrays. So the exponential is
written out, and a link is two numbers instead of a branch:

    eta < 0:   pi = below sigma(eta)
    eta >= 0:  pi = sigma(eta), or 1 where the link is flat

`logistic` is (1, 0), `semi_logistic` (1, 1), `smooth_semi_logistic` (2, 1), and a threshold (0, 1).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from consequential.lab.kernels.jit import compiled, compiled_exactly
from consequential.policy.links import LinkNumbers

Floats = NDArray[np.float64]


THRESHOLD = LinkNumbers(0.0, 1.0, 0.0)

_LOG2_E = 1.0 / math.log(2.0)
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LEAST = -650.0
_ROUNDING = 1.5 * 2.0**52  # adding it rounds to an integer, which is then in the lowest bits
# Moshier's rational approximation (Cephes): exp(r) is (even + odd) / (even - odd) for |r| up to
# log(2) / 2, with `even` and `odd / r` polynomials in r^2
_ODD_2, _ODD_1 = 1.26177193074810590878e-4, 3.02994407707441961300e-2
_EVEN_3, _EVEN_2 = 3.00198505138664455042e-6, 2.52448340349684104192e-3
_EVEN_1, _EVEN_0 = 2.27265548208155028766e-1, 2.0


@compiled_exactly
def exponential_ratio(x: float) -> tuple[float, float]:
    """Return two positive numbers whose quotient is `exp(x)` for x <= 0, to a bit or two.

    Below -650 it stays at `exp(-650)`: subnormal numbers are many times slower. The caller divides
    anyway: `1 / (1 + a / b)` is `b / (a + b)`, with one division.
    """
    x = x if not (x < _LEAST) else _LEAST
    shifted = x * _LOG2_E + _ROUNDING
    k = shifted - _ROUNDING
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    r2 = r * r
    odd = r * ((_ODD_2 * r2 + _ODD_1) * r2 + 1.0)
    even = ((_EVEN_3 * r2 + _EVEN_2) * r2 + _EVEN_1) * r2 + _EVEN_0
    power = (np.float64(shifted).view(np.int64) << 52) + 0x3FF0000000000000
    return (even + odd) * np.int64(power).view(np.float64), even - odd


@compiled_exactly
def sigmoids(eta: float) -> tuple[float, float]:
    """Return the larger and the smaller one of `sigma(eta)` and `sigma(-eta)`."""
    above, below = exponential_ratio(-abs(eta))
    smaller = above / (above + below)
    # rounded like 1 / (1 + exp(-|eta|)), so that decisions on near-certain people agree with NumPy
    return 2.0 - (1.0 + smaller), smaller


@compiled_exactly
def response(eta: float, link: LinkNumbers) -> tuple[float, float, float]:
    """Return the propensity, its derivative in eta, and the derivative of the logistic function.

    All three follow from the smaller one of `sigma(eta)` and `sigma(-eta)`.
    """
    over, under = exponential_ratio(-abs(eta))
    smaller = over / (over + under)
    factor = (1.0 - link.floor) * ((1.0 - link.flat) if eta >= 0.0 else link.below)
    scaled = factor * smaller
    propensity = 1.0 - scaled if eta >= 0.0 else link.floor + scaled
    return propensity, scaled - scaled * smaller, smaller - smaller * smaller


@compiled
def linear_scores(theta: Floats, inputs: Floats, start: int, eta: Floats) -> None:
    """Set `eta` to `inputs . theta` for the rows from `start` on; inputs have one row per input."""
    # Unsigned indices: a possibly negative index would keep the loop from being vectorised. Several
    # inputs are taken at a time, since loading and storing is the cost.
    first, n, m = np.uint64(start), np.uint64(eta.size), theta.size
    k = 4 if m >= 4 else 2 if m >= 2 else 1
    a, b = theta[0], theta[min(1, m - 1)]
    if k == 4:
        c, d = theta[2], theta[3]
        for i in range(n):
            eta[i] = (a * inputs[0, first + i] + b * inputs[1, first + i]) + (
                c * inputs[2, first + i] + d * inputs[3, first + i]
            )
    elif k == 2:
        for i in range(n):
            eta[i] = a * inputs[0, first + i] + b * inputs[1, first + i]
    else:
        for i in range(n):
            eta[i] = a * inputs[0, first + i]
    while k < m:
        a, b, beside = theta[k], theta[k + 1] if k + 1 < m else 0.0, min(k + 1, m - 1)
        for i in range(n):
            eta[i] += a * inputs[k, first + i] + b * inputs[beside, first + i]
        k += 2


@compiled
def propensities(link: LinkNumbers, eta: Floats, propensity: Floats) -> None:
    """Set `floor + (1 - floor) g(eta)`."""
    for i in range(eta.size):
        propensity[i], _, _ = response(eta[i], link)


@compiled
def responses(
    link: LinkNumbers, eta: Floats, propensity: Floats, derivative: Floats, steepness: Floats
) -> None:
    """Set the propensity, its derivative, and the derivative of the logistic function."""
    for i in range(eta.size):
        propensity[i], derivative[i], steepness[i] = response(eta[i], link)
