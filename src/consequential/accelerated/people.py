"""People and random numbers as JAX functions: the same numbers as compiled code draws."""

from __future__ import annotations

from typing import Any, NamedTuple

from consequential.accelerated.backend import needed
from consequential.kernels.alias_table import DECISIONS, GROUP, PEOPLE, AliasTable
from consequential.kernels.step import People

jax = needed("jax")
jnp = jax.numpy
Array = Any

# as in kernels.random and kernels.alias_table; tests compare the two
_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_EXPONENT = 0x3FF0000000000000
_KEEP, _ALIAS, _LABEL, _CHANGE = 0, 1, 3, 4


class Population(NamedTuple):
    """Cells to draw people from, with the inputs that policies see of each."""

    table: AliasTable
    inputs: Array  # (inputs, cells)
    widths: Array  # (inputs,): how much each input changes within a cell


def _u64(value: Any) -> Array:
    return jnp.asarray(value, dtype="uint64")


def _mixed(bits: Array) -> Array:
    bits = (bits ^ (bits >> 30)) * _u64(_MIX_1)
    bits = (bits ^ (bits >> 27)) * _u64(_MIX_2)
    return bits ^ (bits >> 31)


def stream_key(seed: Array, purpose: int, step: Array) -> Array:
    """Return the key of a seed's stream for one purpose at one time step."""
    key = _mixed(_u64(seed) + _u64(_GAMMA))
    key = _mixed(key ^ (_u64(purpose) * _u64(_MIX_1) + _u64(_GAMMA)))
    return _mixed(key ^ (_u64(step) * _u64(_MIX_2) + _u64(_GAMMA)))


def uniforms(key: Array, positions: Array) -> Array:
    """Return the numbers of a stream at some positions, in [0, 1)."""
    bits = _mixed(key + (_u64(positions) + _u64(1)) * _u64(_GAMMA))
    bits = (bits >> 12) | _u64(_EXPONENT)
    return jax.lax.bitcast_convert_type(bits, "float64") - 1.0


def draw_people(population: Population, seed: Array, numbers: Array, n: int) -> People:
    """Return a seed's people by number, which is time step x n + row."""
    step, row = numbers // n, numbers % n
    key, cells = stream_key(seed, PEOPLE, step), population.table.cells
    scaled = uniforms(key, row) * cells.shape[0]
    drawn = scaled.astype("int32")
    stays = scaled - drawn < cells[drawn, _KEEP]
    cell = jnp.where(stays, drawn, cells[drawn, _ALIAS].astype("int32"))
    position = uniforms(key, row + n)
    chance = cells[cell, _LABEL] + position * cells[cell, _CHANGE]
    return People(
        population.inputs[:, cell] + population.widths[:, None] * position,
        cells[cell, GROUP].astype("int32"),
        (uniforms(key, row + 2 * n) < chance).astype("float64"),
        uniforms(stream_key(seed, DECISIONS, step), row),
    )
