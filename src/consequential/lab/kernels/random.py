"""Random numbers that are a function of a key and a position.

Number i of a stream is SplitMix64's output i for the seed `key`. Nothing is carried from one number
to the next, so any part of a stream can be computed anywhere and in any order, by NumPy and by
compiled code, and is always the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from consequential.lab.kernels.jit import compiled

Floats = NDArray[np.float64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_12, _27, _30, _31 = np.uint64(12), np.uint64(27), np.uint64(30), np.uint64(31)
_EXPONENT = np.uint64(0x3FF0000000000000)  # followed by 52 random bits, a number in [1, 2)


@compiled
def mixed(bits: np.uint64) -> np.uint64:
    """SplitMix64's scrambling of 64 bits."""
    bits = (bits ^ (bits >> _30)) * _MIX_1
    bits = (bits ^ (bits >> _27)) * _MIX_2
    return bits ^ (bits >> _31)


@compiled
def fill_uniforms(key: np.uint64, start: int, out: Floats) -> None:
    """Fill `out` with the numbers from `start` on, each in [0, 1)."""
    state = np.uint64(key) + np.uint64(start) * _GAMMA
    for i in range(out.size):
        state += _GAMMA
        bits = (state ^ (state >> _30)) * _MIX_1
        bits = (bits ^ (bits >> _27)) * _MIX_2
        bits = bits ^ (bits >> _31)
        out[i] = np.uint64((bits >> _12) | _EXPONENT).view(np.float64) - 1.0


@compiled
def stream_key(seed: int | np.uint64, purpose: int, step: int) -> np.uint64:
    """Return the key of a seed's stream for one purpose at one time step."""
    key = mixed(np.uint64(seed) + _GAMMA)
    key = mixed(key ^ (np.uint64(purpose) * _MIX_1 + _GAMMA))
    return mixed(key ^ (np.uint64(step) * _MIX_2 + _GAMMA))


def uniforms(key: np.uint64, start: int, n: int) -> Floats:
    """Return n numbers of a stream, computed by NumPy alone."""
    with np.errstate(over="ignore"):
        positions = np.arange(start + 1, start + n + 1, dtype=np.uint64)
        bits = np.uint64(key) + positions * _GAMMA
        bits = (bits ^ (bits >> _30)) * _MIX_1
        bits = (bits ^ (bits >> _27)) * _MIX_2
        bits ^= bits >> _31
    return ((bits >> _12) | _EXPONENT).view(np.float64) - 1.0


class UniformStream:
    """A stream read from the beginning, with the one method of a generator that is needed."""

    def __init__(self, key: int) -> None:
        self._key = np.uint64(key)
        self._position = 0

    def random(self, size: int | tuple[int, ...]) -> Floats:
        """Return the next numbers."""
        n = int(np.prod(size))
        self._position += n
        return uniforms(self._key, self._position - n, n).reshape(size)
