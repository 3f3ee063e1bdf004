"""A pass over rows against the same sums in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import consequential as cq
from consequential.learning import rows as passes
from consequential.learning.rows import Rows
from consequential.policy import link_numbers
from covering import covering


def made(n, k, n_groups, n_columns, seed=0, **options) -> Rows:
    rng = np.random.default_rng(seed)
    return Rows(
        rng.normal(size=(n, k)),
        rng.normal(size=(n_columns, n)),
        rng.integers(n_groups, size=n),
        n_groups,
        **options,
    )


def summed(rows: Rows, theta, policy) -> np.ndarray:
    n, k = rows.inputs.shape
    phi = np.column_stack([np.ones(n), rows.inputs])
    blocks = theta.reshape(-1, k + 1)
    eta = (phi * blocks[rows.group if rows.by_group else np.zeros(n, int)]).sum(axis=1)
    chance, slope = policy.probability(eta), policy.derivative(eta)
    terms = [(column * chance, column * slope) for column in rows.columns]
    out = np.zeros((len(terms), rows.n_groups, k + 2))
    for c, (values, slopes) in enumerate(terms):
        for z in range(rows.n_groups):
            mine = rows.group == z
            out[c, z, 0] = values[mine].sum()
            out[c, z, 1:] = slopes[mine] @ phi[mine]
    return out


LINKS = ["logistic", "semi_logistic", "smooth_semi_logistic"]


@pytest.mark.parametrize(
    ("link", "n_groups", "by_group"), covering(LINKS, [1, 2, 3, 5, 9], [False, True])
)
def test_a_pass_sums_values_and_gradients_by_column_and_group(link, n_groups, by_group):
    rows = made(1003, 3, n_groups, 2, by_group=by_group)
    theta = np.random.default_rng(1).normal(size=rows.n_parameters)
    policy = cq.Policy(theta, link, floor=0.1)
    assert_allclose(
        rows.sums(theta, link_numbers(policy)), summed(rows, theta, policy), rtol=1e-11, atol=1e-10
    )


@pytest.mark.parametrize("n", [1, 3, 16_383, 16_384, 16_385])
def test_chunks_that_are_not_full_count_all_their_rows(n):
    for k in (1, 2, 5):
        rows = made(n, k, 2, 3)
        theta = np.linspace(-1.0, 1.0, rows.n_parameters)
        policy = cq.Policy(theta)
        found = rows.sums(theta, link_numbers(policy))
        assert_allclose(found, summed(rows, theta, policy), rtol=1e-11, atol=1e-12)


def test_sums_do_not_depend_on_the_number_of_threads(monkeypatch):
    rows = made(200_000, 2, 2, 2)
    theta, link = np.array([0.1, -0.4, 0.9]), link_numbers(cq.Policy([0.0]))
    found = []
    for n_threads in (1, 3):
        monkeypatch.setattr(passes, "_n_threads", lambda n_threads=n_threads: n_threads)
        found.append(rows.sums(theta, link))
    assert_array_equal(found[0], found[1])


def test_some_rows_are_scaled_up_to_all():
    rows = made(1000, 2, 2, 2)
    part = rows.take(np.arange(0, 1000, 4))
    assert_allclose(part.columns, 4.0 * rows.columns[:, ::4])
    assert_array_equal(part.group, rows.group[::4])
