"""Links and random numbers as compiled loops, and how code is compiled here.

Numba keeps a loop vectorised only while it is simple arithmetic over few arrays, so the
exponential is written out, and a link is two numbers instead of a branch:

    eta < 0:   pi = bend sigma(eta)
    eta >= 0:  pi = sigma(eta), or 1 where the link is flat

`logistic` is (1, 0), `semi_logistic` (1, 1), `smooth_semi_logistic` (2, 1), and a threshold
(0, 1). Parity with `links` is tested to rounding.
"""

from __future__ import annotations

import hashlib
import math
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from consequential.policies.links import LINKS
from consequential.policies.policy import Policy

Floats = NDArray[np.float64]


@cache
def _kernels_digest() -> str:
    """Return a digest of all modules with compiled code in them."""
    package = Path(__file__).parent.parent
    texts = (path.read_bytes() for path in sorted(package.rglob("*.py")))
    kernels = b"".join(text for text in texts if b"@compiled" in text or b"@pasted" in text)
    return hashlib.sha256(kernels).hexdigest()


def _kept_on_disk(function: Callable[..., Any], **options: Any) -> Any:
    """Compile a function; what is kept on disk holds as long as no kernel has changed.

    Numba looks only at the function's own file, and would go on using old code of the functions
    it calls.
    """
    dispatcher = numba.njit(cache=True, **options)(function)
    file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if file is not None and hasattr(file, "_version") and hasattr(file, "_source_stamp"):
        # read before all else of an index, which may name modules that are no more
        file._version = f"{file._version} {_kernels_digest()}"
        file._source_stamp = None
    return dispatcher


_Function = TypeVar("_Function", bound=Callable[..., Any])
# Sums may be reordered, which vectorises them; NaN and infinity keep their meaning.
_VECTORISED: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp"},
}


def compiled(function: _Function) -> _Function:
    """Compile a function on its first call."""
    return cast(_Function, _kept_on_disk(function, **_VECTORISED))


def pasted(function: _Function) -> _Function:
    """Paste a function into its callers.

    For functions of many arrays: passing the arrays on would cost more than what they do.
    """
    return cast(_Function, numba.njit(inline="always", **_VECTORISED)(function))


# The exponential's range reduction subtracts on purpose: nothing in it may be reordered.
_in_order = numba.njit(error_model="numpy", fastmath={"contract"})

_reported: set[str] = set()


@contextmanager
def compiling_reported(what: str) -> Iterator[None]:
    """Say so on standard error where the first call takes long because code is being compiled.

    Compiled code is kept on disk beside the package (or in Numba's cache directory), so this
    happens once after an installation.
    """
    if what in _reported:
        yield
        return
    _reported.add(what)
    message = f"compiling {what} for this machine, once; this takes a minute ...\n"
    timer = threading.Timer(2.0, lambda: sys.stderr.write(message))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Bend(NamedTuple):
    """A link and its floor as numbers."""

    bend: float
    flat: float
    floor: float


THRESHOLD = Bend(0.0, 1.0, 0.0)
_BENDS = {"logistic": (1.0, 0.0), "semi_logistic": (1.0, 1.0), "smooth_semi_logistic": (2.0, 1.0)}


def bend_of(policy: Policy) -> Bend | None:
    """Return a policy's link as numbers.

    None for a link of the user's own, and for a policy that decides differently on people whom its
    log does not support: then the link does not say everything.
    """
    overruled = policy.support is not None and policy.support.overrules
    if overruled or LINKS.get(policy.link.name) is not policy.link:
        return None
    return Bend(*_BENDS[policy.link.name], policy.floor)


@intrinsic
def to_bits(context: Any, value: Any) -> Any:
    """Return the 64 bits of a number: integers in the numbers' order, where none is below 0."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def from_bits(context: Any, value: Any) -> Any:
    """Return the number that these 64 bits are."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


_LOG2_E = 1.0 / math.log(2.0)
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_LEAST = -650.0
_ROUNDING = 1.5 * 2.0**52  # adding it rounds to an integer, which lands in the lowest bits
# Moshier's rational approximation (Cephes): exp(r) is (even + odd) / (even - odd) for |r| up to
# log(2) / 2, with even and r odd polynomials in r^2
_ODD_2, _ODD_1 = 1.26177193074810590878e-4, 3.02994407707441961300e-2
_EVEN_3, _EVEN_2 = 3.00198505138664455042e-6, 2.52448340349684104192e-3
_EVEN_1, _EVEN_0 = 2.27265548208155028766e-1, 2.0


@_in_order
def exponential_ratio(x: float) -> tuple[float, float]:
    """Return two numbers above 0 whose quotient is `exp(x)` for x up to 0, to a bit or two.

    Below -650 it stays at `exp(-650)`: smaller ones, times what people count, would be numbers
    below the normal range, which take many times as long. What is wanted is nearly always divided
    by something anyway: `1 / (1 + above / below)` is `below / (above + below)`, with one division.
    """
    x = x if not (x < _LEAST) else _LEAST
    shifted = x * _LOG2_E + _ROUNDING
    k = shifted - _ROUNDING
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    r2 = r * r
    odd = r * ((_ODD_2 * r2 + _ODD_1) * r2 + 1.0)
    even = ((_EVEN_3 * r2 + _EVEN_2) * r2 + _EVEN_1) * r2 + _EVEN_0
    return (even + odd) * from_bits((to_bits(shifted) << 52) + 0x3FF0000000000000), even - odd  # type: ignore[call-arg]


