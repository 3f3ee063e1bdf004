"""People on a device: the same ones, with the same random numbers, as compiled code draws."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import consequential as cq
from consequential.kernels.alias_table import FEATURES, draw_proposals

jax = pytest.importorskip("jax")

from consequential.accelerated.people import Population, draw_people  # noqa: E402


@pytest.mark.parametrize("world", [cq.worlds.second_setting, cq.worlds.compas])
def test_people_on_a_device_are_those_of_compiled_code(world):
    table, n, seed, step = world().alias_table, 500, 2**63 + 5, 3
    features, group, label = np.empty((table.n_features, n)), np.empty(n, np.int16), np.empty(n)
    uniforms = np.empty(n)
    draw_proposals(table, np.uint64(seed), step, features, group, label, uniforms)
    widths = np.zeros(table.n_features)
    widths[0] = table.width
    with jax.enable_x64(True):
        population = Population(*jax.device_put((table, table.cells[:, FEATURES:].T, widths)))
        numbers = step * n + jax.numpy.arange(n)
        people = jax.device_get(draw_people(population, np.uint64(seed), numbers, n))
    assert_allclose(people.inputs, features, rtol=1e-15, atol=1e-15)
    assert_array_equal(people.group, group)
    assert_array_equal(people.label, label)
    assert_array_equal(people.uniforms, uniforms)
