"""Compiled links and random numbers: the same as NumPy's, to rounding or to the last bit.

Seeds are fixed. Links agree to 2e-15 relative; below `exp(-650)` compiled code stays where it is,
so a difference of 2e-282 is none. Statistics have a tolerance of four standard errors, or a
p-value of one in a thousand.
"""

from __future__ import annotations

import itertools
import math

import numba
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare

import consequential as cq
from consequential.lab.kernels.batch_sums import draw
from consequential.lab.kernels.links import (
    THRESHOLD,
    exponential_ratio,
    linear_scores,
    propensities,
    responses,
)
from consequential.lab.kernels.random import UniformStream, fill_uniforms, stream_key, uniforms
from consequential.policy import link_numbers
from consequential.policy.links import LINKS

ETA = np.concatenate(
    [
        np.linspace(-800.0, 800.0, 20_001),
        np.linspace(-40.0, 40.0, 20_001),
        np.random.default_rng(0).normal(size=2_000) * 1e-3,
        [0.0, -0.0, 5e-324, -5e-324, 1e-300, -1e-300, 709.0, -709.0, -708.0, -745.2, -746.0],
        [np.nan],
    ]
)
SAME = {"rtol": 2e-15, "atol": 2e-282}
LINKS_AND_FLOORS = list(itertools.product(LINKS, (0.0, 1e-6, 0.1, 0.9)))


@pytest.fixture(scope="module", params=LINKS_AND_FLOORS, ids=lambda pair: f"{pair[0]}, {pair[1]}")
def policy(request):
    link, floor = request.param
    return cq.Policy([0.0], link, floor=floor)


@numba.vectorize([numba.float64(numba.float64)])
def each_exponential(x):
    above, below = exponential_ratio(x)
    return above / below


# --- the exponential


def test_the_exponential_is_right_to_two_bits():
    x = -np.concatenate([np.linspace(0.0, 650.0, 100_001), np.geomspace(1e-300, 1.0, 1000)])
    assert_allclose(each_exponential(x), np.exp(x), rtol=5e-16, atol=0.0)


def test_far_below_zero_the_exponential_stays_at_its_smallest():
    least = math.exp(-650.0)
    assert_allclose(each_exponential(np.array([-650.5, -709.0, -1e5, -np.inf])), least, rtol=5e-16)
    assert_array_equal(each_exponential(np.array([0.0, -0.0])), [1.0, 1.0])


# --- links


def test_compiled_propensities_are_those_of_the_links(policy):
    compiled = np.empty_like(ETA)
    propensities(link_numbers(policy), ETA, compiled)
    assert_allclose(compiled, policy.probability(ETA), **SAME)
    assert np.isnan(compiled[-1])
    assert compiled[:-1].min() >= policy.floor
    assert compiled[:-1].max() <= 1.0


def test_compiled_derivatives_are_those_of_the_links(policy):
    propensity, derivative, steepness = np.empty((3, ETA.size))
    responses(link_numbers(policy), ETA, propensity, derivative, steepness)
    assert_allclose(propensity, policy.probability(ETA), **SAME)
    assert_allclose(derivative, policy.derivative(ETA), **SAME)
    assert_allclose(steepness, LINKS["logistic"].derivative(ETA), **SAME)


def drawn(policy, eta, key=7):
    """Return decisions drawn with a policy's propensities, and `d g'/g`."""
    decision, slope = np.empty((2, eta.size))
    draw(link_numbers(policy), eta, np.uint64(key), 0, decision, slope)
    return decision, slope


def test_compiled_decisions_are_drawn_with_the_links_propensities(policy):
    known = ETA[np.abs(ETA) < 650]
    decision, slope = drawn(policy, known)
    chance, numbers = policy.probability(known), uniforms(np.uint64(7), 0, known.size)
    sure = np.abs(numbers - chance) > 1e-12  # the propensities agree to rounding only
    taken = numbers < chance
    assert_array_equal(decision[sure], taken[sure])
    assert_allclose(
        slope[sure], (taken * policy.log_derivative(known))[sure], rtol=4e-15, atol=2e-282
    )


