"""People and random numbers as JAX functions: the same numbers as compiled code draws."""

from __future__ import annotations

from typing import Any, NamedTuple

from consequential.accelerated.backend import needed

Array = Any

# as in policies.uniforms and worlds.crowd; tests hold them together
_GAMMA, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_EXPONENT = 0x3FF0000000000000
_KEEP, _ALIAS, _GROUP, _LABEL, _CHANGE, _FEATURES = range(6)
_PEOPLE, _DECISIONS = 0, 1


def _u64(value: Any) -> Array:
    return needed("jax").numpy.asarray(value, dtype="uint64")


def mixed(bits: Array) -> Array:
    """SplitMix64's scrambling of 64 bits."""
    bits = (bits ^ (bits >> 30)) * _u64(_MIX_1)
    bits = (bits ^ (bits >> 27)) * _u64(_MIX_2)
    return bits ^ (bits >> 31)


def stream_key(seed: Array, purpose: int, step: Array) -> Array:
    """Return the key of a seed's stream for one purpose at one time step."""
    key = mixed(_u64(seed) + _u64(_GAMMA))
    key = mixed(key ^ (_u64(purpose) * _u64(_MIX_1) + _u64(_GAMMA)))
    return mixed(key ^ (_u64(step) * _u64(_MIX_2) + _u64(_GAMMA)))


def uniform(key: Array, position: Array) -> Array:
    """Return the numbers of a stream at some positions, in [0, 1)."""
    jax = needed("jax")
    bits = mixed(key + (_u64(position) + _u64(1)) * _u64(_GAMMA))
    bits = (bits >> 12) | _u64(_EXPONENT)
    return jax.lax.bitcast_convert_type(bits, "float64") - 1.0


class Crowd(NamedTuple):
    """Cells to draw people from, with the inputs that policies see of each."""

    cells: Array  # as in worlds.crowd
    phi: Array  # (cells, inputs)
    width: Array  # added to the second input: places within a cell


class People(NamedTuple):
    """Drawn people; `phi` has one more axis, the inputs, before the last."""

    phi: Array
    group: Array
    label: Array
    uniform: Array  # decides on them


def people_at(crowd: Crowd, seed: Array, step: Array, row: Array, n: int) -> People:
    """Return row numbers `row` of the n people that seeds have at time steps."""
    jnp = needed("jax").numpy
    key = stream_key(seed, _PEOPLE, step)
    scaled = uniform(key, row) * crowd.cells.shape[0]
    drawn = scaled.astype("int32")
    stays = scaled - drawn < crowd.cells[drawn, _KEEP]
    cell = jnp.where(stays, drawn, crowd.cells[drawn, _ALIAS].astype("int32"))
    place = uniform(key, row + n)
    chance = crowd.cells[cell, _LABEL] + place * crowd.cells[cell, _CHANGE]
    columns = [crowd.phi[cell, k] for k in range(crowd.phi.shape[1])]
    if len(columns) > 1:
        columns[1] = columns[1] + place * crowd.width
    return People(
        jnp.stack(columns, axis=-2),
        crowd.cells[cell, _GROUP].astype("int32"),
        (uniform(key, row + 2 * n) < chance).astype("float64"),
        uniform(stream_key(seed, _DECISIONS, step), row),
    )