@_in_order
def sigmoids(eta: float) -> tuple[float, float]:
    """Return the larger and the smaller one of `sigma(eta)` and `sigma(-eta)`."""
    above, below = exponential_ratio(-abs(eta))
    smaller = above / (above + below)
    # rounded as 1 / (1 + exp(-|eta|)) is: decisions on people who are all but sure agree
    return 2.0 - (1.0 + smaller), smaller


@_in_order
def declined(eta: float, above: float) -> float:
    """Return `sigma(-eta)`, times `above` where eta is not negative."""
    over, under = exponential_ratio(-abs(eta))
    return (above * over if eta >= 0.0 else under) / (over + under)


@_in_order
def in_expectation(
    eta: float, above: float, below: float, floor: float
) -> tuple[float, float, float]:
    """Return the propensity, its derivative in eta, and the logistic function's derivative.

    `above` and `below` are the link's two `sides`: what it makes of the smaller one of
    `sigma(eta)` and `sigma(-eta)` on either side of 0. That one number says everything.
    """
    over, under = exponential_ratio(-abs(eta))
    smaller = over / (over + under)
    bent = (above if eta >= 0.0 else below) * smaller
    propensity = 1.0 - bent if eta >= 0.0 else floor + bent
    return propensity, bent - bent * smaller, smaller - smaller * smaller


@_in_order
def sides(link: Bend) -> tuple[float, float]:
    """Return what a link multiplies the smaller sigmoid by, above 0 and below."""
    return (1.0 - link.floor) * (1.0 - link.flat), (1.0 - link.floor) * link.bend


@compiled
def linear_scores(theta: Floats, phi: Floats, start: int, eta: Floats) -> None:
    """Fill `eta` with `phi . theta` for the rows from `start` on; phi has one row an input."""
    # a slice begins at 0: an index that might be negative would not vectorise
    n, m, stop = eta.size, theta.size, start + eta.size
    k = 0
    if m >= 4:
        # several inputs at a time: loading and storing is what this costs
        a, b, c, d = phi[0, start:stop], phi[1, start:stop], phi[2, start:stop], phi[3, start:stop]
        for i in range(n):
            eta[i] = theta[0] * a[i] + theta[1] * b[i] + theta[2] * c[i] + theta[3] * d[i]
        k = 4
    elif m >= 2:
        a, b = phi[0, start:stop], phi[1, start:stop]
        for i in range(n):
            eta[i] = theta[0] * a[i] + theta[1] * b[i]
        k = 2
    else:
        a = phi[0, start:stop]
        for i in range(n):
            eta[i] = theta[0] * a[i]
        k = 1
    while k + 2 <= m:
        a, b = phi[k, start:stop], phi[k + 1, start:stop]
        for i in range(n):
            eta[i] += theta[k] * a[i] + theta[k + 1] * b[i]
        k += 2
    if k < m:
        a = phi[k, start:stop]
        for i in range(n):
            eta[i] += theta[k] * a[i]


@compiled
def propensities(link: Bend, eta: Floats, propensity: Floats) -> None:
    """Fill in `floor + (1 - floor) g(eta)`."""
    above, below = sides(link)
    floor = link.floor
    for i in range(eta.size):
        propensity[i], _, _ = in_expectation(eta[i], above, below, floor)


@compiled
def derivatives(link: Bend, eta: Floats, derivative: Floats) -> None:
    """Fill in the propensity's derivative in eta."""
    above, below = sides(link)
    floor = link.floor
    for i in range(eta.size):
        _, derivative[i], _ = in_expectation(eta[i], above, below, floor)


@compiled
def propensities_and_derivatives(
    link: Bend, eta: Floats, propensity: Floats, derivative: Floats, steepness: Floats
) -> None:
    """Fill in propensity, its derivative, and the logistic function's derivative."""
    above, below = sides(link)
    floor = link.floor
    for i in range(eta.size):
        propensity[i], derivative[i], steepness[i] = in_expectation(eta[i], above, below, floor)


@compiled
def drawn_decisions(
    link: Bend, eta: Floats, uniforms: Floats, decision: Floats, score: Floats
) -> None:
    """Fill in decisions d drawn with the propensities, and `d g'/g`."""
    bend, flat, floor = link
    if floor == 0.0:
        for i in range(eta.size):
            larger, smaller = sigmoids(eta[i])
            up = eta[i] >= 0.0
            propensity = larger + flat * (1.0 - larger) if up else bend * smaller
            taken = 1.0 if uniforms[i] < propensity else 0.0
            decision[i] = taken
            # g'/g is sigma(-eta), exact where g itself underflows
            score[i] = taken * ((smaller * (1.0 - flat)) if up else larger)
        return
    for i in range(eta.size):
        larger, smaller = sigmoids(eta[i])
        up = eta[i] >= 0.0
        base = larger + flat * (1.0 - larger) if up else bend * smaller
        propensity = floor + (1.0 - floor) * base
        slope = ((1.0 - flat) if up else bend) * (1.0 - floor) * larger * smaller
        taken = 1.0 if uniforms[i] < propensity else 0.0
        decision[i] = taken
        score[i] = taken * (slope / propensity)