def test_compiled_scores_are_exact_where_the_propensity_underflows(policy):
    eta = np.array([-1e4, -800.0, -746.0, -709.0])
    propensity, derivative, steepness = np.empty((3, eta.size))
    responses(link_numbers(policy), eta, propensity, derivative, steepness)
    # with a floor f the score is at most exp(-650) / f
    assert_allclose(derivative / propensity, policy.log_derivative(eta), rtol=2e-15, atol=2e-276)


def test_nobody_with_an_unknown_score_is_accepted(policy):
    assert_array_equal(drawn(policy, np.full(3, np.nan))[0], np.zeros(3))


def test_a_threshold_is_a_step_from_nobody_to_everybody():
    eta = np.array([-800.0, -1e-3, -5e-324, 0.0, -0.0, 5e-324, 0.7, 800.0])
    chance, slope, steepness = np.empty((3, eta.size))
    responses(THRESHOLD, eta, chance, slope, steepness)
    assert_array_equal(chance, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert_array_equal(slope, np.zeros(eta.size))


def test_a_link_of_ones_own_has_no_numbers():
    logistic = LINKS["logistic"]
    same_name = cq.links.Link(
        "logistic", logistic.probability, logistic.derivative, logistic.log_derivative
    )
    assert link_numbers(cq.Policy([0.0], same_name)) is None
    assert link_numbers(cq.Policy([0.0], "logistic")) is not None


def test_linear_scores_are_products_from_any_row_on(rng):
    for m in range(1, 8):
        phi, theta = rng.normal(size=(m, 50)), rng.normal(size=m)
        for start, length in [(0, 50), (7, 20), (49, 1), (10, 0)]:
            eta = np.empty(length)
            linear_scores(theta, phi, start, eta)
            assert_allclose(eta, theta @ phi[:, start : start + length], rtol=1e-13, atol=1e-14)


# --- random numbers

KEYS = [0, 1, 2**63, 2**64 - 1, int(stream_key(5, 1, 3))]


@pytest.mark.parametrize("key", KEYS)
def test_numpy_and_compiled_code_make_the_same_numbers(key):
    starts = [0, 1, 7, 12_345, 2**31, 2**40 + 3]
    for start, n in itertools.product(starts, [0, 1, 8, 1001]):
        compiled = np.empty(n)
        fill_uniforms(np.uint64(key), start, compiled)
        assert compiled.tobytes() == uniforms(np.uint64(key), start, n).tobytes(), (start, n)


def test_numbers_are_those_of_splitmix64():
    # the first outputs for seed 1234567, as published with the reference implementation
    published = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    wanted = [(number >> 12) / 2.0**52 for number in published]
    assert_array_equal(uniforms(np.uint64(1234567), 0, 5), wanted)


def test_streams_of_other_seeds_purposes_and_steps_are_other_streams():
    named = list(itertools.product(range(20), range(4), range(50)))
    assert len({int(stream_key(*name)) for name in named}) == len(named)


def test_streams_of_other_seeds_purposes_and_steps_are_uncorrelated():
    n = 100_000
    names = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1), (2, 0, 0), (0, 0, 2)]
    streams = np.array([uniforms(np.uint64(stream_key(*name)), 0, n) for name in names])
    found = np.corrcoef(streams)[np.triu_indices(len(names), 1)]
    assert np.abs(found).max() < 4.5 / math.sqrt(n)  # 21 pairs


def test_first_numbers_of_consecutive_seeds_are_uniform():
    first = [uniforms(np.uint64(stream_key(seed, 0, 0)), 0, 1)[0] for seed in range(4096)]
    counts = np.bincount((np.array(first) * 64).astype(int), minlength=64)
    assert chisquare(counts).pvalue > 1e-3
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < 4 / math.sqrt(4095)


def test_a_stream_continues_where_it_left():
    stream, whole = UniformStream(7), uniforms(np.uint64(7), 0, 100)
    parts = [stream.random(10), stream.random((3, 5)).ravel(), stream.random(0), stream.random(75)]
    assert_array_equal(np.concatenate(parts), whole)
